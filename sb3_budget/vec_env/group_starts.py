"""One start for all members of a group."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

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
    :param rule: Which start the ``j``-th of a group is. By default a seed of its own.
    :raises ValueError: if ``n_envs`` is no multiple of ``group_size``.
    """

    def __init__(self, n_envs: int, group_size: int, seed: int, rule: StartRule | None = None):
        if group_size < 1 or n_envs % group_size:
            raise ValueError(f"n_envs={n_envs} must be a multiple of group_size={group_size}")
        self.group_size = group_size
        self.seed = seed
        self.rule = seeded_start if rule is None else rule
        self.episodes: NDArray[np.int64] = np.zeros(n_envs, dtype=np.int64)

    def align(self) -> None:
        """Before a reset of all slots: let members that are ahead wait for none, and all go on from the next start."""
        by_group = self.episodes.reshape(-1, self.group_size)
        by_group[:] = by_group.max(axis=1, keepdims=True)

    def __call__(self, slot: int) -> Start:
        group, episode = slot // self.group_size, int(self.episodes[slot])
        self.episodes[slot] += 1
        return self.rule(group, episode, np.random.default_rng([self.seed, group, episode]))


def seeded_start(group: int, episode: int, rng: np.random.Generator) -> Start:
    """
    :param group: Number of the group.
    :param episode: Number of its episode.
    :param rng: Generator of the two.
    :return: A start by seed.
    """
    return Start((group, episode), seed=int(rng.integers(2**31)))
