"""Targets for pooled transitions, known by their keys: rows move, and the pool goes on while targets stay."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sb3_budget.core.transition_pool import TransitionPool


class Untried(NamedTuple):
    """
    Actions that were never tried, and what they are held to be worth.

    :param keys: Key of a pooled transition that begins in the state of each, m of them.
    :param actions: The actions, shape (m, d).
    :param value: Value of each of them.
    """

    keys: list[Hashable]
    actions: NDArray[Any]
    value: float


class Draws(NamedTuple):
    """
    :param rows: Rows of the pool, shape (n,).
    :param values: Target of each, NaN where there is none yet, shape (n, 1).
    :param replaced: Where the action is another one than the row's, shape (n,).
    :param actions: Those actions, in order, shape (number of marks, d).
    """

    rows: NDArray[np.int64]
    values: NDArray[np.float32]
    replaced: NDArray[np.bool_]
    actions: NDArray[Any]


class PooledTargets:
    """
    :param keys: Keys of the transitions, n of them.
    :param values: Value of each, shape (n,).
    :param gamma: The discount factor that they were found with.
    :param untried: Actions that stand beside them, if any.
    :param is_current: Whether the training that they were found in goes on still. Nobody would renew them in another one.
    """

    def __init__(
        self,
        keys: list[Hashable],
        values: NDArray[np.float64],
        gamma: float,
        untried: Untried | None = None,
        is_current: Callable[[], bool] = lambda: True,
    ):
        self.gamma, self.is_current = gamma, is_current
        self.n_untried = 0 if untried is None else len(untried.keys)
        self._untried = untried
        self._values = dict(zip(keys, values.tolist(), strict=True))

    def draw(self, pool: TransitionPool, n: int, rng: np.random.Generator) -> Draws:
        """
        :param pool: The pool as it is now, not empty.
        :param n: Number of draws.
        :param rng: What draws, evenly from all of the pool and all untried actions. Where the state of one has left the pool,
            any pooled transition stands in for it.
        :return: What was drawn.
        """
        drawn = rng.integers(len(pool) + self.n_untried, size=n)
        replaced = drawn >= len(pool)
        rows, values = np.where(replaced, drawn % len(pool), drawn), np.full(n, np.nan, dtype=np.float32)
        actions = np.zeros((0, 1), dtype=np.int64)
        if self._untried is not None and replaced.any():
            chosen = drawn[replaced] - len(pool)
            found = pool.rows([self._untried.keys[place] for place in chosen.tolist()])
            is_here = found >= 0
            here = np.flatnonzero(replaced)[is_here]
            replaced[replaced] = is_here
            rows[here], values[here] = found[is_here], self._untried.value
            actions = self._untried.actions[chosen[is_here]]
        values[~replaced] = [self._values.get(key, np.nan) for key in pool.keys(rows[~replaced])]
        return Draws(rows, values[:, None], replaced, actions)
