"""Peers from earlier rollouts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sb3_budget.core.groups import PeerRows


class PeerMemory:
    """
    Keeps rows of the latest rollouts. Where members of a group have drifted apart, the one that is behind still meets
    what the others left at the same step of the same episode. Their advantages are of a slightly older policy.

    :param n_rollouts: Number of rollouts that are remembered; 0 remembers nothing.
    :raises ValueError: if it is negative, or no whole number.
    """

    def __init__(self, n_rollouts: int):
        if not isinstance(n_rollouts, (int, np.integer)) or n_rollouts < 0:
            raise ValueError(f"remember_peers={n_rollouts} must be a number of rollouts, 0 or more")
        self.n_rollouts = n_rollouts
        self._rollouts: list[PeerRows] = []

    @property
    def rows(self) -> PeerRows | None:
        """The rows that are remembered."""
        if not self._rollouts:
            return None
        advantages, groups, episodes, times = (np.concatenate(column) for column in zip(*self._rollouts, strict=True))
        return PeerRows(advantages, groups, episodes, times)

    def add(self, rows: PeerRows, oldest: NDArray[np.int64]) -> None:
        """
        :param rows: Rows of the rollout that has ended.
        :param oldest: The earliest episode that a member of each group is still in, shape (n_groups,). Rows of earlier
            ones have nobody to meet any more.
        """
        if self.n_rollouts == 0:
            return
        latest = [*self._rollouts, rows][-self.n_rollouts :]
        self._rollouts = [kept.select(kept.episodes >= oldest[kept.groups]) for kept in latest]
