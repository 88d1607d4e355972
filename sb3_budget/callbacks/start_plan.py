"""Which archived state comes next, and for how long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sb3_budget.core.allocation import rank
from sb3_budget.core.anchor_horizons import AnchorHorizon, DoublingHorizon, parse_horizon, steps_of
from sb3_budget.core.anchors import Anchors, Priority, WeightedPriority, parse_priority, parts
from sb3_budget.core.region_roi import RegionRoi
from sb3_budget.core.signal_bandit import SignalBandit


class Brought(NamedTuple):
    """
    What a rollout has brought.

    :param n_steps: Steps taken.
    :param own_returns: Returns of episodes that ended, and had begun where the environment does.
    :param critic_error: Mean squared error of the critic, ``None`` off-policy.
    :param began: Archived states in which other episodes that ended had begun, -1 for none, shape (n,).
    :param lengths: Steps of these, shape (n,).
    :param returns: Their returns, shape (n,).
    :param visited: Archived states in whose cells steps were taken, -1 for none, shape (m,).
    :param errors: Squared errors of the critic there, shape (m,).
    """

    n_steps: int
    own_returns: list[float]
    critic_error: float | None
    began: NDArray[np.int64]
    lengths: NDArray[np.int64]
    returns: NDArray[np.float64]
    visited: NDArray[np.int64]
    errors: NDArray[np.float64]


class StartPlan:
    """
    Draws rows of an archive by priority. What it draws from is computed when it is first needed, and again after
    :meth:`outdate`.

    :param priority: As for :class:`~sb3_budget.BudgetAllocatorCallback`, like all others.
    :param horizon: See there.
    :param temperature: See there.
    :param roi: See there.
    :raises ValueError: if an argument is out of range.
    """

    def __init__(
        self, priority: Any, horizon: int | str | AnchorHorizon | None, temperature: float, roi: RegionRoi | None = None
    ):
        if not temperature > 0.0:
            raise ValueError(f"temperature={temperature} must be positive")
        self.priority: Priority = parse_priority(priority)
        if any(isinstance(each, SignalBandit) for each in getattr(self.priority, "signals", {}).values()):
            raise ValueError("A SignalBandit chooses among all signals: it cannot be one of them")
        self.horizon = parse_horizon(horizon)
        self.temperature = temperature
        self.roi = roi
        #: Sums of the probabilities of the rows up to each: a draw looks one number up.
        self._cumulative: NDArray[np.float64] | None = None
        self._horizons: NDArray[np.int64] | None = None

    @property
    def signals(self) -> list[Priority]:
        """What the priority is made of."""
        return parts(self.priority)

    @property
    def bandit(self) -> SignalBandit | None:
        """The bandit that chooses among signals, if there is one."""
        return self.priority if isinstance(self.priority, SignalBandit) else None

    @property
    def doubles(self) -> bool:
        """Whether horizons follow from episodes that were cut."""
        return isinstance(self.horizon, DoublingHorizon)

    def follow_seed(self, seed: int | None) -> None:
        """
        :param seed: The model's, for a bandit that has none of its own.
        """
        if self.bandit is not None:
            self.bandit.follow_seed(seed)

    @property
    def learns(self) -> bool:
        """Whether it goes by what rollouts bring."""
        return self.bandit is not None or self.roi is not None

    def learn(self, brought: Brought) -> None:
        """
        :param brought: What a rollout has brought.
        """
        if self.bandit is not None:
            self.bandit.record(brought.n_steps, brought.own_returns, brought.critic_error)
        if self.roi is not None:
            self.roi.record(brought.n_steps, brought.began, brought.lengths, brought.returns, brought.visited, brought.errors)
        self.outdate()

    def state(self) -> dict[str, Any]:
        """
        :return: What has been learnt.
        """
        return {"bandit": self.bandit, "roi": self.roi}

    def load_state(self, state: dict[str, Any]) -> None:
        """
        Take over what was learnt, as far as there is one that would have learnt it.

        :param state: What :meth:`state` returned.
        """
        if self.bandit is not None and state["bandit"] is not None:
            self.priority = state["bandit"]
        if self.roi is not None and state["roi"] is not None:
            self.roi = state["roi"]

    def outdate(self) -> None:
        """Let the next draw compute priorities anew."""
        self._cumulative = None

    def draw(self, n: int, anchors: Callable[[], Anchors], rng: np.random.Generator) -> tuple[int, int | None]:
        """
        :param n: Number of archived states.
        :param anchors: Returns what is known of them.
        :param rng: Source of randomness.
        :return: Row of one of them, and the longest length of the episode [steps], ``None`` for the environment's own.
        """
        if self._cumulative is None or len(self._cumulative) != n:
            known = anchors()
            scores = np.asarray(self.priority(known), dtype=np.float64)
            if scores.shape != (n,):
                raise ValueError(f"priority must return a score for each of {n} anchors, got the shape {scores.shape}")
            probabilities = rank(scores, self.temperature)
            if self.roi is not None:
                probabilities *= self.roi(known)
            self._cumulative = np.cumsum(probabilities)
            self._cumulative /= self._cumulative[-1]
            self._horizons = steps_of(self.horizon, known) if callable(self.horizon) else None
        row = int(np.searchsorted(self._cumulative, rng.random(), side="right"))
        if callable(self.horizon):
            assert self._horizons is not None
            return row, int(self._horizons[row])
        return row, self.horizon

    def log_values(self, progress_remaining: float) -> dict[str, float]:
        """
        :param progress_remaining: Of the training, from 1 to 0.
        :return: Weights of the signals, or the chances that a bandit follows each, by key.
        """
        log, weights = {}, {}
        if self.bandit is not None:
            weights = self.bandit.probabilities
            if self.bandit.rewards:
                log["budget/bandit_reward"] = self.bandit.rewards[-1]
        elif isinstance(self.priority, WeightedPriority):
            weights = self.priority.weights_at(progress_remaining)
        if self.roi is not None:
            multipliers = self.roi.tracker.multipliers
            log |= {"budget/roi_min": float(multipliers.min()), "budget/roi_max": float(multipliers.max())}
        # A longer name would be cut on the console.
        return {**log, **{f"budget/signal_{name[:22]}": weight for name, weight in weights.items()}}
