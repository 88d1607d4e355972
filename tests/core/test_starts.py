"""Arithmetic of a pool of starts, by hand and by property."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sb3_budget.core import starts as core
from sb3_budget.core.starts import Moments, Outcome

EXAMPLES = settings(max_examples=100, deadline=None, derandomize=True)
#: A statistical test fails by chance with at most this probability, and its seed is fixed.
ALPHA = 1e-4

RETURNS = st.lists(st.floats(-100, 100), min_size=1, max_size=20)


@EXAMPLES
@given(st.lists(RETURNS, min_size=1, max_size=5))
def test_moments_of_parts_are_those_of_the_whole(parts):
    moments = Moments()
    for part in parts:
        moments = core.add_values(moments, part)
    whole = np.concatenate(parts)
    assert moments.n == len(whole)
    assert moments.mean == pytest.approx(whole.mean(), abs=1e-9)
    assert moments.std == pytest.approx(whole.std(), abs=1e-6)


def test_old_values_fade_beyond_the_memory():
    moments = Moments()
    for _ in range(20):
        moments = core.add_values(moments, np.zeros(10), memory=10)
    assert (moments.n, moments.mean, moments.std) == (10, 0.0, 0.0)
    # Half of the weight after one more of the memory's size, three quarters after two.
    moments = core.add_values(moments, np.ones(10), memory=10)
    assert (moments.mean, moments.std) == (0.5, 0.5)
    moments = core.add_values(moments, np.ones(10), memory=10)
    assert (moments.n, moments.mean) == (10, 0.75)
    assert core.add_values(moments, []) is moments and Moments().std == 0.0


def test_outcomes_by_hand():
    moments = core.add_values(Moments(), [0.0, 2.0])
    assert core.classify([0.0, 2.0], moments) == Outcome.SIGNAL
    assert core.classify([1.0, 1.0], moments) == Outcome.EASY  # at the running mean
    assert core.classify([0.9, 0.9], moments) == Outcome.HARD
    assert core.classify([0.9, 0.9], moments, good_return=0.9) == Outcome.EASY
    assert core.classify([1.0, 1.0], moments, good_return=1.1) == Outcome.HARD


def test_a_group_of_one_is_a_signal_and_nothing_better_known_is_hard():
    assert core.classify([1.0], core.add_values(Moments(), [1.0])) == Outcome.SIGNAL
    assert core.classify([0.0, 0.0], core.add_values(Moments(), np.zeros(8))) == Outcome.HARD


def test_rounding_of_equal_returns_makes_neither_a_spread_nor_a_poor_group():
    equal = [0.1] * 3
    assert np.std(equal) > 0.0 and core.deviation(equal) == 0.0 and core.deviation([0.0, 2.0]) == 1.0
    moments = core.add_values(Moments(), [*equal, 0.0])
    for _ in range(5000):
        moments = core.add_values(moments, equal)
    assert moments.mean <= 0.1 and core.classify(equal, moments) == Outcome.EASY


def test_the_tolerance_is_in_deviations_of_all_returns_and_0_is_exact():
    moments = core.add_values(Moments(), [0.0, 20.0])  # deviation 10
    assert core.classify([19.0, 20.0], moments, tolerance=0.1) == Outcome.EASY
    assert core.classify([18.9, 20.0], moments, tolerance=0.1) == Outcome.SIGNAL
    assert core.classify([20.0, np.nextafter(20.0, 21.0)], moments) == Outcome.SIGNAL


def test_selection_by_hand():
    signal = [False, True, True, False, True, True]
    assert core.select_groups(signal, 1.0, 1.0).tolist() == signal
    # The first ceil(6 / 2) and ceil(6 / 4) with a signal, in order of finishing.
    assert core.select_groups(signal, 2.0, 1.0).tolist() == [False, True, True, False, True, False]
    assert core.select_groups(signal, 4.0, 1.0).tolist() == [False, True, True, False, False, False]
    # At most a third may be left out: further ones with a signal first, then those without in their order.
    assert core.select_groups(signal, 4.0, 1 / 3).tolist() == signal
    assert core.select_groups(signal, 1.0, 1 / 6).tolist() == [True, True, True, False, True, True]
    assert core.select_groups([], 1.0, 0.9).tolist() == []


@EXAMPLES
@given(st.lists(st.booleans(), min_size=1, max_size=60), st.floats(1, 8), st.floats(0, 1))
def test_selection_respects_its_cap_and_prefers_signals(signal, oversampling, max_discarded):
    used, signal = core.select_groups(signal, oversampling, max_discarded), np.array(signal)
    m, least = len(signal), len(signal) - math.floor(max_discarded * len(signal) + 1e-9)
    assert (~used).sum() <= max_discarded * m + 1e-6
    if (used & ~signal).any():
        assert used[signal].all() and used.sum() == least
    if used.sum() > least:
        assert used.sum() <= math.ceil(m / oversampling)
    if max_discarded < 1.0:
        assert used.any()
    assert core.select_groups(signal, oversampling, 0.0).all()


@EXAMPLES
@given(st.lists(st.sampled_from([0.0, 1e-300, 0.5, 3.0]), min_size=1, max_size=20).filter(any), st.integers(0, 99))
def test_nothing_with_weight_0_is_drawn(weights, seed):
    weights = np.array(weights)
    assert weights[core.draw_weighted(weights, np.random.default_rng(seed))] > 0.0


def test_draws_are_in_proportion_to_the_weights():
    rng, n = np.random.default_rng(0), 20_000
    weights = np.array([0.0, 1.0, 2.0, 5.0])
    counts = np.bincount([core.draw_weighted(weights, rng) for _ in range(n)], minlength=4)
    expected = n * weights / weights.sum()
    statistic = ((counts - expected)[1:] ** 2 / expected[1:]).sum()
    # The survival function of chi-square with 2 degrees of freedom is exp(-x / 2).
    assert counts[0] == 0 and math.exp(-statistic / 2) > ALPHA


def test_the_chance_of_a_skip_grows_with_the_run_and_leaves_a_rest():
    np.testing.assert_allclose(core.skip_probability([0, 1, 2, 3], 0.5), [0.0, 0.5, 0.75, 0.875])
    assert core.skip_probability(100, 0.5) == 1.0 - core.LEAST_KEPT


@EXAMPLES
@given(st.lists(st.floats(0, 1), min_size=1, max_size=200), st.floats(0, 1), st.floats(0.05, 0.95))
def test_the_chance_of_another_try_moves_by_steps_within_its_bounds(shares, target, p):
    for share in shares:
        after = core.adapt_probability(p, share, target)
        assert 0.05 <= after <= 0.95
        assert after == pytest.approx(np.clip(p - 0.01 if share >= target else p + 0.01, 0.05, 0.95))
        p = after


def test_rank_weights_by_hand():
    weights = core.rank_weights([0.3, 5.0, 1.0], temperature=0.5)
    np.testing.assert_allclose(weights, np.array([1 / 9, 1.0, 1 / 4]) / (1 + 1 / 4 + 1 / 9))
    # Ranks 2 and 3 are shared.
    np.testing.assert_allclose(core.rank_weights([0, 2, 0], 1.0), np.array([5 / 12, 1.0, 5 / 12]) / (11 / 6))


@EXAMPLES
@given(st.lists(st.floats(-10, 10), min_size=1, max_size=30), st.floats(0.05, 5), st.randoms(use_true_random=False))
def test_rank_weights_follow_the_order_of_the_scores_alone(scores, temperature, random):
    weights = core.rank_weights(scores, temperature)
    assert weights.sum() == pytest.approx(1.0) and (weights >= 0.0).all()
    assert (np.diff(weights[np.argsort(scores)]) >= -1e-12).all()
    order = random.sample(range(len(scores)), len(scores))
    np.testing.assert_allclose(core.rank_weights(np.array(scores)[order], temperature), weights[order])


def test_replay_weights_mix_rank_and_staleness():
    ranks = core.rank_weights([1.0, 2.0], 1.0)
    np.testing.assert_allclose(ranks, [1 / 3, 2 / 3])
    np.testing.assert_allclose(core.replay_weights([1.0, 2.0], [4, 7], 1.0, 0.25), 0.75 * ranks + [0.25, 0.0])
    np.testing.assert_allclose(core.replay_weights([1.0, 2.0], [7, 7], 1.0, 0.25), ranks)
