"""What steps and episodes have shown of archived states."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sb3_budget.core.priorities import Ema, LearningProgress

#: Weight of the latest rollout in moving averages over steps.
STEP_RATE = 0.5


class AnchorRecord:
    """
    Averages per row of an archive. A row whose cell has changed hands is unknown again.

    :param capacity: Number of rows.
    """

    def __init__(self, capacity: int):
        self.advantages = Ema(capacity, STEP_RATE)
        self.td_errors = Ema(capacity, STEP_RATE)
        self.spread = Ema(capacity, STEP_RATE)
        self.progress = LearningProgress(capacity)
        self.cuts = np.zeros(capacity, dtype=np.int64)
        self._versions = np.zeros(capacity, dtype=np.int64)

    def follow(self, versions: NDArray[np.int64]) -> None:
        """
        :param versions: How often each row has changed hands, shape (n,), of which the others have not been used.
        """
        changed = np.flatnonzero(self._versions[: len(versions)] != versions)
        for average in (self.advantages, self.td_errors, self.spread, self.progress):
            average.forget(changed)
        self.cuts[changed] = 0
        self._versions[: len(versions)] = versions

    def present(self, rows: NDArray[np.int64], versions: NDArray[np.int64]) -> NDArray[np.int64]:
        """
        :param rows: Rows at an earlier time, -1 for none, any shape.
        :param versions: How often they had changed hands then, same shape.
        :return: The same rows, -1 where another cell has the row now: what was seen there says nothing of it.
        """
        return np.where((rows >= 0) & (self._versions[rows] == versions), rows, -1)


def credit(average: Ema | LearningProgress, rows: NDArray[np.int64], values: NDArray[np.floating]) -> None:
    """
    :param average: What values go to.
    :param rows: Rows, -1 for none, any shape.
    :param values: A value of each, same shape; what is not finite is left out, as that of a row which waits for its group.
    """
    known = (rows >= 0) & np.isfinite(values)
    average.update(rows[known], values[known])


def one_step_errors(
    rewards: NDArray[np.floating], values: NDArray[np.floating], episode_starts: NDArray[np.floating], gamma: float
) -> NDArray[np.float64]:
    """
    :param rewards: Rewards of a rollout, completed by the critic where an episode was truncated, shape (n_steps, n_envs).
    :param values: Values of the states that were acted in, same shape.
    :param episode_starts: Whether an episode began with the row, same shape.
    :param gamma: Discount factor.
    :return: Absolute ``reward + gamma * next value - value``, same shape; NaN in the last row, whose next value is not there.
    """
    errors = np.full(values.shape, np.nan)
    going_on = 1.0 - episode_starts[1:].astype(np.float64)
    errors[:-1] = np.abs(rewards[:-1] + gamma * going_on * values[1:] - values[:-1])
    return errors


def large_cuts(
    advantages: NDArray[np.floating], episode_starts: NDArray[np.floating], ends: NDArray[np.int64], slots: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """
    :param advantages: Of a rollout, shape (n_steps, n_envs).
    :param episode_starts: Whether an episode began with the row, same shape.
    :param ends: Last rows of episodes, shape (n,).
    :param slots: Their slots, shape (n,).
    :return: Whether the mean absolute advantage of the steps of each in this rollout is above that of the rollout, shape (n,).
    """
    sizes = np.abs(advantages)
    means = []
    for end, slot in zip(ends, slots, strict=True):
        first = np.flatnonzero(episode_starts[: end + 1, slot]).max(initial=0)
        means.append(sizes[first : end + 1, slot].mean())
    return np.array(means) > np.nanmean(sizes)
