"""Signals of anchors and their sums, by hand and by property."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sb3_budget.core import priorities as core
from sb3_budget.core.allocation import rank
from sb3_budget.core.contrast import greedy_contrast
from sb3_budget.core.priorities import Ema, LearningProgress, SuccessRates

EXAMPLES = settings(max_examples=100, deadline=None, derandomize=True)

NAN = float("nan")
SCORES = st.lists(st.floats(-1e6, 1e6) | st.just(NAN), min_size=1, max_size=15)


def test_signals_by_hand():
    assert core.novelty([0, 3, 3], [0, 0, 1]).tolist() == [0.0, -3.0, -13.0]
    assert core.novelty([0, 3], [2, 0], chosen_weight=1).tolist() == [-2.0, -3.0]
    np.testing.assert_allclose(core.count_bonus([4, 1, 0]), [0.5, 1.0, NAN])
    np.testing.assert_allclose(core.ensemble_spread([[0.0, 1.0], [2.0, 1.0]]), [1.0, 0.0])
    np.testing.assert_allclose(core.ensemble_spread([[3.0, 1.0]]), [0.0, 0.0])


# ---------------------------------------------------------------------- moving averages


def test_the_first_value_counts_fully_and_later_ones_by_the_rate():
    average = Ema(3, rate=0.25)
    average.update([0, 1], [4.0, 2.0])
    average.update([0], [0.0])
    np.testing.assert_allclose(average.values, [3.0, 2.0, NAN])


def test_values_of_one_anchor_in_one_update_are_averaged_first():
    average = Ema(2, rate=0.5)
    average.update([1, 1, 1], [1.0, 2.0, 6.0])
    np.testing.assert_allclose(average.values, [NAN, 3.0])
    average.update([1, 0, 1], [0.0, 7.0, 2.0])
    np.testing.assert_allclose(average.values, [7.0, 2.0])


def test_what_is_not_sampled_becomes_unseen_again():
    average = Ema(2, max_age=2)
    average.update([0, 1], [1.0, 1.0])
    average.update([0], [1.0])
    assert not np.isnan(average.values).any()
    average.update([0], [1.0])
    np.testing.assert_allclose(average.values, [1.0, NAN])
    assert rank(average.values).argmax() == 1  # so that a rule by ranks asks for it first
    average.update([1], [5.0])
    np.testing.assert_allclose(average.values, [1.0, 5.0])


def test_without_a_largest_age_nothing_is_forgotten_but_by_name():
    average = Ema(2)
    average.update([0, 1], [1.0, 2.0])
    for _ in range(100):
        average.update([], [])
    np.testing.assert_allclose(average.values, [1.0, 2.0])
    average.forget([0])
    np.testing.assert_allclose(average.values, [NAN, 2.0])


@EXAMPLES
@given(values=st.lists(st.floats(-100, 100), min_size=1, max_size=20), rate=st.floats(0.01, 1.0))
def test_the_average_is_the_closed_form_and_lies_among_the_values(values, rate):
    average = Ema(1, rate)
    for value in values:
        average.update([0], [value])
    weights = rate * (1 - rate) ** np.arange(len(values))[::-1]
    weights[0] = (1 - rate) ** (len(values) - 1)
    assert average.values[0] == pytest.approx(weights @ values, abs=1e-9)
    assert min(values) - 1e-9 <= average.values[0] <= max(values) + 1e-9


def test_progress_is_the_gap_of_two_averages():
    progress, signed = LearningProgress(2, fast=0.5, slow=0.1), LearningProgress(2, 0.5, 0.1, absolute=False)
    for signal in (progress, signed):
        signal.update([0], [1.0])
        signal.update([0], [0.0])
    np.testing.assert_allclose(progress.values, [0.4, NAN])
    np.testing.assert_allclose(signed.values, [-0.4, NAN])
    progress.forget([0])
    assert np.isnan(progress.values).all()


def test_an_anchor_that_does_not_change_makes_no_progress():
    progress = LearningProgress(1)
    for _ in range(10):
        progress.update([0], [0.7])
    assert progress.values[0] == 0.0


# ---------------------------------------------------------------------- success


def test_success_rates_are_those_of_a_beta_posterior():
    rates = SuccessRates(3, kept=1.0)
    rates.update([0, 0, 1, 0], [True, False, False, True])
    np.testing.assert_allclose(rates.means, [3 / 5, 1 / 3, 1 / 2])
    rates.forget([0])
    np.testing.assert_allclose(rates.means, [1 / 2, 1 / 3, 1 / 2])


def test_an_anchor_that_is_not_sampled_goes_back_to_the_prior():
    rates = SuccessRates(2, kept=0.5)
    rates.update([0, 1], [1.0, 1.0])
    rates.update([0], [1.0])
    np.testing.assert_allclose(rates.means, [2.5 / 3.5, 1.5 / 2.5])
    for _ in range(30):
        rates.update([0] * 4, [1.0] * 4)
    assert rates.means[1] == pytest.approx(0.5)
    assert greedy_contrast(rates.means, 4).tolist() == [0, 4]


# ---------------------------------------------------------------------- sums


def test_standardised_by_hand():
    np.testing.assert_allclose(core.standardised([10.0, -5.0, NAN, 0.1]), [1, -1, NAN, 0])
    np.testing.assert_allclose(core.standardised([1.0, 1.0, 2.0]), [-0.5, -0.5, 1.0])
    np.testing.assert_allclose(core.standardised([0.0, 2.0, NAN], by_rank=False), [-1, 1, NAN])
    for by_rank in (True, False):
        np.testing.assert_allclose(core.standardised([3.0, NAN], by_rank), [0, NAN])
        np.testing.assert_allclose(core.standardised([0.1] * 3, by_rank), 0)
        np.testing.assert_allclose(core.standardised([NAN], by_rank), NAN)


@EXAMPLES
@given(scores=SCORES, by_rank=st.booleans())
def test_standardised_scores_keep_order_and_unseen_anchors_and_have_mean_0(scores, by_rank):
    given_scores, result = np.array(scores), core.standardised(scores, by_rank)
    seen = ~np.isnan(given_scores)
    assert (np.isnan(result) == ~seen).all()
    assert (np.diff(result[seen][np.argsort(given_scores[seen], kind="stable")]) >= 0.0).all()
    if seen.any():
        assert result[seen].mean() == pytest.approx(0.0, abs=1e-6)
        assert not by_rank or np.abs(result[seen]).max() <= 1.0


@EXAMPLES
@given(scores=SCORES, scale=st.sampled_from([0.25, 4.0, 1024.0]))
def test_units_do_not_matter(scores, scale):
    scores = np.round(scores, 3)
    for by_rank in (True, False):
        expected = core.standardised(scores, by_rank)
        np.testing.assert_allclose(core.standardised(scale * scores, by_rank), expected, atol=1e-6)


def test_a_weighted_sum_leaves_out_what_weighs_nothing():
    signals = {"novelty": [1.0, 2.0, 3.0], "advantage": [0.5, NAN, 0.0]}
    np.testing.assert_allclose(core.weighted_sum(signals, {"novelty": 2.0, "advantage": 1.0}), [2.5, NAN, 6.0])
    np.testing.assert_allclose(core.weighted_sum(signals, {"novelty": 2.0, "advantage": 0.0}), [2, 4, 6])
    np.testing.assert_allclose(core.weighted_sum(signals, {"novelty": 0.0, "advantage": 0.0}), 0)


# ---------------------------------------------------------------------- strength


def test_strength_gives_way_to_a_fast_policy_and_to_one_that_tries_little():
    assert core.guarded_strength(0.8) == 0.8
    assert core.guarded_strength(0.8, 0.01, 0.02, 1.5, 1.0) == 0.8
    assert core.guarded_strength(0.8, approx_kl=0.04, target_kl=0.02) == pytest.approx(0.4)
    assert core.guarded_strength(0.8, entropy=-2.0, least_entropy=-1.0) == pytest.approx(0.8 / math.e)
    assert core.guarded_strength(0.8, 0.04, 0.02, 0.0, math.log(2.0)) == pytest.approx(0.2)
    assert core.guarded_strength(0.8, NAN, 0.02, NAN, 0.0) == 0.8
    assert core.guarded_strength(0.8, None, 0.02, None, 0.0) == 0.8


@EXAMPLES
@given(
    strength=st.floats(0, 1),
    kl=st.floats(-1, 1e6),
    target=st.floats(1e-6, 1),
    entropy=st.floats(-1e3, 10),
    least=st.floats(-10, 10),
)
def test_a_guard_never_adds_strength(strength, kl, target, entropy, least):
    assert 0.0 <= core.guarded_strength(strength, kl, target, entropy, least) <= strength


def test_misuse_is_told():
    with pytest.raises(ValueError, match=r"rate=0\.0 must lie in \(0, 1\]"):
        Ema(1, rate=0.0)
    with pytest.raises(ValueError, match="max_age=0 must be at least 1 update"):
        Ema(1, max_age=0)
    with pytest.raises(ValueError, match=r"slow=0\.5 must be less than fast=0\.5"):
        LearningProgress(1, fast=0.5, slow=0.5)
    with pytest.raises(ValueError, match=r"got \(2,\) and \(1,\)"):
        Ema(2).update([0, 1], [1.0])
    with pytest.raises(ValueError, match="values must be finite"):
        Ema(2).update([0], [NAN])
    with pytest.raises(ValueError, match="prior=0 must be positive"):
        SuccessRates(1, prior=0)
    with pytest.raises(ValueError, match=r"kept=1\.5 must lie in \(0, 1\]"):
        SuccessRates(1, kept=1.5)
    with pytest.raises(ValueError, match=r"one number in \[0, 1\] per id, got \[2\.0\] for \[0\]"):
        SuccessRates(1).update([0], [2.0])
    with pytest.raises(ValueError, match=r"weights must name the signals \['a'\], got \['b'\]"):
        core.weighted_sum({"a": [1.0]}, {"b": 1.0})
    with pytest.raises(ValueError, match="got 2"):
        core.guarded_strength(2)
    with pytest.raises(ValueError, match="target_kl must be positive, got 0"):
        core.guarded_strength(0.5, 0.1, 0)
