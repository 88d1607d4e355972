"""How long episodes may run, decided without looking at any score."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sb3_budget.core import horizons

#: ``horizon_budget(n, rng)`` returns the lengths [steps] of ``n`` episodes.
LengthRule = Callable[[int, np.random.Generator], ArrayLike]


class EpisodeLengths:
    """
    Draws the lengths of episodes by a horizon budget.

    :param rule: ``"full"``, ``"discount"`` or a callable.
    :param horizon: Length of a full episode [steps].
    :param gamma: Discount factor of ``"discount"``.
    :param full_fraction: Share of episodes that are left at full length.
    :raises ValueError: for another rule.
    """

    def __init__(self, rule: str | LengthRule, horizon: int, gamma: float, full_fraction: float):
        if not callable(rule) and rule not in ("full", "discount"):
            raise ValueError(f"horizon_budget={rule!r} is not 'full', 'discount' or a callable")
        self._rule = rule
        self._horizon = horizon
        self._full_fraction = full_fraction
        self._survival = horizons.discount_survival(gamma, horizon) if rule == "discount" else None

    def draw(self, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """
        :param n: Number of episodes.
        :param rng: Source of randomness.
        :return: Their lengths [steps].
        :raises ValueError: if the user's rule returns something else.
        """
        if self._survival is not None:
            return horizons.draw_lengths(self._survival, n, rng, self._full_fraction)
        if not callable(self._rule):
            return np.full(n, self._horizon, dtype=np.int64)
        lengths = np.asarray(self._rule(n, rng), dtype=np.int64)
        if lengths.shape != (n,) or lengths.min() < 1:
            raise ValueError(f"horizon_budget must return {n} lengths of at least 1 step, got {lengths.tolist()}")
        full = rng.random(n) < self._full_fraction
        return np.where(full, self._horizon, lengths)
