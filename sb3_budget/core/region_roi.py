"""Regions of the state space, and what the steps spent on each have brought."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sb3_budget.core.anchors import Anchors
from sb3_budget.core.k_means import lloyd, nearest

#: Regions are found anew when the archive has grown by so much.
GROWTH = 2


class RoiTracker:
    """
    Return on investment of signals, or of regions of the state space: per period and step spent, how much the return gained
    and how much the variance of the critic fell. Little of it means fewer steps in the next period.

    Both parts are measured in their mean size over all regions in the period, so that neither units nor the pace of training
    count. Steps are measured in their mean too.

    :param n: number of regions
    :param rate: weight of a new period in the moving average, in ``(0, 1]``
    :param least: smallest multiplier, in ``(0, 1]``
    :param most: largest multiplier, at least 1
    :raises ValueError: if an argument is out of range
    """

    def __init__(self, n: int, rate: float = 0.3, least: float = 0.5, most: float = 2.0):
        if not 0.0 < rate <= 1.0:
            raise ValueError(f"rate={rate} must lie in (0, 1]")
        if not 0.0 < least <= 1.0 <= most:
            raise ValueError(f"least={least} and most={most} must enclose 1, the neutral multiplier, and be positive")
        self.n, self.rate, self.least, self.most = n, rate, least, most
        self.forget()

    def forget(self) -> None:
        """Begin anew, since the regions are others now."""
        self.roi, self._returns, self._variances = np.full((3, self.n), np.nan)

    def update(self, steps: ArrayLike, returns: ArrayLike, variances: ArrayLike) -> None:
        """
        One period. A region without steps, or without a return to compare with, keeps its average; one without variances
        (NaN, as without an ensemble of critics) goes by its return alone.

        :param steps: steps spent on each region, shape (n,)
        :param returns: mean return measured there, NaN where none was, shape (n,)
        :param variances: mean variance of the critic there, NaN where none was, shape (n,)
        """
        spent, value, variance = (np.asarray(given, dtype=np.float64) for given in (steps, returns, variances))
        if not spent.shape == value.shape == variance.shape == self.roi.shape:
            raise ValueError(f"steps, returns and variances must have the shape {self.roi.shape} of the regions")
        gains, falls = value - self._returns, self._variances - variance
        self._returns = np.where(np.isnan(value), self._returns, value)
        self._variances = np.where(np.isnan(variance), self._variances, variance)
        measured = (spent > 0.0) & ~np.isnan(gains)
        if not measured.any():
            return
        known_falls = np.where(np.isnan(falls), 0.0, falls)
        earned = _in_mean_size(gains[measured]) + _in_mean_size(known_falls[measured])
        latest = earned * spent[measured].mean() / spent[measured]
        before = self.roi[measured]
        self.roi[measured] = np.where(np.isnan(before), latest, before + self.rate * (latest - before))

    @property
    def multipliers(self) -> NDArray[np.float64]:
        """
        Factors of the regions' weights: ``exp(roi - mean roi)`` within the bounds, shape (n,). 1 where nothing is known, and
        everywhere if all earn the same.
        """
        known = ~np.isnan(self.roi)
        apart = np.where(known, self.roi - (self.roi[known].mean() if known.any() else 0.0), 0.0)
        return np.exp(np.clip(apart, np.log(self.least), np.log(self.most)))


def _in_mean_size(changes: NDArray[np.float64]) -> NDArray[np.float64]:
    size = np.abs(changes).mean()
    return changes / size if size > 0.0 else changes


class RegionRoi:
    """
    Sends more episodes to the regions of the state space where steps bring more.

    What a period has brought is measured for each region: how much the mean return of the episodes that began there has
    gained over the period before, and how much the critic's mean squared error fell in the states there, both per step of
    those episodes. The chance of an archived state to be begun in is multiplied by ``exp(roi - mean roi)`` of its region,
    within ``least`` and ``most``, where ``roi`` is a moving average of that; see :class:`RoiTracker`.

    By default regions are clusters of the archived observations (k-means, each dimension in its standard deviation). They are
    found anew, and averages begin anew, whenever the archive has doubled since.

    It is the argument ``roi`` of :class:`~sb3_budget.BudgetAllocatorCallback`.

    :param n_regions: Number of regions, at least 2.
    :param regions: A function of :class:`~sb3_budget.Anchors` that returns the region of each, from 0 to ``n_regions - 1``;
        needed where observations have parts.
    :param period: Length of a period [steps].
    :param rate: Weight of the latest period in the moving average, in ``(0, 1]``.
    :param least: Smallest multiplier, in ``(0, 1]``.
    :param most: Largest multiplier, at least 1.
    :raises ValueError: if an argument is out of range.
    """

    def __init__(
        self,
        n_regions: int = 8,
        regions: Callable[[Anchors], ArrayLike] | None = None,
        period: int = 4096,
        rate: float = 0.3,
        least: float = 0.5,
        most: float = 2.0,
    ):
        if n_regions < 2:
            raise ValueError(f"n_regions={n_regions} must be at least 2, or there is nothing to choose")
        if period < 1:
            raise ValueError(f"period={period} must be at least 1 step")
        self.n_regions, self.regions, self.period = n_regions, regions, period
        #: What each region has brought so far.
        self.tracker = RoiTracker(n_regions, rate, least, most)
        self._clusters = _Clusters(n_regions)
        self._region_of: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._forget()

    def __call__(self, anchors: Anchors) -> NDArray[np.float64]:
        """
        :param anchors: What is known of the archived states.
        :return: Multiplier of each one's chance, shape (n,).
        :raises ValueError: if ``regions`` does not return a region for each.
        """
        if self.regions is None:
            self._region_of, new = self._clusters(anchors)
            if new:
                self.tracker.forget()
                self._forget()
        else:
            given = np.asarray(self.regions(anchors))
            n = len(anchors.visits)
            if given.shape != (n,) or given.dtype.kind not in "iu" or not ((given >= 0) & (given < self.n_regions)).all():
                raise ValueError(
                    f"regions must return a whole number from 0 to {self.n_regions - 1} for each of {n} anchors, got "
                    f"{given.dtype} of shape {given.shape}"
                )
            self._region_of = given.astype(np.int64)
        return self.tracker.multipliers[self._region_of]

    def record(
        self,
        n_steps: int,
        began: NDArray[np.int64],
        lengths: NDArray[np.int64],
        returns: NDArray[np.float64],
        visited: NDArray[np.int64],
        errors: NDArray[np.float64],
    ) -> None:
        """
        Add a rollout to the period, and end the period once it is long enough.

        :param n_steps: Steps taken.
        :param began: Archived states in which episodes began that have ended, -1 for none, shape (n,).
        :param lengths: Steps of these episodes, shape (n,).
        :param returns: Their returns, shape (n,).
        :param visited: Archived states in whose cells steps were taken, -1 for none, shape (m,).
        :param errors: The critic's squared errors there, shape (m,).
        """
        self._steps += n_steps
        regions, known = self._of(began)
        np.add.at(self._spent, regions, lengths[known])
        np.add.at(self._episodes, regions, 1)
        np.add.at(self._returns, regions, returns[known])
        regions, known = self._of(visited)
        np.add.at(self._visits, regions, 1)
        np.add.at(self._errors, regions, errors[known])
        if self._steps < self.period:
            return
        with np.errstate(invalid="ignore"):
            # 0 / 0 is NaN: not measured.
            self.tracker.update(self._spent, self._returns / self._episodes, self._errors / self._visits)
        self._forget()

    def _of(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        known = (rows >= 0) & (rows < len(self._region_of))
        return self._region_of[rows[known]], known

    def _forget(self) -> None:
        self._steps = 0
        self._spent, self._episodes, self._returns, self._visits, self._errors = np.zeros((5, self.n_regions))


class _Clusters:
    """
    Clusters of archived observations.

    :param n: Their number.
    """

    def __init__(self, n: int):
        self.n = n
        self._n_seen = 0
        self._scale: NDArray[np.float64] = np.zeros(0)
        self._centres: NDArray[np.float64] = np.zeros(0)

    def __call__(self, anchors: Anchors) -> tuple[NDArray[np.int64], bool]:
        """
        :param anchors: What is known of the archived states.
        :return: The cluster of each, shape (n,), and whether clusters are new.
        """
        points = _vectors(anchors)
        new = len(points) >= GROWTH * self._n_seen
        if new:
            spread = points.std(axis=0)
            self._scale = np.where(spread > 0.0, spread, 1.0)
            # Always the same generator: clusters depend on the archive alone.
            self._centres = lloyd(points / self._scale, self.n, np.random.default_rng(0))
            self._n_seen = len(points)
        return nearest(points / self._scale, self._centres), new


def _vectors(anchors: Anchors) -> NDArray[np.float64]:
    first = anchors.observations[0]
    if isinstance(first, (dict, tuple)):
        raise ValueError("RegionRoi cannot cluster observations that have parts: give it regions, a function of Anchors")
    return np.stack([np.asarray(each, dtype=np.float64).ravel() for each in anchors.observations])
