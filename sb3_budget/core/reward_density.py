"""Whether rewards tell something at most steps."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


class RewardDensity:
    """
    Counts steps whose reward differs from that of the step before in the same episode. It takes a constant cost per step, or a
    constant reward for being alive, for what it is: no more than the length of the episode.

    :param n_envs: Number of slots.
    """

    def __init__(self, n_envs: int):
        self._last: NDArray[np.float64] = np.full(n_envs, np.nan)
        self.n_pairs, self.n_changes = 0, 0

    def add(self, rewards: ArrayLike, dones: ArrayLike) -> None:
        """
        :param rewards: Rewards of a step, not normalised, shape (n_envs,).
        :param dones: Whether the episode ended with it, shape (n_envs,).
        """
        given = np.asarray(rewards, dtype=np.float64)
        follows = ~np.isnan(self._last)
        self.n_pairs += int(follows.sum())
        self.n_changes += int((follows & (given != self._last)).sum())
        self._last = np.where(np.asarray(dones, dtype=bool), np.nan, given)

    @property
    def share(self) -> float:
        """Share of the steps with another reward than the one before, NaN without any."""
        return self.n_changes / self.n_pairs if self.n_pairs else np.nan
