"""Paths from pooled transitions, known by their keys: rows move, and the pool goes on while paths stay."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
from numpy.typing import NDArray

from sb3_budget.core.transition_graph import Paths
from sb3_budget.core.transition_pool import TransitionPool


class PooledPaths:
    """
    :param keys: Keys of the transitions, n of them.
    :param paths: The best known path from each.
    :param gamma: The discount factor that they were found with.
    """

    def __init__(self, keys: list[Hashable], paths: Paths, gamma: float):
        self.gamma = gamma
        #: Mean number of transitions of a path.
        self.mean_length = float(paths.lengths.mean()) if len(keys) else 0.0
        ends = [keys[row] for row in paths.last.tolist()]
        rows = zip(paths.rewards.tolist(), paths.discounts.tolist(), ends, strict=True)
        self._paths = dict(zip(keys, rows, strict=True))

    def of(
        self, pool: TransitionPool, rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int64]]:
        """
        :param pool: The pool as it is now.
        :param rows: Rows of it, shape (n,).
        :return: Sum of rewards, shape (n, 1), and discount at the end of the path, shape (n, 1), with the row of its last
            transition, shape (n,). For a row that came since, or whose path's end has left: NaN, the discount factor, itself.
        """
        found = [self._paths.get(key, (np.nan, self.gamma, key)) for key in pool.keys(rows)]
        last = pool.rows([end for _, _, end in found])
        gone = (last < 0)[:, None]
        rewards, discounts = (np.array([path[part] for path in found], dtype=np.float32)[:, None] for part in (0, 1))
        return (
            np.where(gone, np.float32(np.nan), rewards),
            np.where(gone, np.float32(self.gamma), discounts),
            np.where(last < 0, rows, last),
        )
