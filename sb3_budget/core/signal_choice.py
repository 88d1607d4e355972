"""Which signal earns its keep: a bandit that picks one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sb3_budget.core.starts import draw_weighted


class Exp3:
    """
    The bandit Exp3 over signals (Auer et al., 2002, https://doi.org/10.1137/S0097539701398375). It assumes nothing about how
    rewards come about, which suits a policy that changes while it is measured.

    :param names: the signals
    :param exploration: share of the draws that is even, in ``(0, 1]``: the paper's ``gamma``
    :param seed: of the draws
    :raises ValueError: if an argument is out of range
    """

    def __init__(self, names: Sequence[str], exploration: float = 0.1, seed: int | None = None):
        if not names or len(set(names)) < len(names):
            raise ValueError(f"names must be different, and at least one, got {list(names)}")
        if not 0.0 < exploration <= 1.0:
            raise ValueError(f"exploration={exploration} must lie in (0, 1]")
        self.names, self.exploration = tuple(names), exploration
        self.log_weights = np.zeros(len(names))  # logarithms, since the weights themselves overflow
        self._rng = np.random.default_rng(seed)

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """Of drawing each signal: ``(1 - gamma) w / sum(w) + gamma / K``."""
        weights = np.exp(self.log_weights - self.log_weights.max())
        return (1.0 - self.exploration) * weights / weights.sum() + self.exploration / len(weights)

    def draw(self) -> str:
        """
        :return: the signal to follow next
        """
        return self.names[draw_weighted(self.probabilities, self._rng)]

    def update(self, name: str, reward: float) -> None:
        """
        :param name: the signal that was drawn, since the latest update
        :param reward: what it brought, in ``[0, 1]``
        """
        if not 0.0 <= reward <= 1.0:
            raise ValueError(f"reward={reward} must lie in [0, 1]: scale it first")
        arm = self.names.index(name)
        self.log_weights[arm] += self.exploration * reward / (self.probabilities[arm] * len(self.names))
