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
    A start sampler: slot ``k`` is a member of group ``k // group_size``, and the ``j``-th episodes of all members begin in
    one start, whenever each of them comes to it.

    :param n_envs: Number of slots.
    :param group_size: Slots per group.
    :param seed: Decides all starts.
    :param rule: Which start the ``j``-th of a group is, asked once for all members. By default a seed of its own. A start
        by options gets a seed besides if it has none, since the seed decides what members share and do not see.
    :param first_episode: Number of the first episodes.
    :raises ValueError: if ``n_envs`` is no multiple of ``group_size``.
    """

    def __init__(self, n_envs: int, group_size: int, seed: int, rule: StartRule | None = None, first_episode: int = 0):
        require_groups(n_envs, group_size)
        self.group_size = group_size
        self.seed = seed
        self.rule = seeded_start if rule is None else rule
        #: Asked before the rule, which speaks where it returns ``None``: for what chooses among starts of its own.
        self.first_rule: Callable[[int, int, np.random.Generator], Start | None] | None = None
        #: Number of episodes that each slot has begun.
        self.episodes: NDArray[np.int64] = np.full(n_envs, first_episode, dtype=np.int64)
        #: Starts that not all members have come to yet.
        self._open: dict[tuple[int, int], Start] = {}

    def align(self) -> None:
        """Before a reset of all slots: let members that are ahead wait for none, and all go on from the next start."""
        by_group = self.episodes.reshape(-1, self.group_size)
        by_group[:] = by_group.max(axis=1, keepdims=True)
        self._open.clear()

    def __call__(self, slot: int) -> Start:
        group, episode = slot // self.group_size, int(self.episodes[slot])
        start = self._open.get((group, episode))
        if start is None:
            start = self._open[group, episode] = self._make(group, episode)
        self.episodes[slot] += 1
        members = slice(group * self.group_size, (group + 1) * self.group_size)
        if (self.episodes[members] > episode).all():
            del self._open[group, episode]
        return start

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
