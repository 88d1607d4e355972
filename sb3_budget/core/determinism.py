"""Which pairs of state and action have the same outcome every time: statistics per key, in constant memory each."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import replace
from enum import IntEnum
from itertools import islice
from typing import Any

import numpy as np

from sb3_budget.core.evidence import Evidence, Outcome
from sb3_budget.core.packing import pack, unpack


class Verdict(IntEnum):
    """What is known of a key. ``STOCHASTIC`` stays, whatever follows."""

    UNKNOWN = 0
    DETERMINISTIC = 1
    STOCHASTIC = 2


class DeterminismDetector:
    """
    Finds the keys whose outcome has no variance.

    A key is promoted when it has had ``min_count`` outcomes and no number's variance exceeds ``epsilon``. One outcome that
    contradicts, before or after, makes it stochastic, for as long as it is remembered. Equal outcomes are evidence, not
    proof: one with probability ``p`` comes ``n`` times in a row with probability ``p ** n``.

    :param min_count: Outcomes that promotion takes, at least 1. With 1 there is no evidence, only de-duplication.
    :param epsilon: Largest variance, in squared units of rewards and observations; not negative.
    :param tolerance: An outcome whose numbers are further than this from their mean contradicts. By default the square root
        of ``epsilon``.
    :param max_keys: Keys of each kind (promoted, stochastic, neither) are forgotten beyond this many: promoted ones that were
        not seen for longest, and otherwise the first that came. ``None`` keeps all.
    :raises ValueError: if an argument is out of range.
    """

    def __init__(
        self,
        min_count: int = 5,
        epsilon: float = 1e-6,
        tolerance: float | None = None,
        max_keys: int | None = None,
    ):
        if min_count < 1:
            raise ValueError(f"min_count={min_count} must be at least 1 outcome")
        if not 0.0 <= epsilon < math.inf:
            raise ValueError(f"epsilon={epsilon} must be a variance: finite and not negative")
        if tolerance is not None and not 0.0 <= tolerance < math.inf:
            raise ValueError(f"tolerance={tolerance} must be finite and not negative")
        if max_keys is not None and max_keys < 1:
            raise ValueError(f"max_keys={max_keys} must be at least 1 key")
        self.min_count, self.epsilon, self.max_keys = min_count, epsilon, max_keys
        self.tolerance = math.sqrt(epsilon) if tolerance is None else tolerance
        self.n_observed = 0
        #: Visits of keys that had been seen before.
        self.n_hits = 0
        self._candidates: dict[Hashable, Evidence] = {}
        self._promoted: dict[Hashable, Evidence] = {}
        #: In order of arrival.
        self._stochastic: dict[Hashable, None] = {}
        #: How often a key that was promoted turned out not to be deterministic.
        self.n_withdrawn = 0

    def observe(self, key: Hashable, outcome: Outcome, trusted: bool = False, is_visit: bool = True) -> Verdict:
        """
        :param key: What stands for the state and the action.
        :param outcome: What followed. One with a number that is not finite contradicts everything.
        :param trusted: Whether it is known of the key that it is deterministic. It is then promoted at first sight.
        :param is_visit: Whether training came here by itself. The outcome of a verification is evidence like any other, but
            the hit rate is of visits.
        :return: What is known of the key now.
        """
        self.n_observed += is_visit
        promoted = self._promoted.get(key)
        if promoted is not None and promoted.is_repeated_by(outcome):
            # The same as what follows, for what happens nearly every time.
            self.n_hits += is_visit
            promoted.count += 1
            if self.max_keys is not None and 2 * len(self._promoted) > self.max_keys:
                # Only those that do not come any more are to be forgotten.
                self._promoted[key] = self._promoted.pop(key)
            return Verdict.DETERMINISTIC
        if key in self._stochastic:
            self.n_hits += is_visit
            return Verdict.STOCHASTIC
        known = self.evidence(key)
        latest = Evidence.of(outcome)
        if known is not None:
            self.n_hits += is_visit
        elif not np.isfinite(outcome.numbers).all():
            return self._condemn(key)
        return self._settle(key, known, latest, trusted)

    def verdict(self, key: Hashable) -> Verdict:
        """
        :param key: Any key.
        :return: What is known of it.
        """
        if key in self._stochastic:
            return Verdict.STOCHASTIC
        return Verdict.DETERMINISTIC if key in self._promoted else Verdict.UNKNOWN

    def evidence(self, key: Hashable) -> Evidence | None:
        """
        :param key: Any key.
        :return: Its outcomes so far, unless it is stochastic or there were none.
        """
        return self._promoted.get(key) or self._candidates.get(key)

    def merge(self, other: DeterminismDetector) -> None:
        """
        Learn all that another detector knows, as if it had seen the same outcomes. A key whose means lie further apart than
        the tolerance is stochastic.

        :param other: A detector of the same environment with the same way to make keys.
        :raises ValueError: if it promotes keys by another rule.
        """
        rules = [(known.min_count, known.epsilon, known.tolerance) for known in (self, other)]
        if rules[0] != rules[1]:
            raise ValueError(f"min_count, epsilon and tolerance must be the same: they are {rules[0]} here, {rules[1]} there")
        self.n_observed += other.n_observed
        self.n_hits += other.n_hits
        for key in other._stochastic:
            self.n_hits += self._knows(key)
            self._condemn(key)
        for key, evidence in [*other._promoted.items(), *other._candidates.items()]:
            self.n_hits += self._knows(key)
            if key not in self._stochastic:
                self._settle(key, self.evidence(key), replace(evidence), key in other._promoted)

    def _settle(self, key: Hashable, known: Evidence | None, latest: Evidence, trusted: bool) -> Verdict:
        """Add evidence to what was known, and file the key where it belongs now."""
        if known is None:
            known = latest
        elif known.contradicts(latest, self.tolerance):
            return self._condemn(key)
        else:
            known.add(latest)
        promoted = key in self._promoted
        if (promoted or trusted or known.count >= self.min_count) and self._is_narrow(known):
            if not promoted:
                self._candidates.pop(key, None)
                self._promoted[key] = known
                self._forget_first_of(self._promoted)
            return Verdict.DETERMINISTIC
        self._withdraw(key)
        self._candidates[key] = known
        self._forget_first_of(self._candidates)
        return Verdict.UNKNOWN

    def _forget_first_of(self, keys: dict[Hashable, Any]) -> None:
        if self.max_keys is not None and len(keys) > self.max_keys:
            # Several at a time: each search for the first one passes all places that are empty.
            for key in list(islice(keys, 1 + self.max_keys // 16)):
                del keys[key]

    def _is_narrow(self, known: Evidence) -> bool:
        return known.moments is None or bool((known.variances <= self.epsilon).all())

    def _condemn(self, key: Hashable) -> Verdict:
        self._candidates.pop(key, None)
        self._withdraw(key)
        self._stochastic[key] = None
        self._forget_first_of(self._stochastic)
        return Verdict.STOCHASTIC

    def _withdraw(self, key: Hashable) -> None:
        self.n_withdrawn += self._promoted.pop(key, None) is not None

    def _knows(self, key: Hashable) -> bool:
        return key in self._stochastic or key in self._promoted or key in self._candidates

    @property
    def hit_rate(self) -> float:
        """Share of the visits whose key had been seen before; 0 without a visit."""
        return self.n_hits / max(1, self.n_observed)

    @property
    def n_candidates(self) -> int:
        """Number of keys that are neither promoted nor stochastic."""
        return len(self._candidates)

    @property
    def n_promoted(self) -> int:
        """Number of keys that are deterministic as far as is known."""
        return len(self._promoted)

    @property
    def n_stochastic(self) -> int:
        """Number of keys that were contradicted."""
        return len(self._stochastic)

    # ------------------------------------------------------------------ pickling

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_candidates": pack(self._candidates), "_promoted": pack(self._promoted)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._candidates = dict(unpack(state["_candidates"]))
        self._promoted = dict(unpack(state["_promoted"]))
