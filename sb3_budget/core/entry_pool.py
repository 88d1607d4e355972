"""A pool of start states that learns from the groups that began in them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sb3_budget.core.start_rules import PoolRule
from sb3_budget.core.starts import Moments, Outcome, Record, add_values, classify, deviation, fresh_entries, select_groups


class PoolStatistics(NamedTuple):
    """
    Shares of the latest record are NaN where it had no group to take them of.

    :param zero_variance: share of its groups without a spread
    :param easy: share of its groups without a spread and with good returns
    :param hard: share of its groups without a spread and with poor returns
    :param recycled: of its groups that the update used and that had a spread, share whose entry had none at its last visit
    :param flips_easy: how often an entry went from easy to signal so far
    :param flips_hard: how often an entry went from hard to signal so far
    :param flip_rate_easy: the same, per visit of an entry that was easy at its last; 0 without one
    :param flip_rate_hard: the same, per visit of an entry that was hard at its last; 0 without one
    :param pool_unseen: share of the entries that no group has finished from
    :param pool_signal: share of the entries whose latest group had a spread
    :param pool_easy: share of the entries whose latest group was easy
    :param pool_hard: share of the entries whose latest group was hard
    :param pool_consumed: share of the entries that are out until a new pass begins
    """

    zero_variance: float
    easy: float
    hard: float
    recycled: float
    flips_easy: int
    flips_hard: int
    flip_rate_easy: float
    flip_rate_hard: float
    pool_unseen: float
    pool_signal: float
    pool_easy: float
    pool_hard: float
    pool_consumed: float


class _Shares(NamedTuple):
    """The first of :class:`PoolStatistics`."""

    zero_variance: float = np.nan
    easy: float = np.nan
    hard: float = np.nan
    recycled: float = np.nan


class EntryPool:
    """
    A pool of entries ``0`` to ``n - 1`` that learns from the returns of the groups that begin in them.

    :param n: Number of entries.
    :param rule: Which entry comes next.
    :param oversampling: Groups that are rolled out per group that is wanted, at least 1.
    :param tolerance: As for :func:`classify`.
    :param good_return: As for :func:`classify`.
    :raises ValueError: if an argument is out of range.
    """

    def __init__(self, n: int, rule: PoolRule, oversampling: float, tolerance: float, good_return: float | None):
        if n < 1:
            raise ValueError(f"A pool of {n} starts has none to draw: give at least 1")
        if not 1.0 <= oversampling < math.inf:
            raise ValueError(f"oversampling={oversampling} must be at least 1 group per group that is used")
        if not 0.0 <= tolerance < math.inf:
            raise ValueError(f"tolerance={tolerance} must not be negative")
        if good_return is not None and math.isnan(good_return):
            raise ValueError("good_return=nan must be a number")
        if not 0.0 <= rule.max_discarded <= 1.0:
            raise ValueError(f"max_discarded={rule.max_discarded} must lie in [0, 1]")
        if oversampling > 1.0 and rule.max_discarded == 0.0:
            raise ValueError(
                f"oversampling={oversampling} leaves groups out of the update, and the rule with max_discarded=0 uses all"
            )
        self.rule = rule
        self.oversampling, self.tolerance, self.good_return = oversampling, tolerance, good_return
        self.entries = fresh_entries(n)
        #: Of the returns of all members.
        self.moments = Moments()
        self.n_records = 0
        #: Visits of entries by what they had shown at the last one.
        self._visits_after = np.zeros(len(Outcome), dtype=np.int64)
        self._latest = _Shares()

    def draw(self, rng: np.random.Generator) -> int:
        """
        :param rng: Source of the draw.
        :return: An entry for the next group.
        :raises ValueError: if the rule returns something else.
        """
        entry = self.rule.draw(self.entries, rng)
        n = len(self.entries.weights)
        if not isinstance(entry, (int, np.integer)) or not 0 <= entry < n:
            raise ValueError(f"The rule of a pool of {n} starts drew {entry!r}: it must return an integer in [0, {n})")
        self.entries.drawn[entry] = True
        return int(entry)

    def record(
        self, entries: Sequence[int], returns: Sequence[ArrayLike], scores: ArrayLike | None = None
    ) -> NDArray[np.bool_]:
        """
        :param entries: Entry of each group that finished in a rollout, in order of finishing, shape (m,).
        :param returns: Undiscounted returns of the members of each, m arrays of the shape (k,).
        :param scores: Priority of each group, shape (m,). By default the standard deviation of its returns.
        :return: Whether the update learns from the group, shape (m,).
        :raises ValueError: if shapes do not fit or a number is not finite.
        """
        groups = [np.asarray(members, dtype=np.float64) for members in returns]
        if len(groups) != len(entries) or any(members.ndim != 1 or members.size == 0 for members in groups):
            raise ValueError(f"{len(entries)} groups need as many arrays of returns, each of the shape (k,) with k >= 1")
        given = np.array([deviation(members) for members in groups] if scores is None else scores, dtype=np.float64)
        if given.shape != (len(groups),):
            raise ValueError(f"scores must have the shape ({len(groups)},) of the groups, got {given.shape}")
        if not np.isfinite(np.concatenate([given, *groups])).all():
            raise ValueError("Returns and scores of groups must be finite, but there is a NaN or inf among them")
        self.moments = add_values(self.moments, np.concatenate([[], *groups]))
        outcomes = [classify(members, self.moments, self.tolerance, self.good_return) for members in groups]
        signal = np.array([outcome == Outcome.SIGNAL for outcome in outcomes], dtype=bool)
        used = select_groups(signal, self.oversampling, self.rule.max_discarded)
        before = [self._visit(*group) for group in zip(entries, groups, given, outcomes, strict=True)]
        self.entries.drawn[:] = False
        self._latest = _shares(np.array(outcomes, dtype=np.int64), np.array(before, dtype=np.int64), used)
        if groups:
            record = Record(np.array(entries, dtype=np.int64), np.array(outcomes, dtype=np.int64), used)
            self.rule.after_record(self.entries, record)
        self.n_records += 1
        return used

    def _visit(self, entry: int, returns: NDArray[np.float64], score: float, outcome: Outcome) -> int:
        """Keep what one group has shown; returns what the entry had shown before."""
        known, before = self.entries, int(self.entries.outcomes[entry])
        self._visits_after[before] += 1
        known.easy_flips[entry] += outcome == Outcome.SIGNAL and before == Outcome.EASY
        known.hard_flips[entry] += outcome == Outcome.SIGNAL and before == Outcome.HARD
        if outcome == Outcome.SIGNAL:
            known.runs[entry] = 0
        else:
            known.runs[entry] = known.runs[entry] + 1 if outcome == before else 1
        known.visits[entry] += 1
        known.means[entry], known.stds[entry], known.scores[entry] = returns.mean(), deviation(returns), score
        known.outcomes[entry], known.last_records[entry] = outcome, self.n_records
        return before

    @property
    def statistics(self) -> PoolStatistics:
        """Of the latest record, and of the pool as it is now."""
        known = self.entries
        flips_easy, flips_hard = int(known.easy_flips.sum()), int(known.hard_flips.sum())
        shares = (np.bincount(known.outcomes, minlength=len(Outcome)) / len(known.outcomes)).tolist()
        return PoolStatistics(
            **self._latest._asdict(),
            flips_easy=flips_easy,
            flips_hard=flips_hard,
            flip_rate_easy=flips_easy / max(1, int(self._visits_after[Outcome.EASY])),
            flip_rate_hard=flips_hard / max(1, int(self._visits_after[Outcome.HARD])),
            pool_unseen=shares[Outcome.UNSEEN],
            pool_signal=shares[Outcome.SIGNAL],
            pool_easy=shares[Outcome.EASY],
            pool_hard=shares[Outcome.HARD],
            pool_consumed=float((known.weights == 0.0).mean()),
        )


def _shares(outcomes: NDArray[np.int64], before: NDArray[np.int64], used: NDArray[np.bool_]) -> _Shares:
    if not outcomes.size:
        return _Shares()
    easy, hard = float((outcomes == Outcome.EASY).mean()), float((outcomes == Outcome.HARD).mean())
    effective = used & (outcomes == Outcome.SIGNAL)
    recycled = float(np.isin(before[effective], (Outcome.EASY, Outcome.HARD)).mean()) if effective.any() else np.nan
    return _Shares(easy + hard, easy, hard, recycled)
