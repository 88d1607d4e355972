"""How many episodes live to their time limit, told from episodes that are mostly stopped before."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

#: Ages are told apart as finely as this.
N_BUCKETS = 20


class Survival:
    """
    A life table (Cutler and Ederer, 1958, https://doi.org/10.1016/0021-9681(58)90126-7), which old steps leave little by
    little. An episode that was stopped, or cut by a limit, counts at the ages that it had, and not as one that ended; at the
    age that it was stopped at it counts half.

    :param horizon: length of a full episode, positive [steps]
    :param memory: steps after which one counts 1 / e of what it did, positive
    """

    def __init__(self, horizon: int, memory: float):
        if horizon < 1 or not memory > 0.0:
            raise ValueError(f"horizon={horizon} and memory={memory} must be positive")
        self.horizon = horizon
        self.memory = memory
        n_buckets = min(N_BUCKETS, horizon)
        self._bucket = np.arange(horizon) * n_buckets // horizon
        self._is_first = np.diff(self._bucket, prepend=-1) > 0
        self._is_last = np.diff(self._bucket, append=n_buckets) > 0
        # Episodes that began a bucket, ended in it by themselves, and left it alive.
        self._counts = np.zeros((3, n_buckets))

    def add(self, ages: NDArray[np.int64], ended: NDArray[np.bool_]) -> None:
        """
        :param ages: of some steps: how many the episode had taken before each, shape (n,)
        :param ended: those with which an episode ended by itself, shape (n,)
        """
        ages = np.minimum(ages, self.horizon - 1)
        buckets = self._bucket[ages]
        self._counts *= math.exp(-len(ages) / self.memory)
        for counts, counted in zip(self._counts, (self._is_first[ages], ended, self._is_last[ages] & ~ended), strict=True):
            if np.count_nonzero(counted):
                counts += np.bincount(buckets[counted], minlength=len(counts))

    @property
    def share(self) -> float:
        """Share of episodes that would live to the horizon. Ages that none has reached count as without danger."""
        began, ended, alive = self._counts
        at_risk = ended + alive + np.maximum(began - ended - alive, 0.0) / 2
        dangers = np.divide(ended, at_risk, out=np.zeros(len(ended)), where=at_risk > 0.0)
        return float(np.prod(1.0 - dangers))
