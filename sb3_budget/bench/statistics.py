"""Statistics of learning curves over seeds: functions on arrays, one row per seed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

N_RESAMPLES = 2000


class Interval(NamedTuple):
    """
    :param iqm: interquartile mean
    :param ci: 95 % bootstrap interval over seeds
    """

    iqm: float
    ci: tuple[float, float]


def iqm(values: np.ndarray) -> np.ndarray:
    """
    Interquartile mean: the mean without the lowest and the highest quarter (rounded down), as in
    `Agarwal et al. (2021) <https://arxiv.org/abs/2108.13264>`_. With three values or fewer it is the mean.

    :param values: one row per seed (n_seeds, ...)
    :return: the mean over the first axis (...)
    """
    n_seeds = len(values)
    cut = n_seeds // 4
    return np.sort(values, axis=0)[cut : n_seeds - cut].mean(axis=0)


def resamples(n_seeds: int, seed: int = 0) -> np.ndarray:
    """
    :param n_seeds: number of seeds
    :param seed: seed of the bootstrap
    :return: row numbers drawn with replacement (n_resamples, n_seeds)
    """
    return np.random.default_rng(seed).integers(n_seeds, size=(N_RESAMPLES, n_seeds))


def bootstrap_iqms(values: np.ndarray, seed: int = 0) -> np.ndarray:
    """
    :param values: one row per seed (n_seeds, ...)
    :param seed: seed of the bootstrap
    :return: interquartile means of the resampled seeds (n_resamples, ...)
    """
    return iqm(np.moveaxis(values[resamples(len(values), seed)], 1, 0))


def band(values: np.ndarray, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """
    :param values: one row per seed (n_seeds, ...)
    :param seed: seed of the bootstrap
    :return: lower and upper end of the 95 % interval of the interquartile mean (percentile bootstrap)
    """
    low, high = np.percentile(bootstrap_iqms(values, seed), [2.5, 97.5], axis=0)
    return low, high


def interval(values: np.ndarray, seed: int = 0) -> Interval:
    """
    :param values: one number per seed (n_seeds,)
    :param seed: seed of the bootstrap
    :return: interquartile mean with its interval
    """
    low, high = band(values, seed)
    return Interval(float(iqm(values)), (float(low), float(high)))


def nearest_band(values: np.ndarray, seed: int = 0) -> tuple[float, float]:
    """
    :func:`band` for values of which some may be infinite, as for what was never reached: its ends are resampled means.

    :param values: one number per seed (n_seeds,)
    :param seed: seed of the bootstrap
    :return: lower and upper end
    """
    low, high = np.percentile(bootstrap_iqms(values, seed), [2.5, 97.5], method="nearest")
    return float(low), float(high)


def area(steps: np.ndarray, returns: np.ndarray) -> np.ndarray:
    """
    Mean height of curves, by the trapezoidal rule.

    :param steps: increasing (n_points,)
    :param returns: (..., n_points)
    :return: (...)
    """
    if steps[-1] == steps[0]:
        return returns[..., -1]
    heights = (returns[..., 1:] + returns[..., :-1]) / 2
    return (heights * np.diff(steps)).sum(axis=-1) / (steps[-1] - steps[0])


def first_reach(xs: np.ndarray, returns: np.ndarray, level: float) -> float:
    """
    Where a curve first reaches a level, by linear interpolation.

    :param xs: increasing (n_points,): steps or seconds
    :param returns: (n_points,)
    :param level: the level
    :return: that x, infinite if the curve never gets there
    """
    reached = np.flatnonzero(returns >= level)
    if not len(reached):
        return float("inf")
    after = reached[0]
    if after == 0:
        return float(xs[0])
    share = (level - returns[after - 1]) / (returns[after] - returns[after - 1])
    return float(xs[after - 1] + share * (xs[after] - xs[after - 1]))


def reach_interval(xs: np.ndarray, returns: np.ndarray, level: float | np.ndarray, seed: int = 0) -> tuple[float, float]:
    """
    95 % bootstrap interval of :func:`first_reach` of the interquartile mean curve.

    :param xs: increasing (n_points,)
    :param returns: one curve per seed (n_seeds, n_points)
    :param level: the level, or one level per resample (n_resamples,) where the level itself was measured
    :param seed: seed of the bootstrap
    :return: its ends, infinite where the resampled curve never gets there
    """
    curves = bootstrap_iqms(returns, seed)
    levels = np.broadcast_to(level, len(curves))
    reached = np.array([first_reach(xs, curve, float(goal)) for curve, goal in zip(curves, levels, strict=True)])
    low, high = np.percentile(reached, [2.5, 97.5], method="nearest")
    return float(low), float(high)
