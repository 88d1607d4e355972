"""
What a start state may be worth: signals per anchor, their sum, and how strongly they act. A higher score is worth more.

A score that is NaN belongs to an anchor that has not been seen, and stays NaN in all that is made of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

# ---------------------------------------------------------------------- signals


def novelty(visits: ArrayLike, chosen: ArrayLike, chosen_weight: float = 10.0) -> NDArray[np.float64]:
    """
    :param visits: how often an episode passed through each anchor, shape (n,)
    :param chosen: how often an episode began there, shape (n,)
    :param chosen_weight: visits that one beginning counts as
    :return: ``-(visits + chosen_weight * chosen)``, for rules that look at ranks
    """
    return -(np.asarray(visits, dtype=np.float64) + chosen_weight * np.asarray(chosen, dtype=np.float64))


def count_bonus(visits: ArrayLike) -> NDArray[np.float64]:
    """
    :param visits: how often an episode passed through each anchor, not negative, shape (n,)
    :return: ``1 / sqrt(visits)``, for rules that look at the size of scores; NaN without a visit
    """
    counts = np.asarray(visits, dtype=np.float64)
    return 1.0 / np.sqrt(np.where(counts > 0.0, counts, np.nan))


def ensemble_spread(values: ArrayLike) -> NDArray[np.float64]:
    """
    :param values: values of each anchor by several critics, shape (n_critics, n)
    :return: standard deviation over the critics, shape (n,); 0 for a single one
    """
    return np.asarray(np.std(np.asarray(values, dtype=np.float64), axis=0))


class Ema:
    """
    An exponential moving average per anchor, NaN where nothing is known. Of absolute advantages it is the score of Prioritized
    Level Replay (Jiang et al., 2021, https://arxiv.org/abs/2010.03934).

    :param n: number of anchors
    :param rate: weight of a new value, in ``(0, 1]``; the first one counts fully
    :param max_age: an anchor is forgotten, and so unseen again, after this many updates without a value for it. What is
        never sampled otherwise keeps a score of an old policy. ``None`` keeps all.
    :raises ValueError: if an argument is out of range
    """

    def __init__(self, n: int, rate: float = 0.1, max_age: int | None = None):
        _require_rate(rate)
        if max_age is not None and max_age < 1:
            raise ValueError(f"max_age={max_age} must be at least 1 update")
        self.rate, self.max_age = rate, max_age
        self.values = np.full(n, np.nan)
        self.ages = np.zeros(n, dtype=np.int64)

    def update(self, ids: ArrayLike, values: ArrayLike) -> None:
        """
        :param ids: anchors, shape (m,); values of one that occurs several times are averaged first
        :param values: a value of each, shape (m,)
        """
        seen, means = _mean_per_id(ids, values)
        before = self.values[seen]
        self.values[seen] = np.where(np.isnan(before), means, before + self.rate * (means - before))
        self.ages += 1
        self.ages[seen] = 0
        if self.max_age is not None:
            self.values[self.ages >= self.max_age] = np.nan

    def forget(self, ids: ArrayLike) -> None:
        """
        :param ids: anchors that become unseen, as when others take their place
        """
        self.values[np.asarray(ids, dtype=np.int64)] = np.nan


class LearningProgress:
    """
    How far a fast moving average has left a slow one: what changes at an anchor, in either direction, is being learned or
    forgotten there (Portelas et al., 2019, https://arxiv.org/abs/1910.07224).

    :param n: number of anchors
    :param fast: rate of the fast average, in ``(0, 1]``
    :param slow: rate of the slow one, smaller
    :param max_age: as for :class:`Ema`
    :param absolute: whether a fall counts as much as a rise
    :raises ValueError: if an argument is out of range
    """

    def __init__(self, n: int, fast: float = 0.3, slow: float = 0.03, max_age: int | None = None, absolute: bool = True):
        if not slow < fast:
            raise ValueError(f"slow={slow} must be less than fast={fast}")
        self.absolute = absolute
        self._fast, self._slow = Ema(n, fast, max_age), Ema(n, slow, max_age)

    def update(self, ids: ArrayLike, values: ArrayLike) -> None:
        """
        :param ids: anchors, shape (m,)
        :param values: the return, or success, of an episode from each, shape (m,)
        """
        self._fast.update(ids, values)
        self._slow.update(ids, values)

    def forget(self, ids: ArrayLike) -> None:
        """
        :param ids: anchors that become unseen
        """
        self._fast.forget(ids)
        self._slow.forget(ids)

    @property
    def values(self) -> NDArray[np.float64]:
        """Difference of the averages, shape (n,)."""
        difference = self._fast.values - self._slow.values
        return np.abs(difference) if self.absolute else difference


class SuccessRates:
    """
    Success probability per anchor, the mean of a Beta posterior whose counts fade: what has not been sampled for long goes
    back to 1/2, and so to where a group is most likely mixed.

    :param n: number of anchors
    :param prior: successes, and failures, that every anchor begins with, positive
    :param kept: share of the counts that an update leaves, in ``(0, 1]``
    :raises ValueError: if an argument is out of range
    """

    def __init__(self, n: int, prior: float = 1.0, kept: float = 0.95):
        if not prior > 0.0:
            raise ValueError(f"prior={prior} must be positive")
        if not 0.0 < kept <= 1.0:
            raise ValueError(f"kept={kept} must lie in (0, 1]")
        self.prior, self.kept = prior, kept
        self.successes, self.failures = np.zeros(n), np.zeros(n)

    def update(self, ids: ArrayLike, successes: ArrayLike) -> None:
        """
        :param ids: anchors of finished episodes, shape (m,)
        :param successes: whether each succeeded, or how far, in [0, 1], shape (m,)
        """
        given, success = np.asarray(ids, dtype=np.int64), np.asarray(successes, dtype=np.float64)
        if given.shape != success.shape or not ((success >= 0.0) & (success <= 1.0)).all():
            raise ValueError(f"successes must be one number in [0, 1] per id, got {success.tolist()} for {given.tolist()}")
        self.successes *= self.kept
        self.failures *= self.kept
        np.add.at(self.successes, given, success)
        np.add.at(self.failures, given, 1.0 - success)

    def forget(self, ids: ArrayLike) -> None:
        """
        :param ids: anchors that go back to the prior
        """
        self.successes[np.asarray(ids, dtype=np.int64)] = 0.0
        self.failures[np.asarray(ids, dtype=np.int64)] = 0.0

    @property
    def means(self) -> NDArray[np.float64]:
        """Expected success probabilities, in (0, 1), shape (n,)."""
        return (self.successes + self.prior) / (self.successes + self.failures + 2.0 * self.prior)


# ---------------------------------------------------------------------- sums of signals


def standardised(scores: ArrayLike, by_rank: bool = True) -> NDArray[np.float64]:
    """
    Scores without their units, so that several signals can be summed.

    :param scores: shape (n,); NaN stays NaN and does not count for the others
    :param by_rank: whether the order alone counts: scores then spread evenly over [-1, 1], equal ones at the middle of their
        ranks. Otherwise ``(score - mean) / std``.
    :return: scores with mean 0, shape (n,); 0 where all are equal
    """
    given = np.asarray(scores, dtype=np.float64)
    result, seen = np.full(given.shape, np.nan), ~np.isnan(given)
    values = given[seen]
    if not values.size or values.min() == values.max():
        result[seen] = 0.0
    elif by_rank:
        _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
        middles = np.cumsum(counts) - (counts - 1) / 2.0  # of the ranks 1 to n
        result[seen] = (2.0 * middles[places] - values.size - 1.0) / (values.size - 1.0)
    else:
        spread = values.std()
        result[seen] = (values - values.mean()) / (spread if spread > 0.0 else 1.0)
    return result


def weighted_sum(signals: Mapping[str, ArrayLike], weights: Mapping[str, float]) -> NDArray[np.float64]:
    """
    :param signals: scores of each signal, in units that compare, shape (n,)
    :param weights: its weight; signals with weight 0 are left out, and so are their NaN
    :return: the sum, shape (n,); NaN where any signal that counts is
    """
    if set(signals) != set(weights) or not signals:
        raise ValueError(f"weights must name the signals {sorted(signals)}, got {sorted(weights)}")
    total = np.zeros(np.shape(next(iter(signals.values()))))
    for name, weight in weights.items():
        if weight:
            total = total + weight * np.asarray(signals[name], dtype=np.float64)
    return total


# ---------------------------------------------------------------------- strength


def guarded_strength(
    strength: float,
    approx_kl: float | None = None,
    target_kl: float | None = None,
    entropy: float | None = None,
    least_entropy: float | None = None,
) -> float:
    """
    How strongly an allocation may act while the policy is stable. It gives way in proportion as the policy changes faster than
    it should, and as the number of actions it still tries (the exponential of its entropy, discrete or not) is smaller.

    :param strength: what a schedule asks for, in ``[0, 1]``; 0 leaves the base distribution of starts
    :param approx_kl: divergence of the latest update; ``None`` or NaN if not known
    :param target_kl: largest one that is fine, positive; ``None`` for no guard
    :param entropy: of the policy [nats]; ``None`` or NaN if not known
    :param least_entropy: smallest one that is fine [nats], negative ones included; ``None`` for no guard
    :return: ``strength * min(1, target_kl / approx_kl) * min(1, exp(entropy - least_entropy))``
    """
    if not 0.0 <= strength <= 1.0:
        raise ValueError(f"strength must be in [0, 1], got {strength}")
    if target_kl is not None and not target_kl > 0.0:
        raise ValueError(f"target_kl must be positive, got {target_kl}")
    if target_kl is not None and approx_kl is not None and approx_kl > target_kl:
        strength *= target_kl / approx_kl
    if least_entropy is not None and entropy is not None and entropy < least_entropy:
        strength *= math.exp(entropy - least_entropy)
    return strength


def _mean_per_id(ids: ArrayLike, values: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    given, checked = np.asarray(ids, dtype=np.int64), np.asarray(values, dtype=np.float64)
    if given.shape != checked.shape or given.ndim != 1:
        raise ValueError(f"ids and values must have one shape (m,), got {given.shape} and {checked.shape}")
    if not np.isfinite(checked).all():
        raise ValueError("values must be finite: NaN is what an anchor without a value has")
    seen, places, counts = np.unique(given, return_inverse=True, return_counts=True)
    return seen, np.bincount(places, weights=checked, minlength=len(seen)) / counts


def _require_rate(rate: float) -> None:
    if not 0.0 < rate <= 1.0:
        raise ValueError(f"rate={rate} must lie in (0, 1]")
