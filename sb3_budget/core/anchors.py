"""Which archived states are worth beginning in: what is known of them, and priorities made of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sb3_budget.core.contrast import contrast
from sb3_budget.core.priorities import novelty, standardised, weighted_sum


class Anchors(NamedTuple):
    """
    What is known of archived states; all arrays have the shape (n,).

    :param visits: Steps that ended in the cell of the state, and episodes that began in it.
    :param chosen: How often episodes were sent to it; all members of a group of :class:`~sb3_budget.GRPO` at once.
    :param advantages: Moving average of the absolute advantages of steps taken there, NaN where there were none.
    :param success: Predicted chance that an episode which is there succeeds; NaN while too few have to tell, and where no
        signal is ``"contrast"``.
    :param td_errors: Moving average of the absolute one-step errors of the critic there.
    :param progress: How far a fast average of the returns of episodes that began there has left a slow one.
    :param spread: Moving average of the standard deviation of several critics there.
    :param cuts: Episodes that began there and were cut by their horizon while their advantages were large.
    :param observations: The states' observations, as the environment gave them.
    :param progress_remaining: Of the training, from 1 to 0.

    What no signal, and no horizon, asks for is not measured: ``td_errors``, ``progress`` and ``spread`` are NaN then, and
    ``cuts`` 0.
    """

    visits: NDArray[np.int64]
    chosen: NDArray[np.int64]
    advantages: NDArray[np.float64]
    success: NDArray[np.float64]
    td_errors: NDArray[np.float64]
    progress: NDArray[np.float64]
    spread: NDArray[np.float64]
    cuts: NDArray[np.int64]
    observations: Sequence[Any] = ()
    progress_remaining: float = 1.0


#: Scores of anchors, larger for those to begin in more often; NaN for those of which nothing is known, which come first.
Priority = Callable[[Anchors], NDArray[np.float64]]
#: Weight of a signal, or a function of the progress remaining.
Weight = float | Callable[[float], float]


def uniform_priority(anchors: Anchors) -> NDArray[np.float64]:
    """
    The control: what an archive is worth by itself.

    :param anchors: What is known.
    :return: The same for all.
    """
    return np.zeros(len(anchors.visits))


def novelty_priority(anchors: Anchors) -> NDArray[np.float64]:
    """
    :param anchors: What is known.
    :return: The less visited, the higher.
    """
    return novelty(anchors.visits, anchors.chosen)


def advantage_priority(anchors: Anchors) -> NDArray[np.float64]:
    """
    As in Prioritized Level Replay (Jiang et al., 2021, https://arxiv.org/abs/2010.03934), for states.

    :param anchors: What is known.
    :return: Mean absolute advantage.
    """
    return anchors.advantages


def contrast_priority(anchors: Anchors) -> NDArray[np.float64]:
    """
    The chance :math:`p(1 - p)` that two episodes from there have different outcomes, as for tree rollouts (TRACE; Zou et
    al., 2026, https://arxiv.org/abs/2606.11119). While too few episodes have succeeded to tell, :func:`novelty_priority`.

    :param anchors: What is known.
    :return: Predicted contrast.
    """
    if np.isnan(anchors.success).any():
        return novelty_priority(anchors)
    return contrast(anchors.success)


def td_priority(anchors: Anchors) -> NDArray[np.float64]:
    """
    As in prioritised replay (Schaul et al., 2016, https://arxiv.org/abs/1511.05952), for states.

    :param anchors: What is known.
    :return: Mean absolute one-step error of the critic.
    """
    return anchors.td_errors


def progress_priority(anchors: Anchors) -> NDArray[np.float64]:
    """
    :param anchors: What is known.
    :return: Absolute learning progress (Portelas et al., 2019, https://arxiv.org/abs/1910.07224).
    """
    return anchors.progress


def spread_priority(anchors: Anchors) -> NDArray[np.float64]:
    """
    :param anchors: What is known.
    :return: How far several critics disagree.
    """
    return anchors.spread


PRIORITIES: dict[str, Priority] = {
    "contrast": contrast_priority,
    "novelty": novelty_priority,
    "advantage": advantage_priority,
    "td": td_priority,
    "learning_progress": progress_priority,
    "critic_spread": spread_priority,
    "uniform": uniform_priority,
}


class WeightedPriority:
    """
    A sum of signals. Each is brought to one scale by ranks, spread evenly over [-1, 1], so that the weights compare. An anchor
    of which a signal knows nothing is as good as the best in that signal.

    :param weights: Weight of each signal, not negative, or a function of the progress remaining. Signals are names, as for
        ``priority``, or functions of :class:`Anchors`.
    :raises ValueError: if there is no signal, an unknown one, or a weight that is negative or not finite when training begins
        or ends, or if all weights are 0 then.
    """

    def __init__(self, weights: Mapping[str | Priority, Weight]):
        self.signals = named_signals(weights)
        self._weights = dict(zip(self.signals, weights.values(), strict=True))
        for remaining in (1.0, 0.0):
            self.weights_at(remaining)

    def weights_at(self, progress_remaining: float) -> dict[str, float]:
        """
        :param progress_remaining: Of the training, from 1 to 0.
        :return: Weight of each signal, by name.
        """
        weights = {
            name: float(weight(progress_remaining) if callable(weight) else weight) for name, weight in self._weights.items()
        }
        if not all(0.0 <= weight < math.inf for weight in weights.values()) or not any(weights.values()):
            raise ValueError(
                f"weights must be finite, not negative, and not all 0, got {weights} when {progress_remaining} of the "
                "training remains"
            )
        return weights

    def __call__(self, anchors: Anchors) -> NDArray[np.float64]:
        """
        :param anchors: What is known.
        :return: The weighted sum of ranks.
        """
        ranks = {name: standardised(signal(anchors)) for name, signal in self.signals.items()}
        known = {name: np.where(np.isnan(rank), 1.0, rank) for name, rank in ranks.items()}
        return weighted_sum(known, self.weights_at(anchors.progress_remaining))


def parse_priority(priority: str | Priority | Mapping[str | Priority, Weight]) -> Priority:
    """
    :param priority: One of :data:`PRIORITIES`, a function of :class:`Anchors`, or weights by signal.
    :return: The function.
    :raises ValueError: for another name, or for weights that are refused.
    """
    if isinstance(priority, Mapping):
        return WeightedPriority(priority)
    if callable(priority):
        return priority
    if priority not in PRIORITIES:
        raise ValueError(f"priority={priority!r} is not one of {', '.join(map(repr, PRIORITIES))} or a function of Anchors")
    return PRIORITIES[priority]


def named_signals(signals: Mapping[str | Priority, Any] | Sequence[str | Priority]) -> dict[str, Priority]:
    """
    :param signals: Names of :data:`PRIORITIES`, or functions of :class:`Anchors`.
    :return: The functions by name, in order.
    :raises ValueError: if there is none, an unknown one, or two of one name.
    """
    if not signals:
        raise ValueError(f"There must be a signal, such as {', '.join(map(repr, PRIORITIES))} or a function of Anchors")
    names = [each if isinstance(each, str) else getattr(each, "__name__", type(each).__name__) for each in signals]
    if len(set(names)) < len(names):
        raise ValueError(f"Signals must have different names, got {', '.join(map(repr, names))}")
    return {name: parse_priority(each) for name, each in zip(names, signals, strict=True)}


def parts(priority: Priority) -> list[Priority]:
    """
    :param priority: A priority.
    :return: The signals that it is made of; itself, if it is none of several.
    """
    signals = getattr(priority, "signals", None)
    return [priority] if signals is None else [part for signal in signals.values() for part in parts(signal)]
