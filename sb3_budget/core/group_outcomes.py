"""Which groups of episodes are finished, and with what returns."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sb3_budget.core.groups import require_groups
from sb3_budget.core.starts import Moments, add_values


class FinishedGroup(NamedTuple):
    """
    The episodes that all members of a group began in one start, once the last of them has ended.

    :param group: Number of the group.
    :param episode: Number of the episode within each of its slots.
    :param returns: Undiscounted return of each member in the units of the training, shape (group_size,).
    :param lengths: Steps of each member, shape (group_size,).
    :param raw_returns: The returns as the environment gave them, before they were normalised; NaN for a member that was cut
        short, shape (group_size,).
    """

    group: int
    episode: int
    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]
    raw_returns: NDArray[np.float64]


class OutcomeStatistics(NamedTuple):
    """
    :param reward_std: Mean over the groups of the standard deviation of their members' returns; NaN without groups.
    :param zero_variance: Share of the groups whose members' returns are alike; NaN without groups.
    """

    reward_std: float
    zero_variance: float


class GroupOutcomes:
    """
    Follows all slots from rollout to rollout and says when the last member of a group has ended an episode.

    Only episodes that were seen from their first step on count: a group with one that was not is never reported.

    :param n_envs: Number of slots; slot ``i`` belongs to group ``i // group_size``.
    :param group_size: Slots per group.
    :raises ValueError: if ``n_envs`` is no multiple of ``group_size``.
    """

    def __init__(self, n_envs: int, group_size: int):
        require_groups(n_envs, group_size)
        self.group_size = group_size
        self._returns = np.zeros(n_envs)
        self._next_time = np.full(n_envs, -1, dtype=np.int64)
        self._whole = np.zeros(n_envs, dtype=bool)
        self._next_episode = np.full(n_envs, -1, dtype=np.int64)
        #: (group, episode) -> returns, lengths and raw returns of the members that have ended; NaN where not seen whole.
        self._open: dict[tuple[int, int], dict[int, tuple[float, int, float]]] = {}
        self._moments = Moments()
        self._raw_moments = Moments()

    @property
    def return_std(self) -> float:
        """Standard deviation of the returns of all episodes that were seen whole; 0 before there are any."""
        return self._moments.std

    @property
    def raw_return_std(self) -> float:
        """The same of the raw returns."""
        return self._raw_moments.std

    def add(
        self,
        rewards: NDArray[np.floating],
        episodes: NDArray[np.int64],
        times: NDArray[np.int64],
        ends: NDArray[np.bool_],
        raw_returns: NDArray[np.floating] | None = None,
    ) -> list[FinishedGroup]:
        """
        Add a rollout.

        :param rewards: Reward of each row, shape (n_steps, n_envs).
        :param episodes: Number of the slot's episode, same shape.
        :param times: Steps since it began, same shape.
        :param ends: Whether the episode ended with the row, same shape.
        :param raw_returns: Where it did, its return as the environment gave it; NaN if it was cut short, same shape. The
            sums of the rewards by default.
        :return: The groups that were finished by it, in the order of finishing.
        """
        self._whole &= (times[0] == self._next_time) & (episodes[0] == self._next_episode)
        self._returns[~self._whole] = 0.0
        self._whole |= times[0] == 0
        sums = np.cumsum(rewards, axis=0, dtype=np.float64)
        before = -self._returns
        finished = []
        for row, slot in np.argwhere(ends).tolist():
            group, episode = slot // self.group_size, int(episodes[row, slot])
            outcome = float(sums[row, slot] - before[slot]) if self._whole[slot] else np.nan
            members = self._open.setdefault((group, episode), {})
            raw = outcome if raw_returns is None else float(raw_returns[row, slot])
            members[slot % self.group_size] = (outcome, int(times[row, slot]) + 1, raw)
            if np.isfinite(outcome):
                self._moments = add_values(self._moments, [outcome])
            if np.isfinite(raw):
                self._raw_moments = add_values(self._raw_moments, [raw])
            before[slot], self._whole[slot] = sums[row, slot], True
            if len(members) == self.group_size:
                del self._open[group, episode]
                columns = zip(*(members[i] for i in sorted(members)), strict=True)
                returns, lengths, raw_of_members = (np.array(column) for column in columns)
                if np.isfinite(returns).all():
                    finished.append(FinishedGroup(group, episode, returns, lengths, raw_of_members))
        self._returns = sums[-1] - before
        self._next_time = np.where(ends[-1], 0, times[-1] + 1)
        self._next_episode = episodes[-1] + ends[-1]
        self._forget(episodes[-1] + ends[-1])
        return finished

    def _forget(self, present: NDArray[np.int64]) -> None:
        """Drop groups that cannot be finished any more, because members were moved on to a later episode."""
        oldest = present.reshape(-1, self.group_size).min(axis=1)
        self._open = {key: members for key, members in self._open.items() if key[1] >= oldest[key[0]]}


def alike(finished: FinishedGroup, tolerance: float, return_std: float) -> bool:
    """
    :param finished: A group.
    :param tolerance: Largest difference of returns that counts as none, in units of ``return_std``; 0 asks for equality.
    :param return_std: Standard deviation of all raw returns.
    :return: Whether its members' raw returns are alike, so that their comparison teaches nothing. With a member that was cut
        short nobody knows.
    """
    return float(np.ptp(finished.raw_returns)) <= tolerance * return_std


def outcome_statistics(groups: list[FinishedGroup], tolerance: float, return_std: float) -> OutcomeStatistics:
    """
    :param groups: Finished groups.
    :param tolerance: As for :func:`alike`.
    :param return_std: As for :func:`alike`.
    :return: What the groups' outcomes look like.
    """
    if not groups:
        return OutcomeStatistics(np.nan, np.nan)
    stds = [float(group.raw_returns.std()) for group in groups if np.isfinite(group.raw_returns).all()]
    if not stds:
        return OutcomeStatistics(np.nan, np.nan)
    return OutcomeStatistics(float(np.mean(stds)), float(np.mean([alike(g, tolerance, return_std) for g in groups])))
