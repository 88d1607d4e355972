"""A bandit that finds out by which signal starts are chosen best."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sb3_budget.core.anchors import Anchors, Priority, named_signals
from sb3_budget.core.signal_choice import Exp3

#: Gains of so many periods make the scale of the next, once there are so many; the middle one earns 1/2.
SCALE_OVER, LEAST_GAINS = 50, 4


class SignalBandit:
    """
    Follows one signal for a period, looks at what the period brought, and follows those more often that brought more.

    A period brings the gain of the mean return over the period before, of episodes that begin where the environment does, and
    the fall of the critic's mean squared error, both per step. Each is measured on the scale of its latest 50 values:
    the 20 % quantile is worth 0 and the 80 % quantile 1, as by Graves et al. (2017, https://arxiv.org/abs/1704.03003), and
    their mean is the reward of the bandit Exp3. With two or three signals it takes some dozens of periods to learn anything.

    It is a ``priority`` of :class:`~sb3_budget.BudgetAllocatorCallback`.

    :param signals: Names, as for ``priority``, or functions of :class:`~sb3_budget.Anchors`; two at least.
    :param period: Length of a period [steps].
    :param exploration: Share of the periods whose signal is drawn evenly, in ``(0, 1]``.
    :param seed: Of the draws. The model's by default.
    :raises ValueError: if an argument is out of range, or a signal unknown.
    """

    def __init__(
        self, signals: Sequence[str | Priority], period: int = 4096, exploration: float = 0.2, seed: int | None = None
    ):
        self.signals = named_signals(signals)
        if len(self.signals) < 2:
            raise ValueError(f"A bandit chooses among two signals at least, got {list(self.signals)}")
        if period < 1:
            raise ValueError(f"period={period} must be at least 1 step")
        self.period = period
        self._seeded, self._exploration = seed is not None, exploration
        self._bandit = Exp3(list(self.signals), exploration, seed)
        #: The signal that is followed.
        self.current = self._bandit.draw()
        #: What each period has earned, in [0, 1].
        self.rewards: list[float] = []
        self._scales = (_Scale(), _Scale())
        self._before: list[float] = [np.nan, np.nan]
        self._forget()

    def follow_seed(self, seed: int | None) -> None:
        """
        :param seed: The model's, when training begins. It counts where no own one was given and nothing was drawn for yet.
        """
        if not self._seeded and seed is not None and not self.rewards:
            self._bandit = Exp3(list(self.signals), self._exploration, seed)
            self.current = self._bandit.draw()
        self._seeded = True

    @property
    def probabilities(self) -> dict[str, float]:
        """Chance of each signal to be followed next."""
        return dict(zip(self._bandit.names, self._bandit.probabilities.tolist(), strict=True))

    def __call__(self, anchors: Anchors) -> NDArray[np.float64]:
        """
        :param anchors: What is known.
        :return: Scores by the present signal.
        """
        return self.signals[self.current](anchors)

    def record(self, n_steps: int, returns: Sequence[float], critic_error: float | None) -> None:
        """
        Add a rollout to the period, and end the period once it is long enough.

        :param n_steps: Steps taken.
        :param returns: Returns of episodes that ended, and had begun where the environment does.
        :param critic_error: Mean squared error of the critic, ``None`` where it is not known.
        """
        self._steps += n_steps
        self._returns += list(returns)
        if critic_error is not None:
            self._errors.append(critic_error)
        if self._steps < self.period:
            return
        levels = [_mean(self._returns), -_mean(self._errors)]
        gains = [(level - before) / self._steps for level, before in zip(levels, self._before, strict=True)]
        # What was not measured leaves the level that the next gain starts from.
        self._before = [before if np.isnan(level) else level for level, before in zip(levels, self._before, strict=True)]
        known = [scale(gain) for scale, gain in zip(self._scales, gains, strict=True) if not np.isnan(gain)]
        if known:
            self.rewards.append(_mean(known))
            self._bandit.update(self.current, self.rewards[-1])
        self.current = self._bandit.draw()
        self._forget()

    def _forget(self) -> None:
        self._steps = 0
        self._returns: list[float] = []
        self._errors: list[float] = []


class _Scale:
    """From gains to [0, 1], by the quantiles of the latest ones; 1/2 while there are few, or all are alike."""

    def __init__(self) -> None:
        self._gains: deque[float] = deque(maxlen=SCALE_OVER)

    def __call__(self, gain: float) -> float:
        self._gains.append(gain)
        low, high = np.quantile(self._gains, [0.2, 0.8])
        if len(self._gains) < LEAST_GAINS or low == high:
            return 0.5
        return float(np.clip((gain - low) / (high - low), 0.0, 1.0))


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else np.nan
