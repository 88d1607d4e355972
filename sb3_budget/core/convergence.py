"""How far apart the members of a group are."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


def edit_distance(actions: ArrayLike) -> float:
    """
    Mean Levenshtein distance over all pairs of members, in shares of the length (Zhai & Wang, 2026,
    https://arxiv.org/abs/2605.05802): 0 where all did the same, 1 where no two have anything in common.

    :param actions: Discrete actions of the members, shape (n_members, n_steps) or (n_members, n_steps, n_dims). Actions
        with several parts are equal if all parts are.
    :return: The distance, in ``[0, 1]``; NaN for fewer than two members or no steps.
    """
    given = np.asarray(actions)
    n_members, n_steps = given.shape[:2]
    if n_members < 2 or not n_steps:
        return np.nan
    _, symbols = np.unique(given.reshape(n_members * n_steps, -1), axis=0, return_inverse=True)
    symbols = symbols.reshape(n_members, n_steps)
    first, second = np.triu_indices(n_members, 1)
    places = np.arange(n_steps + 1)
    # One row of the table of prefixes for all pairs at once.
    row = np.broadcast_to(places, (len(first), n_steps + 1))
    for step in range(n_steps):
        replaced = row[:, :-1] + (symbols[first, step, None] != symbols[second])
        reached = np.concatenate([np.full((len(first), 1), step + 1), np.minimum(replaced, row[:, 1:] + 1)], axis=1)
        # Insertions go along the row, each for 1: the least of all earlier places plus the way from there.
        row = np.minimum.accumulate(reached - places, axis=1) + places
    return float(row[:, -1].mean() / n_steps)


def gaussian_distance(actions: ArrayLike, stds: ArrayLike) -> float:
    """
    Mean squared distance of the members' actions beyond what the policy's noise alone makes of it:

    .. math:: \\overline{\\frac{(x - y)^2}{\\sigma_x^2 + \\sigma_y^2}} - 1

    over all pairs, steps and dimensions. Two independent draws from one Gaussian have
    :math:`E(x - y)^2 = 2 \\sigma^2`, so that the expectation is 0 for members that follow the same distribution, and else
    the mean of :math:`(\\mu_x - \\mu_y)^2 / (\\sigma_x^2 + \\sigma_y^2)`. The square is taken, and not the absolute value with
    its floor :math:`2 \\sigma / \\sqrt{\\pi}`, since only there the noise adds up and can be taken off.

    :param actions: Actions of the members before clipping, shape (n_members, n_steps, n_dims).
    :param stds: The policy's standard deviation at these steps, positive, same shape.
    :return: The distance, not below -1, and below 0 only by chance; NaN for fewer than two members or no steps.
    """
    taken, std = np.asarray(actions, dtype=np.float64), np.asarray(stds, dtype=np.float64)
    if taken.shape != std.shape:
        raise ValueError(f"actions have the shape {taken.shape}, their standard deviations {std.shape}")
    if not (std > 0.0).all():
        raise ValueError("Standard deviations must be positive: a policy without noise has no floor to measure from")
    if len(taken) < 2 or not taken.size:
        return np.nan
    first, second = np.triu_indices(len(taken), 1)
    return float(((taken[first] - taken[second]) ** 2 / (std[first] ** 2 + std[second] ** 2)).mean() - 1.0)


def return_spread(scores: ArrayLike, scale: float) -> float:
    """
    Spread of the members' estimated returns :math:`R_{0:L} + \\gamma^L V(s_L)`, for dense rewards.

    :param scores: Estimated returns of the members, shape (n_members,).
    :param scale: Standard deviation of estimated returns in general, not negative.
    :return: Standard deviation of the members' relative to the scale; 0 where all are equal, infinite where they differ
        and the scale is 0, NaN for fewer than two members.
    """
    checked = np.asarray(scores, dtype=np.float64)
    if len(checked) < 2:
        return np.nan
    if np.ptp(checked) == 0.0:
        return 0.0
    return float(checked.std() / scale) if scale > 0.0 else np.inf
