"""How much alike is alike enough, learnt from groups that ran to their end."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

#: Number of finished groups that a threshold is calibrated on, at least.
RECORDS = 200


def calibrate_threshold(
    distances: ArrayLike, zero_variance: ArrayLike, floor: float, weights: ArrayLike | None = None
) -> float | None:
    """
    The largest distance to cut at such that, of the groups which are at most as far apart, at least the share ``floor``
    had zero variance.

    :param distances: Distances of groups that ran to their end, shape (n,). Infinite ones are never cut.
    :param zero_variance: Whether a group's returns were all alike, shape (n,).
    :param floor: The precision that is asked for, in ``[0, 1]``.
    :param weights: How many groups each of them stands for, positive, shape (n,). 1 by default.
    :return: One of the distances, or ``None`` where none will do.
    """
    far, hit = np.asarray(distances, dtype=np.float64), np.asarray(zero_variance, dtype=bool)
    weight = np.ones(far.shape) if weights is None else np.asarray(weights, dtype=np.float64)
    if not far.shape == hit.shape == weight.shape:
        raise ValueError(f"{far.shape} distances, {hit.shape} outcomes and {weight.shape} weights do not belong together")
    order = np.argsort(far, kind="stable")
    far, weight, hits = far[order], weight[order], (weight * hit)[order]
    precise = np.cumsum(hits) >= floor * np.cumsum(weight) * (1.0 - 1e-12)
    # Groups at one distance are cut together: only the last of them tells what a threshold does.
    last = np.append(far[1:] != far[:-1], True) if len(far) else np.zeros(0, dtype=bool)
    possible = far[precise & last & np.isfinite(far)]
    return float(possible[-1]) if len(possible) else None


class _Outcome(NamedTuple):
    distance: float
    zero_variance: bool
    weight: float


class Calibration:
    """
    What became of the latest groups, and the threshold that follows from it.

    :param threshold: A fixed one, or ``None`` to calibrate it.
    :param floor: The precision that is asked for.
    :param least_groups: Number of groups to see before anything is cut.
    :param arm_at: Least share of groups with zero variance to cut at all.
    """

    def __init__(self, threshold: float | None, floor: float, least_groups: int, arm_at: float):
        self.threshold = threshold
        self.floor, self.least_groups, self.arm_at = floor, least_groups, arm_at
        self._fixed = threshold is not None
        self._outcomes: deque[_Outcome] = deque(maxlen=max(RECORDS, least_groups))

    def __len__(self) -> int:
        return len(self._outcomes)

    def note(self, distance: float, zero_variance: bool, weight: float) -> None:
        """
        :param distance: How far apart the members were; infinite if they could not be compared.
        :param zero_variance: Whether their returns were all alike.
        :param weight: How many groups this one stands for, positive.
        """
        self._outcomes.append(_Outcome(distance, zero_variance, weight))
        if not self._fixed and len(self) >= self.least_groups:
            distances, outcomes, weights = zip(*self._outcomes, strict=True)
            self.threshold = calibrate_threshold(distances, outcomes, self.floor, weights)

    def cuts(self, distance: float) -> bool:
        """
        :param distance: How far apart the members of a group are.
        :return: Whether to cut it: enough groups have been seen, enough of them had zero variance, and this one is not
            further apart than the threshold.
        """
        armed = len(self) >= self.least_groups and self.zero_variance >= self.arm_at
        return armed and self.threshold is not None and distance <= self.threshold

    @property
    def zero_variance(self) -> float:
        """Share of the groups with zero variance, 0 before any is known."""
        total = sum(outcome.weight for outcome in self._outcomes)
        return sum(outcome.weight for outcome in self._outcomes if outcome.zero_variance) / total if total else 0.0

    @property
    def median_distance(self) -> float:
        """Median distance of the groups whose members could be compared, NaN without any."""
        distances = [outcome.distance for outcome in self._outcomes if np.isfinite(outcome.distance)]
        return float(np.median(distances)) if distances else np.nan
