"""Pools of start states: what groups that began in them have shown, and what follows from it. Arithmetic only."""

from __future__ import annotations

import math
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sb3_budget.core.groups import equal_returns

#: Number of member returns that the running mean and deviation reach back over.
MEMORY = 4096
#: An entry is drawn with at least this probability however often it was skipped, as in the code of GRESO's authors.
LEAST_KEPT = 0.01


class Outcome(IntEnum):
    """What the latest group of an entry has shown. Easy and hard groups have returns without a spread."""

    UNSEEN = 0
    SIGNAL = 1
    EASY = 2
    HARD = 3


class PoolEntries(NamedTuple):
    """
    What is known of each entry of a pool; all arrays have the shape (n,).

    :param weights: the entry is drawn in proportion to it; 0 is out until a new pass begins
    :param drawn: whether it was drawn since the latest record
    :param visits: number of its groups that have finished
    :param means: mean return of its latest group, NaN where there is none
    :param stds: standard deviation of those returns
    :param scores: priority of the entry, by default that deviation
    :param outcomes: its latest :class:`Outcome`
    :param runs: how many of its groups in a row, up to the latest, had that outcome, if it is easy or hard; 0 otherwise
    :param easy_flips: how often it went from easy to signal
    :param hard_flips: how often it went from hard to signal
    :param last_records: number of the record of its latest group, -1 where there is none
    """

    weights: NDArray[np.float64]
    drawn: NDArray[np.bool_]
    visits: NDArray[np.int64]
    means: NDArray[np.float64]
    stds: NDArray[np.float64]
    scores: NDArray[np.float64]
    outcomes: NDArray[np.int64]
    runs: NDArray[np.int64]
    easy_flips: NDArray[np.int64]
    hard_flips: NDArray[np.int64]
    last_records: NDArray[np.int64]


class Record(NamedTuple):
    """
    The groups that finished in one rollout, in order of finishing; all arrays have the shape (m,).

    :param entries: entry that each began in; one may occur several times
    :param outcomes: what each has shown
    :param used: whether the update learns from it
    """

    entries: NDArray[np.int64]
    outcomes: NDArray[np.int64]
    used: NDArray[np.bool_]


class Moments(NamedTuple):
    """
    :param n: number of values, or fewer where old ones have faded
    :param mean: their mean
    :param squares: sum of their squared differences from it
    """

    n: float = 0.0
    mean: float = 0.0
    squares: float = 0.0

    @property
    def std(self) -> float:
        """Standard deviation, 0 without values."""
        return math.sqrt(self.squares / self.n) if self.n else 0.0


# ---------------------------------------------------------------------- pure functions


def fresh_entries(n: int) -> PoolEntries:
    """
    :param n: number of entries
    :return: entries of which nothing is known, all with weight 1
    """

    def zeros() -> NDArray[np.int64]:
        return np.zeros(n, dtype=np.int64)

    def unknown() -> NDArray[np.float64]:
        return np.full(n, np.nan)

    return PoolEntries(
        weights=np.ones(n),
        drawn=np.zeros(n, dtype=bool),
        visits=zeros(),
        means=unknown(),
        stds=unknown(),
        scores=unknown(),
        outcomes=zeros(),
        runs=zeros(),
        easy_flips=zeros(),
        hard_flips=zeros(),
        last_records=zeros() - 1,
    )


def add_values(moments: Moments, values: ArrayLike, memory: float = MEMORY) -> Moments:
    """
    :param moments: what is known so far
    :param values: new values, any shape
    :param memory: values further back than this number fade, at least 1
    :return: the moments with the new values
    """
    new = np.asarray(values, dtype=np.float64)
    if new.size == 0:
        return moments
    mean, count = float(np.clip(new.mean(), new.min(), new.max())), moments.n + new.size
    apart = mean - moments.mean
    squares = moments.squares + float(((new - mean) ** 2).sum()) + apart**2 * moments.n * new.size / count
    kept = min(1.0, memory / count)
    return Moments(kept * count, moments.mean + apart * new.size / count, kept * squares)


def deviation(returns: ArrayLike) -> float:
    """
    :param returns: returns of the members of a group, shape (k,)
    :return: their standard deviation; exactly 0 where all are equal, which rounding may spoil otherwise
    """
    given = np.asarray(returns, dtype=np.float64)
    return float(given.std()) if given.max() > given.min() else 0.0


