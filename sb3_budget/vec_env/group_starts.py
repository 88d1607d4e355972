"""One start for all members of a group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sb3_budget.core.groups import require_groups
from sb3_budget.vec_env.start import Start

#: ``(group, episode, rng) -> Start``; the generator is the same for all members of a group.
StartRule = Callable[[int, int, np.random.Generator], Start]


class GroupStarts:
    """
    A start sampler: slot ``k`` is a member of group ``k // group_size``, and ``group_size`` episodes of these slots begin in
    each start.

    By default the ``j``-th episodes of all members begin in the ``j``-th start, whenever each of them comes to it: members
    that are in step stay so, however often they are compared. With ``fill`` whoever becomes free first plays the next
    missing member of the latest start, and a new start begins when all have been given out, so that a start is never open
    for longer than two episodes take, and a group has no more open ones than members. Where all members end together the
    two are the same.

    :param n_envs: Number of slots.
    :param group_size: Slots per group.
    :param seed: Decides all starts.
    :param rule: Which start the ``j``-th of a group is, asked once for all members. By default a seed of its own. A start
        by options gets a seed besides if it has none, since the seed decides what members share and do not see.
    :param first_episode: Number of the first starts.
    :param fill: Whether a start is given to the next slots that become free, rather than once to each.
    :raises ValueError: if ``n_envs`` is no multiple of ``group_size``.
    """

    def __init__(
        self,
        n_envs: int,
        group_size: int,
        seed: int,
        rule: StartRule | None = None,
        first_episode: int = 0,
        fill: bool = False,
    ):
        require_groups(n_envs, group_size)
        self.group_size = group_size
        self.seed = seed
        self.rule = seeded_start if rule is None else rule
        self.fill = fill
        #: Asked before the rule, which speaks where it returns ``None``: for what chooses among starts of its own.
        self.first_rule: Callable[[int, int, np.random.Generator], Start | None] | None = None
        #: Number of the start of each slot's present episode, and which member of the group plays it, from 0.
        self.episodes: NDArray[np.int64] = np.full(n_envs, first_episode - 1, dtype=np.int64)
        self.members: NDArray[np.int64] = np.arange(n_envs) % group_size
        #: The same of the episode before.
        self._last_episodes, self._last_members = self.episodes.copy(), self.members.copy()
        #: Starts that not all members have come to yet, and which have not.
        self._open: dict[tuple[int, int], tuple[Start, set[int]]] = {}

    def align(self) -> None:
        """At a reset of all slots: let members that are ahead wait for none, and all go on from the next start."""
        by_group = self.episodes.reshape(-1, self.group_size)
        by_group[:] = by_group.max(axis=1, keepdims=True)
        self._open.clear()

    def before(self, dones: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """
        :param dones: Slots whose episode ended with the latest step, which are in their next one already, shape (n_envs,).
        :return: Number of the start of the episode that each slot made this step in, and which member played it.
        """
        return np.where(dones, self._last_episodes, self.episodes), np.where(dones, self._last_members, self.members)

    def __call__(self, slot: int) -> Start:
        group, member = divmod(slot, self.group_size)
        episode = self._next_episode(slot, group)
        if (group, episode) not in self._open:
            self._open[group, episode] = self._make(group, episode), set(range(self.group_size))
        start, missing = self._open[group, episode]
        if member not in missing:
            member = min(missing)
        missing.remove(member)
        if not missing:
            del self._open[group, episode]
        self._last_episodes[slot], self._last_members[slot] = self.episodes[slot], self.members[slot]
        self.episodes[slot], self.members[slot] = episode, member
        return start

    def _next_episode(self, slot: int, group: int) -> int:
        if not self.fill:
            return int(self.episodes[slot]) + 1
        latest = int(self.episodes[group * self.group_size : (group + 1) * self.group_size].max())
        return latest if (group, latest) in self._open else latest + 1

    def _make(self, group: int, episode: int) -> Start:
        rng = np.random.default_rng([self.seed, group, episode])
        start = None if self.first_rule is None else self.first_rule(group, episode, rng)
        if start is None:
            start = self.rule(group, episode, rng)
        if start.options is not None and start.seed is None:
            start = start._replace(seed=int(rng.integers(2**31)))
        return start

    def __getstate__(self) -> dict[str, Any]:
        # The rule is the model's, and an open start may hold a snapshot: after a load all begin anew.
        return {**self.__dict__, "rule": None, "first_rule": None, "_open": {}}


def seeded_start(group: int, episode: int, rng: np.random.Generator) -> Start:
    """
    :param group: Number of the group.
    :param episode: Number of its episode.
    :param rng: Generator of the two.
    :return: A start by seed.
    """
    return Start((group, episode), seed=int(rng.integers(2**31)))
