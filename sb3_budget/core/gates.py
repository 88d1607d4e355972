"""Which episodes to stop: small classes over the rules of :mod:`sb3_budget.core.gate_rules`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sb3_budget.core.gate_rules import RateLimit, below_deviations, below_quantile, below_ratio
from sb3_budget.core.ranges import require_share
from sb3_budget.core.scores import RolloutView, Score, ScoreWindow, parse_score

#: A number, or a function of the progress remaining, from 1 to 0 over the training: SB3's own convention.
Schedule = Callable[[float], float]

#: A gate says nothing before its window holds so many scores.
MIN_PEERS = 20
#: Number of samples in a window by default: 50 steps of 64 slots.
WINDOW = 3200


class Gate(Protocol):
    """
    A rule that says which episodes are not worth going on with.

    It is called at every step of a rollout, also when no slot is to be judged, so that it can keep statistics.
    A user's own gate is any callable of this form.
    """

    def __call__(self, view: RolloutView) -> NDArray[np.bool_]:
        """
        :param view: All slots at one step.
        :return: Slots to stop, shape (n_envs,). Slots that are not under ``view.look`` are ignored.
        """
        ...


class _PeerGate:
    """
    Compares a score with those of the peers: all recent steps where the score compares across ages, otherwise the
    episodes that were judged at the same age.

    :param score: ``"value"``, ``"return"``, ``"surprise"`` or a function of a :class:`~sb3_budget.RolloutView`.
    :param window: Number of scores in the window of peers, at least :data:`MIN_PEERS`.
    :raises ValueError: if an argument is out of range.
    """

    def __init__(self, score: str | Score, window: int):
        if window < MIN_PEERS:
            raise ValueError(f"window={window} is less than the {MIN_PEERS} scores that a gate compares with at least")
        self._score, self._pooled = parse_score(score)
        self._window_size = window
        self._windows: dict[int, ScoreWindow] = {-1: ScoreWindow(window)}

    def _below(self, scores: NDArray[np.float64], peers: NDArray[np.float64], view: RolloutView) -> NDArray[np.bool_]:
        raise NotImplementedError

    def _to_score(self, view: RolloutView) -> NDArray[np.float64]:
        return self._score(view)

    def __call__(self, view: RolloutView) -> NDArray[np.bool_]:
        stop = np.zeros(len(view.look), dtype=bool)
        if self._pooled:
            self._judge(stop, view.look, self._windows[-1], view)
            # Judged before added: the peers are what was seen before this step.
            self._windows[-1].add(self._score(view))
            return stop
        for age in np.unique(view.lengths[view.look]).tolist():
            window = self._windows.setdefault(age, ScoreWindow(max(MIN_PEERS, self._window_size // 16)))
            same_age = view.look & (view.lengths == age)
            self._judge(stop, same_age, window, view)
            window.add(self._score(view)[same_age])
        return stop

    def _judge(self, stop: NDArray[np.bool_], slots: NDArray[np.bool_], window: ScoreWindow, view: RolloutView) -> None:
        judged = slots.nonzero()[0]
        if len(judged) and len(window) >= MIN_PEERS:
            stop[judged] = self._below(self._to_score(view)[judged], window.scores, view)


class QuantileGate(_PeerGate):
    """
    Stops an episode whose score lies below a quantile of its peers' scores.

    Looks repeat, so the share of episodes stopped before their end is far larger than ``quantile``: what it sets is
    the share stopped *per look*.

    :param quantile: Share of the peers, in ``[0, 1]``, or a schedule of the progress remaining. 0.4 by default;
        0.25 did as well on HalfCheetah-v5.
    :param score: ``"value"`` (default), ``"return"``, ``"surprise"`` or a function of a
        :class:`~sb3_budget.RolloutView`.
    :param window: Number of scores in the window of peers.
    :param below_start: Stop an episode only if, besides, it is worth less than at its start,
        :math:`V(s_t) < V(s_0)`. Where episodes begin in states of very different value this spares those that began
        in a poor one. Off by default: it stops less often, and two seeds on HalfCheetah-v5 showed no gain from it.
    :param limit_rate: Stop at most the share ``quantile`` of the looks, see :class:`RateLimit`.
    :raises ValueError: if an argument is out of range.
    """

    def __init__(
        self,
        quantile: float | Schedule = 0.4,
        score: str | Score = "value",
        window: int = WINDOW,
        below_start: bool = False,
        limit_rate: bool = True,
    ):
        if not callable(quantile):
            require_share("quantile", quantile)
        self.quantile = quantile
        self.below_start = below_start
        self.limit_rate = limit_rate
        self._rate = RateLimit()
        super().__init__(score, window)

    def __call__(self, view: RolloutView) -> NDArray[np.bool_]:
        stop = super().__call__(view)
        if self.below_start:
            stop &= view.values < view.initial_values
        if self.limit_rate:
            stop = self._rate(stop, view.look, self._to_score(view), self._share(view), view.rng)
        return stop

    def _share(self, view: RolloutView) -> float:
        quantile = self.quantile(view.progress_remaining) if callable(self.quantile) else self.quantile
        return min(1.0, max(0.0, float(quantile)))

    def _below(self, scores: NDArray[np.float64], peers: NDArray[np.float64], view: RolloutView) -> NDArray[np.bool_]:
        return below_quantile(scores, peers, self._share(view))


class RatioGate(_PeerGate):
    """
    Stops an episode whose score falls short of a share of its peers' mean, for negative means too.

    :param ratio: Share of the mean, in ``[0, 1]``; see :func:`below_ratio`.
    :param score: As for :class:`QuantileGate`; ``"return"`` by default.
    :param window: Number of scores in the window of peers.
    :raises ValueError: if an argument is out of range.
    """

    def __init__(self, ratio: float = 0.5, score: str | Score = "return", window: int = WINDOW):
        require_share("ratio", ratio)
        self.ratio = ratio
        super().__init__(score, window)

    def _below(self, scores: NDArray[np.float64], peers: NDArray[np.float64], view: RolloutView) -> NDArray[np.bool_]:
        return below_ratio(scores, peers, self.ratio)


class RewardGate(_PeerGate):
    """
    Stops an episode whose discounted rewards so far lie some standard deviations below those of its peers at equal
    age. It needs no critic.

    :param deviations: Number of standard deviations, not negative.
    :param window: Number of scores in the window of peers.
    :raises ValueError: if an argument is out of range.
    """

    def __init__(self, deviations: float = 0.5, window: int = WINDOW):
        if not deviations >= 0.0:
            raise ValueError(f"deviations={deviations} must not be negative")
        self.deviations = deviations
        super().__init__(_rewards_so_far, window)
        self._pooled = False

    def _below(self, scores: NDArray[np.float64], peers: NDArray[np.float64], view: RolloutView) -> NDArray[np.bool_]:
        return below_deviations(scores, peers, self.deviations)


class ValueGate(_PeerGate):
    """
    Stops an episode whose present value lies below a threshold, or some standard deviations below its peers' mean.

    :param deviations: Number of standard deviations, not negative.
    :param threshold: A fixed value instead, in the units the critic is trained on.
    :param window: Number of scores in the window of peers.
    :raises ValueError: if an argument is out of range.
    """

    def __init__(self, deviations: float = 0.5, threshold: float | None = None, window: int = WINDOW):
        if not deviations >= 0.0:
            raise ValueError(f"deviations={deviations} must not be negative")
        self.deviations = deviations
        self.threshold = threshold
        super().__init__("value", window)

    def _below(self, scores: NDArray[np.float64], peers: NDArray[np.float64], view: RolloutView) -> NDArray[np.bool_]:
        if self.threshold is not None:
            return scores < self.threshold
        return below_deviations(scores, peers, self.deviations)


class ConfidenceGate(_PeerGate):
    """
    Stops an episode only if even an optimistic reading of its value lies below a quantile of its peers' values.

    The upper bound is the mean of the ensemble's heads plus ``confidence`` of their standard deviations. Needs
    :class:`~sb3_budget.EnsembleActorCriticPolicy`.

    :param quantile: Share of the peers, in ``[0, 1]``.
    :param confidence: Number of standard deviations between mean and bound; negative for a lower bound, which
        also stops where the critic is merely unsure.
    :param window: Number of scores in the window of peers.
    :raises ValueError: if an argument is out of range.
    """

    needs_heads = True

    def __init__(self, quantile: float = 0.4, confidence: float = 1.0, window: int = WINDOW):
        require_share("quantile", quantile)
        self.quantile = quantile
        self.confidence = confidence
        super().__init__("value", window)

    def _to_score(self, view: RolloutView) -> NDArray[np.float64]:
        if view.value_heads is None:
            raise ValueError("ConfidenceGate needs a policy with several critics: use EnsembleActorCriticPolicy")
        return view.value_heads.mean(axis=0) + self.confidence * view.value_heads.std(axis=0)

    def _below(self, scores: NDArray[np.float64], peers: NDArray[np.float64], view: RolloutView) -> NDArray[np.bool_]:
        return below_quantile(scores, peers, self.quantile)


class HeuristicGate:
    """
    Stops an episode where a rule of the user's says so.

    :param fn: ``fn(obs, info)`` of one slot returns whether to stop it. ``obs`` is what the algorithm sees.
    """

    def __init__(self, fn: Callable[[Any, dict[str, Any]], bool]):
        if not callable(fn):
            raise ValueError(f"HeuristicGate needs a function of (obs, info), not {type(fn).__name__}")
        self.fn = fn

    def __call__(self, view: RolloutView) -> NDArray[np.bool_]:
        stop = np.zeros(len(view.look), dtype=bool)
        for slot in np.flatnonzero(view.look).tolist():
            if isinstance(view.obs, dict):
                obs = {key: value[slot] for key, value in view.obs.items()}
            else:
                obs = view.obs[slot]
            stop[slot] = bool(self.fn(obs, view.infos[slot]))
        return stop


class RandomGate:
    """
    Stops an episode by the toss of a coin. It is the control that every other gate must beat at an equal rate:
    stopping and starting again is worth something whatever picks the episodes.

    :param probability: Chance of a stop per look, in ``[0, 1]``.
    :raises ValueError: if it is out of range.
    """

    def __init__(self, probability: float = 0.33):
        require_share("probability", probability)
        self.probability = probability

    def __call__(self, view: RolloutView) -> NDArray[np.bool_]:
        return view.look & (view.rng.random(len(view.look)) < self.probability)


def _rewards_so_far(view: RolloutView) -> NDArray[np.float64]:
    return view.returns
