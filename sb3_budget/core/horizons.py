"""
How long episodes should run under a fixed budget of steps, decided by the discount factor alone.

A discounted return estimated from truncated episodes, n_t of which reach step t, has a confidence interval whose squared
width is proportional to ``sum_t c_t / n_t``. At a fixed ``sum_t n_t`` the width is least for ``n_t`` proportional to
``sqrt(c_t)``. See Poiani, Metelli and Restelli, "Truncating Trajectories in Monte Carlo Reinforcement Learning",
ICML 2023, https://arxiv.org/abs/2305.04361
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def discount_coefficients(gamma: float, horizon: int) -> NDArray[np.float64]:
    """
    What one more episode at step t is worth to the estimate,
    ``c_t = gamma^t (gamma^t + gamma^(t+1) - 2 gamma^horizon) / (1 - gamma)``, and its limit ``2 (horizon - t) - 1``
    for ``gamma = 1``.

    :param gamma: discount factor in ``(0, 1]``
    :param horizon: longest possible episode, in steps
    :return: coefficients, non-increasing, shape (horizon,)
    """
    if not 0.0 < gamma <= 1.0:
        raise ValueError(f"gamma must be in (0, 1], got {gamma}")
    if horizon < 1:
        raise ValueError(f"horizon must be at least 1, got {horizon}")
    # The same as gamma^(2t) (2 (1 - gamma^(horizon - t)) / (1 - gamma) - 1), with the fraction as the sum it comes from,
    # which neither cancels nor divides by zero as gamma nears 1.
    powers = np.power(gamma, np.arange(horizon))
    remaining = np.cumsum(powers)[::-1]
    return np.square(powers) * (2.0 * remaining - 1.0)


def discount_survival(gamma: float, horizon: int) -> NDArray[np.float64]:
    """
    Best share of the episodes that should run past step t, ``sqrt(c_t / c_0)``.

    :param gamma: discount factor in ``(0, 1]``
    :param horizon: longest possible episode, in steps
    :return: ``P(length > t)``, 1 at t = 0, non-increasing, positive (up to underflow), shape (horizon,)
    """
    coefficients = discount_coefficients(gamma, horizon)
    survival: NDArray[np.float64] = np.sqrt(coefficients / coefficients[0])
    return survival


def draw_lengths(survival: ArrayLike, n: int, rng: np.random.Generator, full_fraction: float = 0.1) -> NDArray[np.int64]:
    """
    Draw episode lengths, most of them from a survival function, the others full.

    :param survival: ``P(length > t)``, 1 at t = 0 and non-increasing, shape (horizon,)
    :param n: number of lengths
    :param rng: source of randomness
    :param full_fraction: probability, for each length, of being the full horizon
    :return: lengths in ``[1, horizon]``, shape (n,)
    """
    checked = _require_survival(survival)
    if n < 0:
        raise ValueError(f"n must not be negative, got {n}")
    if not 0.0 <= full_fraction <= 1.0:
        raise ValueError(f"full_fraction must be in [0, 1], got {full_fraction}")
    full = rng.random(n) < full_fraction
    # The number of steps whose survival exceeds a uniform draw from [0, 1).
    lengths = np.searchsorted(-checked, -rng.random(n), side="left")
    return np.where(full, checked.size, lengths).astype(np.int64)


def mean_length(survival: ArrayLike) -> float:
    """
    Mean episode length under a survival function.

    :param survival: ``P(length > t)``, 1 at t = 0 and non-increasing, shape (horizon,)
    :return: mean length in steps
    """
    return float(_require_survival(survival).sum())


def interval_ratio(gamma: float, horizon: int) -> float:
    """
    Width of the confidence interval of the discounted return under the best lengths, relative to full episodes at the
    same number of steps: ``sum_t sqrt(c_t) / sqrt(horizon * sum_t c_t)``.

    :param gamma: discount factor in ``(0, 1]``
    :param horizon: longest possible episode, in steps
    :return: ratio in ``(0, 1]``
    """
    coefficients = discount_coefficients(gamma, horizon)
    return float(np.sqrt(coefficients).sum() / np.sqrt(horizon * coefficients.sum()))


def _require_survival(survival: ArrayLike) -> NDArray[np.float64]:
    checked = np.asarray(survival, dtype=np.float64)
    if checked.ndim != 1 or checked.size == 0:
        raise ValueError(f"survival must have the shape (horizon,) with at least one step, got {checked.shape}")
    if checked[0] != 1.0:
        raise ValueError(f"survival must begin at 1, since no episode has length 0, got {checked[0]}")
    if not (np.all(np.diff(checked) <= 0.0) and checked[-1] >= 0.0):
        raise ValueError(
            f"survival must not increase nor fall below 0, got a largest increase of {np.max(np.diff(checked), initial=0.0)} "
            f"and an end of {checked[-1]}"
        )
    return checked