def classify(returns: ArrayLike, moments: Moments, tolerance: float = 0.0, good_return: float | None = None) -> Outcome:
    """
    A group of one has nothing to compare with, and counts as a signal.

    :param returns: undiscounted returns of the members of a group, shape (k,)
    :param moments: those of the returns of all members so far, these included
    :param tolerance: largest spread that counts as none, in standard deviations of all returns
    :param good_return: a group without a spread is easy from this mean on. By default from the running mean on; it is
        hard while all returns so far were the same, since then nothing better is known.
    :return: what the group has shown
    """
    given = np.asarray(returns, dtype=np.float64)
    if given.size == 1 or not equal_returns(given, tolerance, moments.std):
        return Outcome.SIGNAL
    mean = np.clip(given.mean(), given.min(), given.max())
    if good_return is not None:
        return Outcome.EASY if mean >= good_return else Outcome.HARD
    return Outcome.EASY if moments.squares > 0.0 and mean >= moments.mean else Outcome.HARD


def select_groups(signal: ArrayLike, oversampling: float, max_discarded: float) -> NDArray[np.bool_]:
    """
    Of ``m`` groups the first ``ceil(m / oversampling)`` with a signal. Where these are fewer than ``max_discarded`` demands,
    further ones with a signal are added, then groups without, so that an update never loses all its data.

    :param signal: whether a group has a spread, in order of finishing, shape (m,)
    :param oversampling: groups that are rolled out per group that is wanted, at least 1
    :param max_discarded: largest share of the groups that is left out
    :return: groups to use, shape (m,)
    """
    has_signal = np.asarray(signal, dtype=bool)
    m, slack = has_signal.size, 1e-9  # shares of whole numbers are not whole in floating point
    wanted = min(math.ceil(m / oversampling - slack), int(has_signal.sum()))
    least = m - math.floor(max_discarded * m + slack)
    preferred = np.concatenate([np.flatnonzero(has_signal), np.flatnonzero(~has_signal)])
    used = np.zeros(m, dtype=bool)
    used[preferred[: max(wanted, least)]] = True
    return used


def draw_weighted(weights: NDArray[np.float64], rng: np.random.Generator) -> int:
    """
    :param weights: Non-negative weights, shape (n,), not all 0.
    :param rng: Source of the draw.
    :return: An index, in proportion to its weight; never one with weight 0.
    """
    candidates = np.flatnonzero(weights)
    sums = np.cumsum(weights[candidates])
    place = int(np.searchsorted(sums, rng.random() * sums[-1], side="right"))
    return int(candidates[min(place, len(candidates) - 1)])


def skip_probability(runs: ArrayLike, p: ArrayLike) -> NDArray[np.float64]:
    """
    Zheng et al. (2025, https://arxiv.org/abs/2506.02177): :math:`1 - p^z`, at most 1 - :data:`LEAST_KEPT`.

    :param runs: How many groups in a row had no spread, ``z``.
    :param p: Chance that an entry is tried again after the first of them.
    :return: Chance that the entry is skipped.
    """
    return 1.0 - np.maximum(np.asarray(p, dtype=np.float64) ** np.asarray(runs), LEAST_KEPT)


def adapt_probability(p: float, share: float, target: float, step: float = 0.01) -> float:
    """
    :param p: Chance that an entry is tried again.
    :param share: Share of the latest groups that were easy, or hard.
    :param target: The share that is aimed at.
    :param step: Size of the change.
    :return: A smaller chance where the share has reached its target, else a larger one, in [0.05, 0.95].
    """
    return float(np.clip(p - step if share >= target else p + step, 0.05, 0.95))


def rank_weights(scores: ArrayLike, temperature: float) -> NDArray[np.float64]:
    """
    Jiang et al. (2021, https://arxiv.org/abs/2010.03934): :math:`(1 / \\text{rank})^{1 / \\text{temperature}}`, with the
    largest score at rank 1. Equal scores share the mean weight of their ranks.

    :param scores: Priorities, shape (n,).
    :param temperature: Near 0 only the largest score counts; large ones are even.
    :return: Weights that sum to 1, shape (n,).
    """
    _, places = np.unique(-np.asarray(scores, dtype=np.float64), return_inverse=True)
    ranked = np.arange(1, len(places) + 1, dtype=np.float64) ** (-1.0 / temperature)
    sums = np.bincount(places, weights=ranked[np.argsort(np.argsort(places, kind="stable"))])
    weights = (sums / np.bincount(places))[places]
    return weights / weights.sum()


def replay_weights(
    scores: ArrayLike, last_records: ArrayLike, temperature: float, staleness_coef: float
) -> NDArray[np.float64]:
    """
    :param scores: Priorities, shape (n,).
    :param last_records: When each was last updated, shape (n,).
    :param temperature: As for :func:`rank_weights`.
    :param staleness_coef: Share of the weight that goes by the time since the last update, in proportion to it.
    :return: Weights that sum to 1, shape (n,). Where all were updated at once the scores alone count.
    """
    weights = rank_weights(scores, temperature)
    last = np.asarray(last_records, dtype=np.float64)
    staleness = last.max() - last
    if not staleness.any():
        return weights
    return (1.0 - staleness_coef) * weights + staleness_coef * staleness / staleness.sum()
