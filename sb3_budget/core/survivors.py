"""Weights of episodes that were spared by the toss of a coin."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class SurvivorWeights:
    """
    Russian roulette: an episode that would be stopped is spared with probability ``1 - p`` and then stands for those
    that were not, with ``1 / (1 - p)`` of its weight at every further toss.

    A stop that is asked for at one step would be served at the next, so the rows after that one owe their existence
    to the coin.

    :param n_envs: Number of slots.
    :param stop_probability: Chance ``p`` of a stop, in ``(0, 1]``.
    """

    def __init__(self, n_envs: int, stop_probability: float):
        self.stop_probability = stop_probability
        self._present = np.ones(n_envs, dtype=np.float32)
        self._next = np.ones(n_envs, dtype=np.float32)
        self._after_next = np.ones(n_envs, dtype=np.float32)

    def advance(self) -> NDArray[np.float32]:
        """
        Before the decisions of a step.

        :return: Weight of the step's rows, shape (n_envs,).
        """
        self._present = self._next
        self._next = self._after_next.copy()
        return self._present

    def toss(self, stop: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.bool_]:
        """
        :param stop: Slots that would be stopped, shape (n_envs,).
        :param rng: The coin.
        :return: Those that are.
        """
        if self.stop_probability == 1.0:
            return stop
        spared = stop & (rng.random(len(stop)) >= self.stop_probability)
        self._after_next[spared] /= 1.0 - self.stop_probability
        return stop & ~spared

    def end(self, dones: NDArray[np.bool_]) -> None:
        """
        :param dones: Slots whose episode ended with the step, shape (n_envs,).
        """
        if self.stop_probability == 1.0:
            return  # nobody was weighed
        for weights in (self._present, self._next, self._after_next):
            weights[dones] = 1.0
