"""Which archived states are worth beginning in: what is known of them, and priorities made of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sb3_budget.core.contrast import contrast
from sb3_budget.core.priorities import novelty


class Anchors(NamedTuple):
    """
    What is known of archived states; all arrays have the shape (n,).

    :param visits: Steps that ended in the cell of the state.
    :param chosen: Episodes that began in it.
    :param advantages: Moving average of the absolute advantages of steps taken there, NaN where there were none.
    :param success: Predicted chance that an episode which is there succeeds; NaN while too few have to tell.
    """

    visits: NDArray[np.int64]
    chosen: NDArray[np.int64]
    advantages: NDArray[np.float64]
    success: NDArray[np.float64]


#: Scores of anchors, larger for those to begin in more often; NaN for those of which nothing is known, which come first.
Priority = Callable[[Anchors], NDArray[np.float64]]


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


PRIORITIES: dict[str, Priority] = {
    "contrast": contrast_priority,
    "novelty": novelty_priority,
    "advantage": advantage_priority,
    "uniform": uniform_priority,
}


def parse_priority(priority: str | Priority) -> Priority:
    """
    :param priority: ``"contrast"``, ``"novelty"``, ``"advantage"``, ``"uniform"``, or a function of :class:`Anchors`.
    :return: The function.
    :raises ValueError: for another name.
    """
    if callable(priority):
        return priority
    if priority not in PRIORITIES:
        raise ValueError(f"priority={priority!r} is not one of {', '.join(map(repr, PRIORITIES))} or a function of Anchors")
    return PRIORITIES[priority]
