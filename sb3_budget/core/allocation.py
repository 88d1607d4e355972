"""
How a budget is divided among anchors, the states that episodes can begin in: from scores to probabilities or integer shares.

A score that is NaN belongs to an anchor that has not been seen. Every rule treats it like the best one that has.
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sb3_budget.core.starts import rank_weights

# ---------------------------------------------------------------------- probabilities


def uniform(scores: ArrayLike) -> NDArray[np.float64]:
    """
    :param scores: priorities, shape (n,); only their number counts
    :return: equal probabilities, shape (n,)
    """
    n = len(_require_scores(scores))
    return np.full(n, 1.0 / n)


def proportional(scores: ArrayLike) -> NDArray[np.float64]:
    """
    :param scores: priorities, not negative, shape (n,)
    :return: probabilities in proportion to the scores, shape (n,); equal ones if all scores are 0
    """
    optimistic = _optimistic(scores)
    if (optimistic < 0.0).any():
        raise ValueError(f"scores must not be negative to be proportional, got {optimistic.min()}: use rank or softmax")
    if not optimistic.any():
        return uniform(optimistic)
    scaled = optimistic / optimistic.max()
    return scaled / scaled.sum()


def softmax(scores: ArrayLike, temperature: float = 1.0) -> NDArray[np.float64]:
    """
    :param scores: priorities, shape (n,)
    :param temperature: positive, in units of the scores; near 0 only the largest score counts, large ones are even
    :return: probabilities in proportion to ``exp(score / temperature)``, shape (n,)
    """
    _require_temperature(temperature)
    optimistic = _optimistic(scores)
    with np.errstate(over="ignore"):  # far below the largest score: probability 0
        weights = np.exp((optimistic - optimistic.max()) / temperature)
    return weights / weights.sum()


def rank(scores: ArrayLike, temperature: float = 1.0) -> NDArray[np.float64]:
    """
    :func:`~sb3_budget.core.starts.rank_weights` in which anchors that have not been seen share the top ranks.

    :param scores: priorities of any units, shape (n,)
    :param temperature: positive; near 0 only the largest score counts, large ones are even
    :return: probabilities in proportion to ``(1 / rank) ** (1 / temperature)``, shape (n,)
    """
    _require_temperature(temperature)
    checked = _require_scores(scores)
    return rank_weights(np.where(np.isnan(checked), np.inf, checked), temperature)


def with_floor(probabilities: ArrayLike, floor: float) -> NDArray[np.float64]:
    """
    :param probabilities: sum to 1, shape (n,)
    :param floor: share of the budget that is divided evenly, in ``[0, 1]``
    :return: ``(1 - floor) * probabilities + floor / n``, shape (n,)
    """
    if not 0.0 <= floor <= 1.0:
        raise ValueError(f"floor must be in [0, 1], got {floor}")
    checked = np.asarray(probabilities, dtype=np.float64)
    return (1.0 - floor) * checked + floor / len(checked)


# ---------------------------------------------------------------------- integer shares


def shares(probabilities: ArrayLike, budget: int, least: int = 0, most: int | None = None) -> NDArray[np.int64]:
    """
    Integer shares nearest to ``clip(c * probabilities, least, most)``, with ``c`` such that these sum to the budget, by
    largest remainders. An anchor with a larger probability never has a smaller share; among equal ones the first come first.
    Anchors with probability 0 get more than ``least`` only when all others have ``most``.

    :param probabilities: not negative, in any scale, shape (n,); equal if all are 0
    :param budget: what the shares sum to
    :param least: smallest share
    :param most: largest share; the budget by default
    :return: shares, shape (n,)
    """
    checked = _require_scores(probabilities)
    if not (np.isfinite(checked).all() and (checked >= 0.0).all()):
        raise ValueError(f"probabilities must be finite and not negative, got {checked.tolist()}")
    n, most = len(checked), budget if most is None else most
    if not (0 <= least <= most and n * least <= budget <= n * most):
        raise ValueError(f"budget={budget} cannot be divided among {n} anchors with shares of {least} to {most} each")
    ideal = _ideal_shares(checked, budget, least, most)
    low = np.floor(ideal + 1e-9).astype(np.int64)  # whole numbers are not whole in floating point
    left = budget - int(low.sum())
    remainders = np.where(low < most, ideal - low, -np.inf)
    low[np.argsort(-remainders, kind="stable")[:left]] += 1
    return low


def _ideal_shares(weights: NDArray[np.float64], budget: int, least: int, most: int) -> NDArray[np.float64]:
    """The shares before rounding. Their sum is piecewise linear in ``c``, with corners where an anchor meets a bound."""
    scaled = weights / weights.max() if weights.any() else np.ones_like(weights)
    positive = scaled[scaled > 0.0]
    with np.errstate(over="ignore"):
        corners = np.concatenate([[0.0], least / positive, most / positive])
    corners = np.unique(corners[np.isfinite(corners)])

    def clipped(c: float) -> NDArray[np.float64]:
        return np.clip(c * scaled, least, most)

    place = bisect_left(corners.tolist(), float(budget), key=lambda c: float(clipped(c).sum()))
    if place == 0:
        return clipped(0.0)
    below = clipped(corners[place - 1])
    above = clipped(corners[place]) if place < len(corners) else np.full_like(scaled, most)
    rise = above.sum() - below.sum()
    return below if rise == 0.0 else below + (above - below) * ((budget - below.sum()) / rise)


def knapsack(values: ArrayLike, costs: ArrayLike, budget: int, spend_all: bool = False) -> NDArray[np.int64]:
    """
    One option per item, such that the sum of the values is largest within the budget, exactly, by dynamic programming in
    ``O(n_items * n_options * budget)``. Taking or leaving an item is two options, the second of cost and value 0.

    :param values: value of each option, shape (n_items, n_options); ``-inf`` for one that may not be taken
    :param costs: its cost, whole numbers that are not negative, same shape or (n_options,)
    :param budget: largest sum of the costs
    :param spend_all: whether the costs must sum to the budget. Otherwise, of choices with equal values, the one that spends
        more is taken.
    :return: option of each item, shape (n_items,)
    """
    value = np.asarray(values, dtype=np.float64)
    if value.ndim != 2 or np.isnan(value).any():
        raise ValueError(f"values must have the shape (n_items, n_options) without NaN, got {value.shape}")
    given = np.asarray(costs)
    if not (np.issubdtype(given.dtype, np.integer) and (given >= 0).all()):
        raise ValueError(f"costs must be whole numbers that are not negative, got {given.dtype} {given.tolist()}")
    cost = np.broadcast_to(given, value.shape)
    spent = np.arange(budget + 1)
    # best[c] is the largest value of the items so far at a cost of exactly c.
    best = np.where(spent == 0, 0.0, -np.inf)
    chosen = np.zeros((len(value), budget + 1), dtype=np.int64)
    for item in range(len(value)):
        before = spent[:, None] - cost[item]
        reached = np.where(before >= 0, best[np.maximum(before, 0)] + value[item], -np.inf)
        chosen[item] = reached.argmax(axis=1)
        best = reached.max(axis=1)
    left = budget if spend_all else budget - int(best[::-1].argmax())
    if best[left] == -np.inf:
        raise ValueError(f"No choice of one option per item costs {'exactly' if spend_all else 'at most'} budget={budget}")
    choice = np.zeros(len(value), dtype=np.int64)
    for item in reversed(range(len(value))):
        choice[item] = chosen[item, left]
        left -= int(cost[item, choice[item]])
    return choice


# ---------------------------------------------------------------------- what the shares do to the objective


def anchor_weights(anchors: ArrayLike, base: ArrayLike) -> NDArray[np.float64]:
    """
    Weights of episodes under which each anchor counts as often as under the base distribution, however many episodes began
    there: proportional to ``base(anchor) / n(anchor)``. Dividing a budget changes where episodes begin, and not how likely an
    action is, so that no ratio of action probabilities corrects it; averaging over each anchor first does.

    The weighted mean over the episodes keeps the expectation of the base distribution if every anchor that has a positive
    base probability began an episode; otherwise it is that of the base distribution among those that did.

    :param anchors: anchor that each episode began in, shape (m,)
    :param base: probability of each anchor under the base distribution, in any scale, shape (n,)
    :return: weights of the episodes with mean 1, shape (m,)
    """
    began, probability = np.asarray(anchors, dtype=np.int64), np.asarray(base, dtype=np.float64)
    if not ((probability >= 0.0).all() and probability[began].any()):
        raise ValueError("base must not be negative, and positive for an anchor that began an episode: none of these counts")
    weights = probability[began] / np.bincount(began, minlength=len(probability))[began]
    return weights / weights.mean()


def _require_scores(scores: ArrayLike) -> NDArray[np.float64]:
    checked = np.asarray(scores, dtype=np.float64)
    if checked.ndim != 1 or checked.size == 0:
        raise ValueError(f"scores must have the shape (n,) with at least one anchor, got {checked.shape}")
    return checked


def _require_temperature(temperature: float) -> None:
    if not temperature > 0.0:
        raise ValueError(f"temperature must be positive, got {temperature}")


def _optimistic(scores: ArrayLike) -> NDArray[np.float64]:
    """The scores, with the largest of them for anchors that have not been seen; 0 for all if none has been."""
    checked = _require_scores(scores)
    seen = ~np.isnan(checked)
    if not np.isfinite(checked[seen]).all():
        raise ValueError("scores must be finite, or NaN for anchors that have not been seen")
    return np.where(seen, checked, checked[seen].max() if seen.any() else 0.0)
