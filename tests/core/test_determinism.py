"""A key is promoted by equal outcomes, and by nothing else."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sb3_budget.core.cells import QuantisedCells, row_bytes
from sb3_budget.core.determinism import DeterminismDetector, Verdict
from sb3_budget.core.evidence import Evidence, Outcome, digest

UNKNOWN, DETERMINISTIC, STOCHASTIC = Verdict.UNKNOWN, Verdict.DETERMINISTIC, Verdict.STOCHASTIC


def outcome(*numbers, label=b"", terminated=False):
    return Outcome(np.array(numbers, dtype=np.float64), label, terminated)


def verdicts(outcomes, **kwargs):
    detector = DeterminismDetector(**kwargs)
    return [detector.observe("key", one) for one in outcomes]


@pytest.mark.parametrize("min_count", [1, 2, 5])
def test_a_key_is_promoted_at_its_nth_equal_outcome(min_count):
    expected = [UNKNOWN] * (min_count - 1) + [DETERMINISTIC] * 3
    assert verdicts([outcome(1.0, 2.0)] * (min_count + 2), min_count=min_count) == expected


@pytest.mark.parametrize(
    "other",
    [
        outcome(1.1, 2.0, label=b"s"),
        outcome(1.0, 2.1, label=b"s"),
        outcome(1.0, 2.0, label=b"t"),
        outcome(1.0, 2.0, label=b"s", terminated=True),
        outcome(1.0, math.nan, label=b"s"),
        outcome(1.0, math.inf, label=b"s"),
        outcome(1.0, label=b"s"),
    ],
    ids=["reward", "next state", "label", "terminal flag", "nan", "inf", "shape"],
)
@pytest.mark.parametrize("place", [0, 1, 4, 6])
def test_one_contradiction_makes_a_key_stochastic_for_ever(other, place):
    outcomes = [outcome(1.0, 2.0, label=b"s")] * 20
    outcomes.insert(place, other)
    found = verdicts(outcomes, min_count=5)
    first = found.index(STOCHASTIC)
    assert first == (place if place else 0 if not np.isfinite(other.numbers).all() else 1)
    assert set(found[first:]) == {STOCHASTIC}


def test_a_cut_says_nothing_about_termination_and_counts_otherwise():
    cut = outcome(1.0, terminated=None)
    ended = outcome(1.0, terminated=True)
    assert verdicts([ended, cut, ended, cut], min_count=4)[-1] == DETERMINISTIC
    assert verdicts([outcome(1.0), cut, outcome(1.0), cut], min_count=4)[-1] == DETERMINISTIC
    assert verdicts([cut, outcome(2.0, terminated=None)])[-1] == STOCHASTIC


def test_float_noise_is_no_contradiction_and_negative_zero_is_zero():
    rng = np.random.default_rng(0)
    noisy = [outcome(1.0 + 1e-7 * rng.standard_normal(), -0.0 if i % 2 else 0.0) for i in range(10)]
    assert verdicts(noisy)[-1] == DETERMINISTIC
    assert row_bytes(np.array([[0.0]])) == row_bytes(np.array([[-0.0]]))


def test_exactness_is_asked_for_by_an_epsilon_of_zero():
    assert verdicts([outcome(1.0), outcome(1.0 + 1e-12)], epsilon=0.0)[-1] == STOCHASTIC


def test_a_variance_between_epsilon_and_the_tolerance_keeps_a_key_unknown():
    spread = [outcome(-0.5), outcome(0.5)] * 10
    assert set(verdicts(spread, epsilon=0.01, tolerance=2.0)) == {UNKNOWN}
    # Variance 1/4, up to the first few outcomes.
    assert verdicts(spread, epsilon=0.26, tolerance=2.0)[-1] == DETERMINISTIC


def test_a_trusted_key_is_promoted_at_first_sight_and_can_still_be_contradicted():
    detector = DeterminismDetector(min_count=5)
    assert detector.observe("key", outcome(1.0), trusted=True) == DETERMINISTIC
    assert detector.observe("key", outcome(1.0), trusted=True) == DETERMINISTIC
    assert detector.observe("key", outcome(2.0), trusted=True) == STOCHASTIC
    assert detector.observe("key", outcome(1.0), trusted=True) == STOCHASTIC


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 49), st.integers(5, 49), st.sampled_from(["reward", "label", "flag"]))
def test_a_key_with_one_other_outcome_in_fifty_is_not_deterministic_after_them(place, min_count, kind):
    outcomes = [outcome(1.0, label=b"s")] * 50
    outcomes[place] = {
        "reward": outcome(0.0, label=b"s"),
        "label": outcome(1.0, label=b"t"),
        "flag": outcome(1.0, label=b"s", terminated=True),
    }[kind]
    found = verdicts(outcomes, min_count=min_count)
    assert found[-1] == STOCHASTIC
    # With as many outcomes as there are, never at all.
    assert DETERMINISTIC not in verdicts(outcomes, min_count=50)


@settings(max_examples=50, deadline=None)
@given(st.permutations([-0.0, 0.0, 1e-9, -1e-9, 2e-9, 0.0, 1e-8]), st.integers(1, 7))
def test_any_order_of_equal_outcomes_promotes_at_min_count_exactly(noise, min_count):
    found = verdicts([outcome(3.0 + one, one) for one in noise], min_count=min_count)
    assert found == [UNKNOWN] * (min_count - 1) + [DETERMINISTIC] * (8 - min_count)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.floats(-10, 10), st.floats(-1e4, 1e4)), min_size=1, max_size=30), st.integers(0, 30))
def test_welford_equals_numpy_in_one_pass_and_in_two_merged_ones(rows, cut):
    def gathered(part):
        evidence = Evidence.of(outcome(*part[0]))
        for row in part[1:]:
            evidence.add(Evidence.of(outcome(*row)))
        return evidence

    evidence = gathered(rows)
    if 0 < cut < len(rows):
        parts = gathered(rows[:cut]), gathered(rows[cut:])
        parts[0].add(parts[1])
        np.testing.assert_allclose(parts[0].variances, evidence.variances, atol=1e-6)
        assert parts[0].count == evidence.count
    np.testing.assert_allclose(evidence.mean, np.mean(rows, axis=0), atol=1e-8)
    np.testing.assert_allclose(evidence.variances, np.var(rows, axis=0), atol=1e-6)


OBSERVATIONS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from([0.0, 0.0, 0.0, 5.0]), st.sampled_from([True, True, False, None])),
    max_size=40,
)


@settings(max_examples=100, deadline=None)
@given(OBSERVATIONS, OBSERVATIONS)
def test_merged_detectors_know_what_one_that_saw_both_knows(first, second):
    def watch(detector, observations):
        for key, number, terminated in observations:
            detector.observe(key, outcome(number, terminated=terminated))
        return detector

    merged, other = watch(DeterminismDetector(), first), watch(DeterminismDetector(), second)
    before = copy.deepcopy(other)
    merged.merge(other)
    both = watch(DeterminismDetector(), first + second)
    assert [merged.verdict(key) for key in range(4)] == [both.verdict(key) for key in range(4)]
    assert (merged.n_observed, merged.n_hits) == (both.n_observed, both.n_hits)
    for key in range(4):
        ours, theirs = merged.evidence(key), both.evidence(key)
        assert (ours is None) == (theirs is None)
        if ours is not None and theirs is not None:
            assert (ours.count, ours.terminated) == (theirs.count, theirs.terminated)
    # The other one is as it was, and stays so.
    watch(merged, first)
    assert [other.evidence(key) == before.evidence(key) for key in range(4)] == [True] * 4


def test_a_coin_passes_as_often_as_it_should():
    # Sides that are equal 4 times in a row: 1 in 8 of 4,000 keys, within 5 standard deviations.
    tosses = np.random.default_rng(0).integers(2, size=(4_000, 4))
    n_passed = sum(verdicts([outcome(side) for side in row], min_count=4)[-1] == DETERMINISTIC for row in tosses)
    assert abs(n_passed - 500) < 5 * np.sqrt(4_000 * 1 / 8 * 7 / 8)


def test_counts_of_hits_and_kinds():
    detector = DeterminismDetector(min_count=2)
    for key, number in [("a", 0), ("a", 0), ("b", 0), ("b", 1), ("b", 0), ("c", 0)]:
        detector.observe(key, outcome(number))
    assert (detector.n_promoted, detector.n_stochastic, detector.n_candidates) == (1, 1, 1)
    assert (detector.n_observed, detector.n_hits, detector.hit_rate) == (6, 3, 0.5)
    assert DeterminismDetector().hit_rate == 0.0


def test_the_oldest_candidates_are_forgotten_but_no_verdict_is():
    detector = DeterminismDetector(min_count=2, max_keys=3)
    for key in ["good", "good", "bad"]:
        detector.observe(key, outcome(0.0))
    detector.observe("bad", outcome(1.0))
    for key in range(10):
        detector.observe(key, outcome(0.0))
    assert detector.n_candidates == 3
    assert [detector.evidence(key) is not None for key in range(10)] == [False] * 7 + [True] * 3
    assert (detector.verdict("good"), detector.verdict("bad")) == (DETERMINISTIC, STOCHASTIC)


def test_cells_make_keys_of_neighbours_equal():
    cells = QuantisedCells(bins_per_std=1.0)
    cells.observe(np.array([[-1.0], [1.0]]))
    cells.freeze()
    detector = DeterminismDetector(min_count=2, epsilon=0.1)
    (first,), (second,) = cells.keys(np.array([[0.1]])), cells.keys(np.array([[-0.1]]))
    detector.observe(first, outcome(1.0, 0.1))
    assert detector.observe(second, outcome(1.0, -0.1)) == DETERMINISTIC


def test_long_keys_become_short_ones_and_short_ones_stay():
    assert digest(b"short") == b"short"
    assert len(digest(bytes(33))) == 16 and digest(bytes(33)) != digest(bytes(34))


@pytest.mark.parametrize(
    "kwargs",
    [{"min_count": 0}, {"epsilon": -1.0}, {"epsilon": math.nan}, {"tolerance": -1.0}, {"max_keys": 0}],
)
def test_arguments_out_of_range_are_refused(kwargs):
    with pytest.raises(ValueError, match=next(iter(kwargs))):
        DeterminismDetector(**kwargs)


def test_a_verification_is_evidence_and_no_visit():
    detector = DeterminismDetector(min_count=3)
    detector.observe("key", outcome(1.0))
    found = [detector.observe("key", outcome(1.0), is_visit=False) for _ in range(2)]
    assert found == [UNKNOWN, DETERMINISTIC]
    assert (detector.n_observed, detector.n_hits) == (1, 0)
    assert detector.observe("key", outcome(2.0), is_visit=False) == STOCHASTIC
    assert detector.observe("key", outcome(1.0), is_visit=False) == STOCHASTIC
    assert (detector.n_observed, detector.hit_rate) == (1, 0.0)


def test_what_is_known_of_keys_that_never_come_again_does_not_grow_without_end():
    detector = DeterminismDetector(min_count=1, max_keys=100)
    for key in range(5_000):
        detector.observe(("good", key), outcome(0.0))
        for number in (0.0, 1.0):
            detector.observe(("bad", key), outcome(number))
    assert 90 <= detector.n_promoted <= 100 and 90 <= detector.n_stochastic <= 100 and detector.n_candidates == 0
    assert (
        detector.verdict(("good", 4_999)) is Verdict.DETERMINISTIC and detector.verdict(("bad", 4_999)) is Verdict.STOCHASTIC
    )
    assert detector.verdict(("good", 0)) is detector.verdict(("bad", 0)) is Verdict.UNKNOWN
