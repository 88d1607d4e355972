"""What has happened so far in the running episode of each slot."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class EpisodeTracker:
    """
    Running sums over the present episodes.

    :param lengths: Steps already taken in the present episodes, shape (n_envs,). Their rewards are not known and
        count 0.
    :param gamma: Discount factor.
    """

    def __init__(self, lengths: NDArray[np.int64], gamma: float):
        n_envs = len(lengths)
        self.gamma = gamma
        self.lengths = np.array(lengths, dtype=np.int64)
        self.discounts = gamma ** self.lengths.astype(np.float64)
        self.returns = np.zeros(n_envs)
        self.initial_values = np.zeros(n_envs)
        self._begun = np.zeros(n_envs, dtype=bool)
        self._beginning = True

    def visit(self, values: NDArray[np.float64]) -> None:
        """
        Before a step: note the critic's value of states that begin an episode.

        :param values: Value of the present states, shape (n_envs,).
        """
        if self._beginning:
            begin = ~self._begun
            self.initial_values[begin] = values[begin]
            self._begun[:] = True
            self._beginning = False

    def add(self, rewards: NDArray[np.floating], dones: NDArray[np.bool_]) -> None:
        """
        After a step.

        :param rewards: Rewards of the step, shape (n_envs,).
        :param dones: Slots whose episode ended with it, shape (n_envs,).
        """
        self.returns += self.discounts * rewards
        self.discounts *= self.gamma
        self.lengths += 1
        if np.count_nonzero(dones):
            self._beginning = True
            self.returns[dones] = 0.0
            self.discounts[dones] = 1.0
            self.lengths[dones] = 0
            self._begun[dones] = False
