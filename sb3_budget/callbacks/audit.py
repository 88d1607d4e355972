"""Follows the episodes that a gate wanted to stop and that run on to show what the stop would have cost."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sb3_budget.core.audit import AuditStatistics, audit_statistics

#: Number of finished audits that the statistics are taken over.
RECORDS = 200


class _Record(NamedTuple):
    value: float
    tail: float
    reference: float


class Audit:
    """
    Draws each episode once, at its first would-be stop, into the audit or out of it.

    An audited episode outlives the stopped ones many times over, so a small share of episodes is a large share of the
    steps. Therefore both are bounded.

    :param n_envs: Number of slots.
    :param fraction: Chance of an episode to be audited.
    :param step_fraction: No new audit while audited steps exceed this share of all steps.
    :param gamma: Discount factor.
    """

    def __init__(self, n_envs: int, fraction: float, step_fraction: float, gamma: float):
        self.fraction = fraction
        self.step_fraction = step_fraction
        self.gamma = gamma
        self._records: deque[_Record] = deque(maxlen=RECORDS)
        self.steps = 0
        self.total_steps = 0
        self.drop_running(n_envs)

    def drop_running(self, n_envs: int) -> None:
        """
        Forget audits that have not finished, since all environments were reset. The record stays.

        :param n_envs: Number of slots from now on.
        """
        self.running: NDArray[np.bool_] = np.zeros(n_envs, dtype=bool)
        self._drawn: NDArray[np.bool_] = np.zeros(n_envs, dtype=bool)
        self._values = np.zeros(n_envs)
        self._references = np.zeros(n_envs)
        self._tails = np.zeros(n_envs)
        self._discounts = np.ones(n_envs)

    @property
    def n_running(self) -> int:
        """Number of episodes under audit."""
        return int(np.count_nonzero(self.running))

    def draw(self, would_stop: NDArray[np.bool_], values: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.bool_]:
        """
        :param would_stop: Slots that a gate wants to stop, shape (n_envs,).
        :param values: Values of the present states, shape (n_envs,).
        :param rng: Source of the draw.
        :return: The slots among them that are now under audit and must not be stopped.
        """
        fresh = would_stop & ~self._drawn
        self._drawn |= fresh
        affordable = self.steps <= self.step_fraction * self.total_steps
        chosen = fresh & affordable & (rng.random(len(fresh)) < self.fraction)
        self.running |= chosen
        self._values[chosen] = values[chosen]
        self._references[chosen] = values.mean()
        self._tails[chosen] = 0.0
        self._discounts[chosen] = 1.0
        return chosen

    def add(self, rewards: NDArray[np.floating], dones: NDArray[np.bool_], final_values: dict[int, float]) -> None:
        """
        After a step.

        :param rewards: Rewards of the step, shape (n_envs,).
        :param dones: Slots whose episode ended with it, shape (n_envs,).
        :param final_values: Value of the last state of audited episodes that were truncated, by slot.
        """
        self.total_steps += len(dones)
        if np.count_nonzero(dones):
            self._drawn &= ~dones
        if not self.n_running:
            return
        self.steps += self.n_running
        self._tails += self._discounts * rewards
        self._discounts *= self.gamma
        for slot in np.flatnonzero(self.running & dones).tolist():
            tail = self._tails[slot] + self._discounts[slot] * final_values.get(slot, 0.0)
            self._records.append(_Record(self._values[slot], tail, self._references[slot]))
        self.running &= ~dones

    def statistics(self) -> AuditStatistics:
        """
        :return: The gate's record over the latest finished audits.
        """
        values, tails, references = np.array(self._records, dtype=np.float64).reshape(-1, 3).T
        return audit_statistics(values, tails, references)
