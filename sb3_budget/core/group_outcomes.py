"""Which groups of episodes are finished, and with what returns."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sb3_budget.core.groups import equal_returns, require_groups
from sb3_budget.core.starts import Moments, add_values


class FinishedGroup(NamedTuple):
    """
    The episodes of all members of a group that began in one start, once the last of them has ended.

    :param group: Number of the group.
    :param episode: Number of the start within the group.
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
        self._last_episode = np.full(n_envs, -1, dtype=np.int64)
        #: The earliest episode that a member of each group was in at the end of the latest rollout, shape (n_groups,). Those
        #: before it will not finish any more.
        self.oldest: NDArray[np.int64] = np.zeros(n_envs // group_size, dtype=np.int64)
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
        members: NDArray[np.int64] | None = None,
    ) -> list[FinishedGroup]:
        """
        Add a rollout.

        :param rewards: Reward of each row, shape (n_steps, n_envs).
        :param episodes: Number of the start that the row's episode began in, same shape. Later episodes of a slot have the
            same or later ones.
        :param times: Steps since it began, same shape.
        :param ends: Whether the episode ended with the row, same shape.
        :param raw_returns: Where it did, its return as the environment gave it; NaN if it was cut short, same shape. The
            sums of the rewards by default.
        :param members: Which member of the group, from 0, plays the row's episode, same shape. The place of the slot in its
            group by default. No two of a start are the same.
        :return: The groups that were finished by it, in the order of finishing.
        """
        goes_on = (self._next_time == 0) | (episodes[0] == self._last_episode)
        self._whole &= (times[0] == self._next_time) & goes_on
        self._returns[~self._whole] = 0.0
        self._whole |= times[0] == 0
        sums = np.cumsum(rewards, axis=0, dtype=np.float64)
        before = -self._returns
        finished = []
        for row, slot in np.argwhere(ends).tolist():
            group, episode = slot // self.group_size, int(episodes[row, slot])
            outcome = float(sums[row, slot] - before[slot]) if self._whole[slot] else np.nan
            ended = self._open.setdefault((group, episode), {})
            member = slot % self.group_size if members is None else int(members[row, slot])
            raw = outcome if raw_returns is None else float(raw_returns[row, slot])
            ended[member] = (outcome, int(times[row, slot]) + 1, raw)
            if np.isfinite(outcome):
                self._moments = add_values(self._moments, [outcome])
            if np.isfinite(raw):
                self._raw_moments = add_values(self._raw_moments, [raw])
            before[slot], self._whole[slot] = sums[row, slot], True
            if len(ended) == self.group_size:
                del self._open[group, episode]
                columns = zip(*(ended[i] for i in sorted(ended)), strict=True)
                returns, lengths, raw_of_members = (np.array(column) for column in columns)
                if np.isfinite(returns).all():
                    finished.append(FinishedGroup(group, episode, returns, lengths, raw_of_members))
        self._returns = sums[-1] - before
        self._next_time = np.where(ends[-1], 0, times[-1] + 1)
        self._last_episode = episodes[-1].copy()
        self.oldest = episodes[-1].reshape(-1, self.group_size).min(axis=1)
        self._open = {key: ended for key, ended in self._open.items() if key[1] >= self.oldest[key[0]]}
        return finished


def outcome_statistics(groups: list[FinishedGroup], tolerance: float, return_std: float) -> OutcomeStatistics:
    """
    :param groups: Finished groups.
    :param tolerance: As for :func:`~sb3_budget.core.groups.equal_returns`.
    :param return_std: Standard deviation of all raw returns.
    :return: What the groups' outcomes look like. A group with a member that was
        cut short has no deviation, and counts as not alike.
    """
    if not groups:
        return OutcomeStatistics(np.nan, np.nan)
    stds = [float(group.raw_returns.std()) for group in groups if np.isfinite(group.raw_returns).all()]
    if not stds:
        return OutcomeStatistics(np.nan, np.nan)
    equal = [equal_returns(group.raw_returns, tolerance, return_std) for group in groups]
    return OutcomeStatistics(float(np.mean(stds)), float(np.mean(equal)))
