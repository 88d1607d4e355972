"""
How a budget is divided so that groups are mixed: a group whose members all succeed, or all fail, teaches nothing to an
advantage that is relative to the group. Zou et al. (2026, https://arxiv.org/abs/2606.11119) divide by this contrast among
roots first and then among prefixes of their trajectories; the formulas here are exact for members that succeed independently.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sb3_budget.core.allocation import knapsack


class TreeShares(NamedTuple):
    """
    :param roots: episodes from each root, shape (n_roots,)
    :param prefixes: for each root, continuations from each of its prefixes, shape (n_prefixes,)
    """

    roots: NDArray[np.int64]
    prefixes: list[NDArray[np.int64]]


def contrast(success: ArrayLike) -> NDArray[np.float64]:
    """
    As a score it asks for anchors near 1/2. Shares in proportion to its root make the summed variance of the groups' mean
    outcomes least (Neyman, 1934), which is another aim than mixed groups: it gives rare outcomes fewer members, not more.

    :param success: success probabilities ``p``, any shape
    :return: ``p (1 - p)``, the variance of an outcome, largest at 1/2; NaN stays NaN
    """
    p = np.asarray(success, dtype=np.float64)
    return p * (1.0 - p)


def mixed_probability(success: ArrayLike, n: ArrayLike) -> NDArray[np.float64]:
    """
    :param success: success probabilities ``p``, any shape
    :param n: members of a group, not negative, of a shape that broadcasts
    :return: ``1 - p^n - (1 - p)^n``, the probability that some members succeed and some fail; 0 for fewer than 2 members
    """
    p, size = _require_success(success), np.asarray(n)
    rare = np.minimum(p, 1.0 - p)
    # 1 - (1 - p)^n without the cancellation for rare outcomes.
    mixed = -np.expm1(size * np.log1p(-rare)) - rare**size
    return np.where(size >= 2, np.maximum(mixed, 0.0), 0.0)


def exploration_value(success: ArrayLike, n: ArrayLike) -> NDArray[np.float64]:
    """
    Value of a group in Knapsack RL (Li et al., 2025, https://arxiv.org/abs/2509.25849): the probability that it is mixed
    times ``p (1 - p)^2``, what a step on it raises ``p``. It is largest for ``p = 1/3``, rather than at 1/2.

    :param success: success probabilities ``p``, any shape
    :param n: members of a group, of a shape that broadcasts
    :return: ``(1 - p^n - (1 - p)^n) p (1 - p)^2``
    """
    p = _require_success(success)
    return mixed_probability(p, n) * p * (1.0 - p) ** 2


def greedy_contrast(success: ArrayLike, budget: int, least: int = 2, most: int | None = None) -> NDArray[np.int64]:
    """
    Integer shares with the largest expected number of mixed groups.

    One more member is worth ``p (1 - p) (p^(n-1) + (1 - p)^(n-1))``, which falls with n, so that unit by unit is optimal among
    groups that exist. The first ``least`` members come at once, for a group of one is never mixed. For a given number of
    groups these are best at the anchors with the largest ``p (1 - p)``, and the total is concave in that number, which a
    binary search therefore finds.

    :param success: success probability of each anchor, shape (n,)
    :param budget: what the shares sum to
    :param least: smallest share besides 0, at least 2
    :param most: largest share; the budget by default
    :return: shares, each 0 or from ``least`` to ``most``, shape (n,)
    """
    p = _require_success(success)
    most = budget if most is None else most
    low, high = _group_numbers(len(p), budget, least, most)
    order = np.argsort(-contrast(p), kind="stable")
    ordered = p[order].tolist()

    def total(n_groups: int) -> float:
        return float(mixed_probability(ordered[:n_groups], _fill(ordered[:n_groups], budget, least, most)).sum())

    while low < high:
        middle = (low + high) // 2
        if total(middle + 1) > total(middle):
            low = middle + 1
        else:
            high = middle
    divided = np.zeros(len(p), dtype=np.int64)
    divided[order[:low]] = _fill(ordered[:low], budget, least, most)
    return divided


def knapsack_contrast(success: ArrayLike, budget: int, least: int = 2, most: int | None = None) -> NDArray[np.int64]:
    """
    Integer shares with the largest sum of :func:`exploration_value`, by an exact knapsack as in Knapsack RL.

    :param success: success probability of each anchor, shape (n,)
    :param budget: what the shares sum to
    :param least: smallest share besides 0, at least 2
    :param most: largest share; the budget by default
    :return: shares, each 0 or from ``least`` to ``most``, shape (n,)
    """
    p = _require_success(success)
    most = budget if most is None else min(most, budget)
    _group_numbers(len(p), budget, least, most)
    options = np.concatenate([[0], np.arange(least, most + 1)])
    return options[knapsack(exploration_value(p[:, None], options), options, budget, spend_all=True)]


def root_then_prefix(
    root_success: ArrayLike, prefix_success: Sequence[ArrayLike], budget: int, root_share: float, least: int = 2
) -> TreeShares:
    """
    Two stages under one budget: whole episodes from roots, then continuations from prefixes of the roots that got any, each by
    :func:`greedy_contrast`. What the second stage cannot use, for want of prefixes, goes to the first.

    :param root_success: success probability of each root, shape (n_roots,)
    :param prefix_success: for each root, those of the prefixes of its trajectories, shape (n_prefixes,), which may be 0
    :param budget: number of episodes and continuations, at least ``least``
    :param root_share: share of the budget of the first stage, in ``[0, 1]``; it gets ``least`` episodes at least
    :param least: smallest share besides 0, at least 2
    :return: shares that sum to the budget
    """
    if len(prefix_success) != np.size(root_success):
        raise ValueError(f"There are {np.size(root_success)} roots, but prefixes of {len(prefix_success)}")
    if not 0.0 <= root_share <= 1.0:
        raise ValueError(f"root_share must be in [0, 1], got {root_share}")
    prefixes = [np.asarray(success, dtype=np.float64) for success in prefix_success]
    first = min(max(round(root_share * budget), least), budget)
    roots = greedy_contrast(root_success, first, least)
    sizes = [success.size if n else 0 for success, n in zip(prefixes, roots, strict=True)]
    if budget - first < least or not any(sizes):
        return TreeShares(greedy_contrast(root_success, budget, least), [np.zeros(p.size, dtype=np.int64) for p in prefixes])
    open_prefixes = np.concatenate([success[:size] for success, size in zip(prefixes, sizes, strict=True)])
    parts = np.split(greedy_contrast(open_prefixes, budget - first, least), np.cumsum(sizes)[:-1])
    divided = [part if part.size else np.zeros(p.size, dtype=np.int64) for part, p in zip(parts, prefixes, strict=True)]
    return TreeShares(roots, divided)


def _fill(success: list[float], budget: int, least: int, most: int) -> list[int]:
    """Shares of groups that all exist, unit by unit to the one that gains most."""
    counts = [least] * len(success)

    def gain(i: int) -> float:
        p, n = success[i], counts[i]
        return p * (1.0 - p) * (p ** (n - 1) + (1.0 - p) ** (n - 1)) if n < most else -1.0

    heap = [(-gain(i), i) for i in range(len(success))]
    heapq.heapify(heap)
    for _ in range(budget - least * len(success)):
        i = heap[0][1]
        counts[i] += 1
        heapq.heapreplace(heap, (-gain(i), i))
    return counts


def _group_numbers(n_anchors: int, budget: int, least: int, most: int) -> tuple[int, int]:
    """The smallest and the largest number of groups that can share the budget."""
    if least < 2:
        raise ValueError(f"least={least} must be at least 2: a group of one is never mixed")
    fewest = -(-budget // max(most, 1))
    largest = min(n_anchors, budget // least)
    if budget < 0 or fewest > largest:
        raise ValueError(f"budget={budget} cannot be divided among {n_anchors} anchors in groups of {least} to {most} each")
    return fewest, largest


def _require_success(success: ArrayLike) -> NDArray[np.float64]:
    p = np.asarray(success, dtype=np.float64)
    if not ((p >= 0.0) & (p <= 1.0)).all():
        raise ValueError("success probabilities must lie in [0, 1]: give anchors that have not been seen a prior, such as 0.5")
    return p
