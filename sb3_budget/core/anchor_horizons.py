"""How long an episode from an archived state may run."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from sb3_budget.core.anchors import Anchors

#: Steps of an episode from each anchor, shape (n,).
AnchorHorizon = Callable[[Anchors], NDArray[np.int64]]


class DoublingHorizon:
    """
    Episodes from an archived state begin short, and twice as long after every one that was cut while its advantages were
    larger than the rollout's mean: where there is more to be learnt, the next ones go further.

    :param first: Steps of the first episodes from a state.
    :param most: Largest number of steps.
    :raises ValueError: if not ``1 <= first <= most``.
    """

    def __init__(self, first: int = 32, most: int = 1024):
        if not 1 <= first <= most:
            raise ValueError(f"first={first} must be at least 1 step, and at most most={most}")
        self.first, self.most = first, most

    def __call__(self, anchors: Anchors) -> NDArray[np.int64]:
        """
        :param anchors: What is known.
        :return: ``min(most, first * 2 ** cuts)``, shape (n,).
        """
        doublings = np.minimum(anchors.cuts, int(np.log2(self.most)) + 1)
        return np.minimum(self.first * 2**doublings, self.most)


def parse_horizon(horizon: int | str | AnchorHorizon | None) -> AnchorHorizon | int | None:
    """
    :param horizon: Steps of all, ``"adaptive"`` for a :class:`DoublingHorizon`, a function of :class:`Anchors`, or ``None``.
    :return: The steps of all, or the function.
    :raises ValueError: for another word, or fewer than 1 step.
    """
    if isinstance(horizon, str):
        if horizon != "adaptive":
            raise ValueError(f"horizon={horizon!r} is not 'adaptive', a number of steps, a function of Anchors or None")
        return DoublingHorizon()
    if horizon is None or callable(horizon):
        return horizon
    if isinstance(horizon, bool) or not isinstance(horizon, (int, np.integer)) or horizon < 1:
        raise ValueError(f"horizon={horizon!r} must be at least 1 step, in whole steps")
    return int(horizon)


def steps_of(horizon: AnchorHorizon, anchors: Anchors) -> NDArray[np.int64]:
    """
    :param horizon: A function of :class:`Anchors`.
    :param anchors: What is known.
    :return: Its steps, rounded, shape (n,).
    :raises ValueError: if it does not return at least 1 step for each.
    """
    steps = np.asarray(horizon(anchors), dtype=np.float64)
    if steps.shape != anchors.visits.shape or not (steps >= 1.0).all() or not np.isfinite(steps).all():
        raise ValueError(
            f"horizon must return at least 1 step for each of {len(anchors.visits)} anchors, got shape {steps.shape} "
            f"with a smallest of {steps.min(initial=np.inf)}"
        )
    return np.rint(steps).astype(np.int64)
