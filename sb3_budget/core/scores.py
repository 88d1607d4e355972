"""How promising the running episode of each slot looks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class RolloutView(NamedTuple):
    """
    What is known about all slots at one step, before the step's reward. Every array has one entry per slot.

    Rewards and values are in the units the algorithm trains on, i.e. normalised where ``VecNormalize`` normalises.

    :param values: Critic's value of the present state, shape (n_envs,).
    :param returns: Discounted sum of the episode's rewards so far, shape (n_envs,).
    :param discounts: ``gamma ** lengths``, shape (n_envs,).
    :param initial_values: Critic's value of the episode's first state, at the time it was visited, shape (n_envs,).
    :param lengths: Steps since the episode began, shape (n_envs,).
    :param look: Slots that are to be judged at this step, shape (n_envs,).
    :param value_heads: Values of an ensemble's heads, shape (n_critics, n_envs); ``None`` without an ensemble.
    :param obs: The batch of observations.
    :param infos: The slots' ``info`` of the last step; empty dicts at the first.
    :param progress_remaining: From 1 at the beginning of training to 0 at its end.
    :param rng: Generator of the component that asks.
    :param group_size: Slots per group: slot ``i`` belongs to group ``i // group_size``. 1 without groups.
    :param episodes: Number of the start that the slot's present episode began in: equal numbers of a group's slots are
        equal starts. ``None`` without groups.
    :param actions: Actions of this step as the algorithm chose them, before they are clipped.
    :param action_std: The policy's standard deviation per dimension, shape (n_envs, n_dims); ``None`` where it is
        not a plain Gaussian.
    :param due: Slots at the age of a look, those under audit included, shape (n_envs,). ``look`` is without them.
    :param active: Whether what a gate asks for is carried out; it is not during the warm-up.
    :param members: Which member of the group the slot plays in that start, from 0; ``None`` without groups.
    """

    values: NDArray[np.float64]
    returns: NDArray[np.float64]
    discounts: NDArray[np.float64]
    initial_values: NDArray[np.float64]
    lengths: NDArray[np.int64]
    look: NDArray[np.bool_]
    value_heads: NDArray[np.float64] | None
    obs: Any
    infos: Any
    progress_remaining: float
    rng: np.random.Generator
    group_size: int = 1
    episodes: NDArray[np.int64] | None = None
    actions: NDArray[Any] | None = None
    action_std: NDArray[np.float64] | None = None
    due: NDArray[np.bool_] | None = None
    active: bool = True
    members: NDArray[np.int64] | None = None


def value_score(view: RolloutView) -> NDArray[np.float64]:
    """
    :param view: All slots at one step.
    :return: :math:`V(s_t)`. It looks at the present state only, so slots of any age compare.
    """
    return view.values


def return_score(view: RolloutView) -> NDArray[np.float64]:
    """
    :param view: All slots at one step.
    :return: :math:`R_{0:t} + \\gamma^t V(s_t)`, the estimated return of the whole episode. Only episodes of equal
        age compare.
    """
    return view.returns + view.discounts * view.values


def surprise_score(view: RolloutView) -> NDArray[np.float64]:
    """
    :param view: All slots at one step.
    :return: :math:`R_{0:t} + \\gamma^t V(s_t) - V(s_0)`, what was realised beyond what was expected. Slots of any
        age and start compare.
    """
    return return_score(view) - view.initial_values


Score = Callable[[RolloutView], NDArray[np.float64]]

#: The named scores, and whether slots of different age compare.
SCORES: dict[str, tuple[Score, bool]] = {
    "value": (value_score, True),
    "return": (return_score, False),
    "surprise": (surprise_score, True),
}


def parse_score(score: str | Score) -> tuple[Score, bool]:
    """
    :param score: ``"value"``, ``"return"``, ``"surprise"`` or a function of a :class:`RolloutView`.
    :return: The function, and whether its scores compare across slots of any age. Those of a user's function do.
    :raises ValueError: for another name.
    """
    if callable(score):
        return score, True
    if score not in SCORES:
        raise ValueError(f"score={score!r} is not one of {sorted(SCORES)} or a callable")
    return SCORES[score]


class ScoreWindow:
    """
    The latest scores of all slots, the peers that a gate compares with.

    A window counts samples and not steps, so that it reaches as far back with one slot as with many.

    :param size: Number of scores kept.
    :raises ValueError: if ``size`` is not positive.
    """

    def __init__(self, size: int):
        if size < 1:
            raise ValueError(f"A window of size {size} holds no scores: it must be at least 1")
        self._scores = np.zeros(size, dtype=np.float64)
        self._next = 0
        self._filled = 0

    def __len__(self) -> int:
        return self._filled

    def add(self, scores: NDArray[np.float64]) -> None:
        """
        :param scores: New scores, of any number. The oldest ones make room.
        """
        size = len(self._scores)
        scores = scores[-size:]
        end = self._next + len(scores)
        if end <= size:
            self._scores[self._next : end] = scores
        else:
            fit = size - self._next
            self._scores[self._next :] = scores[:fit]
            self._scores[: end - size] = scores[fit:]
        self._next = end % size
        self._filled = min(size, self._filled + len(scores))

    @property
    def scores(self) -> NDArray[np.float64]:
        """The scores in the window, in no particular order, shape (len(self),)."""
        return self._scores[: self._filled]
