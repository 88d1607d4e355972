"""Watches transitions as they happen, and keeps those that are deterministic in a pool."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sb3_budget.core.determinism import DeterminismDetector, Verdict
from sb3_budget.core.evidence import Outcome
from sb3_budget.core.transition_fields import entries, part_of
from sb3_budget.core.transition_keys import TransitionKeys, outcomes
from sb3_budget.core.transition_pool import TransitionPool

#: After this many transitions it is decided whether any repeat.
TRIAL = 5_000
#: Share of transitions of the trial that must repeat an earlier state and action.
LEAST_HIT_RATE = 0.01

#: Columns of n transitions: observations, next_observations (see :func:`~sb3_budget.core.transition_fields.field`), actions of
#: shape (n, d), rewards (n,), dones (n,), and whatever else the pool has fields for.
Columns = Mapping[str, NDArray[Any]]


class Watched(NamedTuple):
    """
    Transitions that were just watched.

    :param transitions: Their columns, shapes (n, ...).
    :param keys: Key of each.
    :param cut: Whether its episode was cut at it, by a time limit or a stop.
    :param step: When they happened, for ages.
    :param version: Version of the policy that acted.
    """

    transitions: Columns
    keys: list[Hashable]
    cut: Sequence[bool]
    step: int
    version: int


class TransitionWatch:
    """
    Counts outcomes per state and action. A pair whose outcome has no variance is copied into the pool once, and leaves it for
    ever when an outcome contradicts.

    Where too few transitions repeat, and none is white-listed, it ends with a warning after :data:`TRIAL` of them.

    :param owner: Name of who watches, for the warning.
    :param detector: What counts.
    :param pool: Where deterministic transitions go.
    :param transition_keys: What a pair is known by.
    :param whitelist: ``whitelist(observations, actions)`` returns a mask of transitions known to be deterministic, shape
        (n,). They need no count; a contradiction still counts.
    """

    def __init__(
        self,
        owner: str,
        detector: DeterminismDetector,
        pool: TransitionPool,
        transition_keys: TransitionKeys,
        whitelist: Callable[[Any, NDArray[Any]], NDArray[np.bool_]] | None = None,
    ):
        self.owner = owner
        self.detector, self.pool, self.transition_keys, self.whitelist = detector, pool, transition_keys, whitelist
        #: Whether transitions are still counted and the pool is used.
        self.enabled = True
        self._trusted_any = self._trial_over = False
        #: Is shown all that was watched, right after it was.
        self.listener: Callable[[Watched], None] | None = None

    def add(
        self, transitions: Columns, cut: Sequence[bool], step: int, version: int = 0, gather: bool = False
    ) -> list[Hashable]:
        """
        Count n transitions. What was cut does not count: its end is not known, and ``VecNormalize`` clips the state it led to.

        :param transitions: Their columns, shapes (n, ...).
        :param cut: Whether each one's episode was cut at it, by a time limit or a stop.
        :param step: The present, for ages.
        :param version: Version of the policy that acted.
        :param gather: Whether cells are still gathering their statistics. With cells, nothing is counted then.
        :return: Key of each transition; none while cells are gathering.
        """
        states, actions = entries(part_of(transitions, "observations")), transitions["actions"]
        if gather and self.transition_keys.cells is not None:
            self.transition_keys.observe(states, actions)
            return []
        self.transition_keys.freeze()
        keys = self.transition_keys.keys(states, actions)
        found = self.outcomes(transitions, cut)
        trusted = [False] * len(found)
        if self.whitelist is not None:
            trusted = list(map(bool, self.whitelist(states.get("", states), actions)))
            if len(trusted) != len(found):
                raise ValueError(f"whitelist must return one mark for each of {len(found)} slots, got {len(trusted)}")
            self._trusted_any |= any(trusted)
        for row, key in enumerate(keys):
            if cut[row]:
                continue
            verdict = self.detector.observe(key, found[row], trusted[row])
            if verdict is Verdict.DETERMINISTIC and key in self.pool:
                self.pool.renew(key, step, version)
            else:
                self.file(key, verdict, transitions, row, step, version)
        if self.listener is not None:
            self.listener(Watched(transitions, keys, cut, step, version))
        if self.detector.n_observed >= TRIAL and not self._trial_over:
            self._end_trial()
        return keys

    def outcomes(self, transitions: Columns, cut: Sequence[bool]) -> list[Outcome]:
        """
        :param transitions: Columns of n transitions.
        :param cut: Whether each one's episode was cut at it.
        :return: What followed, one by one. Of an episode that terminated only that and the reward: nobody goes on from the
            state it led to, which Stable-Baselines3 tells only as far as ``VecNormalize`` has not clipped it.
        """
        ends = transitions["dones"].tolist()
        terminated = [None if was_cut else done > 0 for was_cut, done in zip(cut, ends, strict=True)]
        followed = entries(part_of(transitions, "next_observations"))
        if any(terminated):
            goes_on = np.array([end is not True for end in terminated])
            followed = {
                name: np.where(goes_on.reshape(-1, *[1] * (part.ndim - 1)), part, np.zeros((), part.dtype))
                for name, part in followed.items()
            }
        return outcomes(followed, transitions["rewards"], terminated, self.transition_keys.digests)

    def file(self, key: Hashable, verdict: Verdict, transitions: Columns, row: int, step: int, version: int = 0) -> None:
        """
        Put a transition into the pool, or take it out, as the verdict on its key says.

        :param key: Its key.
        :param verdict: What is known of the key.
        :param transitions: Columns that it is a row of.
        :param row: Which one.
        :param step: The present, for its age.
        :param version: Version of the policy that acted.
        """
        if verdict is not Verdict.DETERMINISTIC:
            if key in self.pool:
                self.pool.discard(key)
        elif key not in self.pool:
            self.pool.put(key, {name: transitions[name][row] for name in self.pool.fields}, step, version)

    def merge(self, other: TransitionWatch, later: int = 0, newer: int = 0) -> None:
        """
        Learn what another watch of the same environment knows. What the two contradict each other in leaves the pool.

        :param other: A watch with the same arguments. Cells, if any, must be one frozen object's copies.
        :param later: By how many steps the present of this watch is ahead of the other's.
        :param newer: The same of versions.
        :raises ValueError: if the two keep other fields, or promote keys by other rules.
        """
        # What does not fit is refused before anything is counted.
        self.pool.require_fields_of(other.pool)
        self.detector.merge(other.detector)

        def is_deterministic(key: Hashable) -> bool:
            return self.detector.verdict(key) == Verdict.DETERMINISTIC

        # Room first: what is contradicted leaves before others come, and never makes a good one leave.
        self.pool.keep(is_deterministic)
        self.pool.merge(other.pool, is_deterministic, later, newer)

    def forget(self) -> None:
        """Empty the pool and all counts, as when the environment changed."""
        known, kept = self.detector, self.pool
        self.detector = DeterminismDetector(known.min_count, known.epsilon, known.tolerance, known.max_keys)
        self.pool = TransitionPool(kept.capacity if self.enabled else 1, kept.fields, kept.eviction)
        self._trial_over = False

    def _end_trial(self) -> None:
        self._trial_over = True
        if self.detector.hit_rate < LEAST_HIT_RATE and not self._trusted_any:
            warnings.warn(
                f"{self.owner} switched itself off: of {self.detector.n_observed} transitions, "
                f"{self.detector.n_hits} repeated a state and an action. Training is Stable-Baselines3's own now. Continuous "
                "observations need cells= to repeat",
                stacklevel=4,
            )
            self.enabled = False
            self.forget()

    def __getstate__(self) -> dict[str, Any]:
        # Who listens belongs to a training, and is not saved with what is known.
        return {**self.__dict__, "listener": None}
