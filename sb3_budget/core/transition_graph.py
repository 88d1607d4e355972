"""
Deterministic transitions as a graph: what each of them is worth if the best known ones follow.

Within the graph no value needs an estimate. Only where it ends does one.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

#: Rounds of policy iteration, at most, besides one for each state: news may travel by one state a round. Most graphs settle in
#: a few dozen.
MORE_ROUNDS = 100
#: Steps that a policy is followed for, as a power of two, at least; more where what comes later counts as much as this.
LEAST_DOUBLINGS = 10
LATE = 1e-6


def successors(states: Sequence[Hashable], next_states: Sequence[Hashable]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """
    :param states: State in which each transition begins, n of them.
    :param next_states: State to which each one leads.
    :return: A number for each state, shape (n,), counted from 0 in order of appearance; and that of the state each transition
        leads to, -1 where none begins, shape (n,).
    """
    numbers: dict[Hashable, int] = {}
    sources = np.array([numbers.setdefault(state, len(numbers)) for state in states], dtype=np.int64)
    return sources, np.array([numbers.get(state, -1) for state in next_states], dtype=np.int64)


def exact_values(
    sources: ArrayLike,
    targets: ArrayLike,
    rewards: ArrayLike,
    end_values: ArrayLike,
    others: ArrayLike,
    gamma: float,
) -> NDArray[np.float64]:
    """
    Values of known transitions, by policy iteration (Howard, 1960, "Dynamic Programming and Markov Processes") on the graph::

        q = r + gamma * end_value                                            where the transition leaves the graph
        q = r + gamma * max(largest q of the next state, its other value)    elsewhere

    As the graph is deterministic, a policy is a pointer from each state to the next one, and ten doublings follow it for 1,024
    steps, more of them for longer, until a millionth is left of what it would earn later. So cycles have values, too: of what
    they pay for ever. Without discounting they have none.

    :param sources: State of each transition, shape (n,), see :func:`successors`.
    :param targets: State to which each one leads, -1 where it is one in which none begins, or the end, shape (n,).
    :param rewards: Reward of each, shape (n,).
    :param end_values: Value of each one's next state if it leads out of the graph, 0 where the episode terminates, shape (n,).
    :param others: Value of the best action of each state that is not among the transitions, shape (n_states,); minus infinity
        leaves such actions out.
    :param gamma: Discount factor, in ``[0, 1)``.
    :return: Value of each transition, shape (n,). A warning says so if they are not settled.
    """
    start, to = np.asarray(sources, dtype=np.int64), np.asarray(targets, dtype=np.int64)
    gains, other, leaves = np.asarray(rewards, dtype=np.float64), np.asarray(others, dtype=np.float64), to < 0
    at_ends = gains + gamma * np.asarray(end_values, dtype=np.float64)
    if not len(start):
        return at_ends
    # Rows state by state, so that the last row of each state in the order of their values is its best.
    lasts = np.cumsum(np.bincount(start)) - 1
    values, before = np.where(leaves, at_ends, gains), np.full(len(other), np.nan)
    doublings = _doublings(gamma)
    for _ in range(len(other) + MORE_ROUNDS):
        best = np.lexsort((values, start))[lasts]
        gives_up = other >= values[best]
        ends = gives_up | leaves[best]
        gain = np.where(gives_up, other, np.where(leaves[best], at_ends[best], gains[best]))
        state_values = _follow(np.where(ends, -1, to[best]), gain, gamma, doublings)
        values = np.where(leaves, at_ends, gains + gamma * state_values[to])
        if np.allclose(state_values, before, rtol=0.0, atol=1e-9):
            break
        before = state_values
    else:
        warnings.warn(f"The values of {len(start)} pooled transitions did not settle with gamma={gamma}", stacklevel=2)
    return values


def _doublings(gamma: float) -> int:
    """How often to double the number of steps that a policy is followed for."""
    if gamma <= 0.0:
        return LEAST_DOUBLINGS
    return max(LEAST_DOUBLINGS, math.ceil(math.log2(math.log(LATE) / math.log(gamma))))


def _follow(following: NDArray[np.int64], gains: NDArray[np.float64], gamma: float, doublings: int) -> NDArray[np.float64]:
    """Discounted sum of what the states pay on the way from each, which stops where none follows."""
    stays = following < 0
    rows, sums, discounts = np.where(stays, np.arange(len(gains)), following), gains, np.where(stays, 0.0, gamma)
    for _ in range(doublings):
        sums = sums + discounts * sums[rows]
        discounts, rows = discounts * discounts[rows], rows[rows]
    return sums
