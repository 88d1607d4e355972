"""
Deterministic transitions as a graph: what the best known path from each of them is worth.

A path is made of transitions that are known to be deterministic, so that its rewards need no estimate. Only its end does:
the value of the first state that nothing is known of.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray


class Paths(NamedTuple):
    """
    The best known path from each of n transitions, which is its first step.

    :param rewards: Discounted sum of its rewards, shape (n,).
    :param discounts: Discount of the state at its end, shape (n,).
    :param last: Which transition is its last one, shape (n,).
    :param lengths: Number of its transitions, shape (n,).
    """

    rewards: NDArray[np.float64]
    discounts: NDArray[np.float64]
    last: NDArray[np.int64]
    lengths: NDArray[np.int64]


def successors(states: Sequence[Hashable], next_states: Sequence[Hashable]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """
    :param states: State in which each transition begins, n of them.
    :param next_states: State to which each one leads.
    :return: A number for each state, shape (n,); and that of the state each transition leads to, -1 where none begins, shape
        (n,).
    """
    numbers: dict[Hashable, int] = {}
    sources = np.array([numbers.setdefault(state, len(numbers)) for state in states], dtype=np.int64)
    return sources, np.array([numbers.get(state, -1) for state in next_states], dtype=np.int64)


def best_paths(
    sources: ArrayLike,
    targets: ArrayLike,
    rewards: ArrayLike,
    end_values: ArrayLike,
    gamma: float,
    max_steps: int = 100,
) -> Paths:
    """
    Value iteration on the graph, as in Zhu et al., 2020, "Episodic Reinforcement Learning with Associative Memory".

    Of the actions of a state only the known ones count; one that is not known is left out, whatever a network says of it. A
    path therefore ends where an episode terminates or where no action is known. Where no such end can be reached, as in a
    known cycle, the path is the first step alone.

    :param sources: State of each transition, shape (n,), see :func:`successors`.
    :param targets: State to which each one leads, -1 where it is one that nothing is known of, or the end, shape (n,).
    :param rewards: Reward of each, shape (n,).
    :param end_values: Value of each one's next state for paths that end there, 0 where the episode terminates, shape (n,).
    :param gamma: Discount factor, in ``(0, 1]``.
    :param max_steps: Most transitions of a path, at least 1.
    :return: The best path from each transition.
    """
    start, to = np.asarray(sources, dtype=np.int64), np.asarray(targets, dtype=np.int64)
    gains, ends = np.asarray(rewards, dtype=np.float64), to < 0
    at_ends = gains + gamma * np.asarray(end_values, dtype=np.float64)
    values = np.where(ends, at_ends, -np.inf)
    following = np.full(len(start), -1)
    for _ in range(max_steps - 1):
        best = np.full(int(start.max(initial=-1)) + 1, -np.inf)
        np.maximum.at(best, start, values)
        improved = np.where(ends, at_ends, gains + gamma * best[to])
        if np.array_equal(improved, values):
            break
        values = improved
    # The last row of each state in this order is its best transition.
    order = np.lexsort((values, start))
    is_last = np.append(start[order][1:] != start[order][:-1], True)[: len(order)]
    best_row = order[is_last]
    goes_on = ~ends & np.isfinite(values)
    following[goes_on] = best_row[np.searchsorted(start[best_row], to[goes_on])]
    return _follow(following, gains, gamma, max_steps)


def _follow(following: NDArray[np.int64], rewards: NDArray[np.float64], gamma: float, max_steps: int) -> Paths:
    """Walk from every transition to the end of its path at once."""
    rows = np.arange(len(following))
    sums, discounts, lengths = rewards.copy(), np.full(len(rows), gamma), np.ones(len(rows), dtype=np.int64)
    for _ in range(max_steps - 1):
        moves = following[rows] >= 0
        if not moves.any():
            break
        rows = np.where(moves, following[rows], rows)
        sums += np.where(moves, discounts * rewards[rows], 0.0)
        discounts = np.where(moves, discounts * gamma, discounts)
        lengths += moves
    return Paths(sums, discounts, rows, lengths)
