"""How steadily a measure of success grows over the evaluations of a training."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def fluctuation(history: ArrayLike, window: int, first: int = 0) -> float:
    """
    :param history: one value per evaluation, shape (n,) with n >= 1
    :param window: number of evaluations of the moving mean, centred
    :param first: the first evaluation that counts; earlier ones are in the moving mean only
    :return: standard deviation of the values around their moving mean, in units of the values
    """
    values = _history(history)
    if window < 1:
        raise ValueError(f"window must be at least 1 evaluation, got {window}")
    if not 0 <= first < values.size:
        raise ValueError(f"first must lie in [0, {values.size}), got {first}")
    kernel = np.ones(min(window, values.size))
    trend = np.convolve(values, kernel, "same") / np.convolve(np.ones_like(values), kernel, "same")
    return float((values - trend)[first:].std())


def forgetting_events(history: ArrayLike, tolerance: float) -> int:
    """
    :param history: one value per evaluation, shape (n,) with n >= 1
    :param tolerance: how far below its best so far a value may lie, in units of the values
    :return: how often the values have fallen further than that, each fall counted once however long it lasts
    """
    values = _history(history)
    if not tolerance >= 0.0:
        raise ValueError(f"tolerance must not be negative, got {tolerance}")
    dropped = np.maximum.accumulate(values) - values > tolerance
    return int((dropped[1:] & ~dropped[:-1]).sum())


def _history(history: ArrayLike) -> NDArray[np.float64]:
    values = np.asarray(history, dtype=np.float64)
    if values.ndim != 1 or values.size == 0:
        raise ValueError(f"a history must have the shape (n,) with at least one value, got {values.shape}")
    return values
