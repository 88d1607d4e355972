"""Which signals earn their keep: a bandit that picks one, and multipliers by what the steps spent on each have returned."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sb3_budget.core.starts import draw_weighted


class Exp3:
    """
    The bandit Exp3 over signals (Auer et al., 2002, https://doi.org/10.1137/S0097539701398375). It assumes nothing about how
    rewards come about, which suits a policy that changes while it is measured.

    :param names: the signals
    :param exploration: share of the draws that is even, in ``(0, 1]``: the paper's ``gamma``
    :param seed: of the draws
    :raises ValueError: if an argument is out of range
    """

    def __init__(self, names: Sequence[str], exploration: float = 0.1, seed: int | None = None):
        if not names or len(set(names)) < len(names):
            raise ValueError(f"names must be different, and at least one, got {list(names)}")
        if not 0.0 < exploration <= 1.0:
            raise ValueError(f"exploration={exploration} must lie in (0, 1]")
        self.names, self.exploration = tuple(names), exploration
        self.log_weights = np.zeros(len(names))  # logarithms, since the weights themselves overflow
        self._rng = np.random.default_rng(seed)

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """Of drawing each signal: ``(1 - gamma) w / sum(w) + gamma / K``."""
        weights = np.exp(self.log_weights - self.log_weights.max())
        return (1.0 - self.exploration) * weights / weights.sum() + self.exploration / len(weights)

    def draw(self) -> str:
        """
        :return: the signal to follow next
        """
        return self.names[draw_weighted(self.probabilities, self._rng)]

    def update(self, name: str, reward: float) -> None:
        """
        :param name: the signal that was drawn, since the latest update
        :param reward: what it brought, in ``[0, 1]``
        """
        if not 0.0 <= reward <= 1.0:
            raise ValueError(f"reward={reward} must lie in [0, 1]: scale it first")
        arm = self.names.index(name)
        self.log_weights[arm] += self.exploration * reward / (self.probabilities[arm] * len(self.names))


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
        self.rate, self.least, self.most = rate, least, most
        self.roi = np.full(n, np.nan)
        self._returns = np.full(n, np.nan)
        self._variances = np.full(n, np.nan)

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
