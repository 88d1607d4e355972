"""Adaptive horizon budgets: closed forms, enumerations, and no better schedule."""

from __future__ import annotations

from itertools import pairwise, product
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sb3_budget.core import horizons
from sb3_budget.core import rido as core
from sb3_budget.core.rido import AdaptiveHorizons

EXAMPLES = settings(max_examples=50, deadline=None, derandomize=True)
#: A statistical test fails by chance with at most this probability, and its seed is fixed.
ALPHA = 1e-4

GAMMA = 0.9
NAN = float("nan")


def uneven_episodes(seed: int, n: int = 12, horizon: int = 5) -> np.ndarray:
    """Correlated rewards in [0, 1], NaN from a random length on."""
    rng = np.random.default_rng(seed)
    rewards = np.clip(0.5 + 0.1 * np.cumsum(rng.normal(size=(n, horizon)), axis=1), 0.0, 1.0)
    rewards[np.arange(horizon) >= rng.integers(1, horizon + 1, n)[:, None]] = NAN
    return rewards


# ---------------------------------------------------------------------- coefficients


def test_the_variance_of_the_estimate_is_the_sum_of_coefficients_over_counts():
    """A process of three steps, three episodes of lengths 3, 2 and 1: all 8 ** 3 outcomes are enumerated."""
    tosses = list(product([0.0, 1.0], repeat=3))
    outcomes = np.array([[a, 2.0 * a - b, a * b + c] for a, b, c in tosses])
    exact = np.cov(outcomes.T, bias=True)
    truncated = [np.where(np.arange(3) < length, outcomes, NAN) for length in (3, 2, 1)]
    estimates = [core.estimated_return(np.stack(rows), GAMMA) for rows in product(*truncated)]
    f = core.variance_coefficients(exact, GAMMA)
    assert np.var(estimates) == pytest.approx((f / [3, 2, 1]).sum())
    assert np.mean(estimates) == pytest.approx(outcomes.mean(axis=0) @ GAMMA ** np.arange(3))


def test_independent_rewards_of_equal_variance_fall_like_the_discount():
    f = core.variance_coefficients(4.0 * np.eye(6), GAMMA)
    np.testing.assert_allclose(f, 4.0 * GAMMA ** (2 * np.arange(6)))
    counts = core.plan(f, 60_000)
    np.testing.assert_allclose(counts / counts[0], GAMMA ** np.arange(6), atol=1e-3)


def test_rewards_that_are_all_the_same_variable_give_the_discount_schedule():
    f = core.variance_coefficients(np.ones((20, 20)), GAMMA)
    np.testing.assert_allclose(f, horizons.discount_coefficients(GAMMA, 20))


def test_one_terminal_reward_gives_full_episodes():
    covariance = np.zeros((8, 8))
    covariance[7, 7] = 1.0
    f = core.variance_coefficients(covariance, GAMMA)
    np.testing.assert_allclose(f, [0] * 7 + [GAMMA**14])
    assert core.plan(f, 80).tolist() == [10] * 8


def test_rewards_that_cancel_later_need_full_episodes():
    # R_1 = -R_0: the coefficient of the first step is negative, that of both together (1 - gamma)^2.
    f = core.variance_coefficients([[1.0, -1.0], [-1.0, 1.0]], GAMMA)
    assert f[0] < 0.0
    np.testing.assert_allclose(core.pooled(f), (1 - GAMMA) ** 2 / 2)
    assert core.plan(f, 20).tolist() == [10, 10]


def test_without_variance_episodes_are_full_and_what_needs_no_sampling_gets_the_floor():
    assert core.plan(np.zeros(4), 12).tolist() == [3] * 4
    assert core.plan([1.0, 0.0, -1.0], 12).tolist() == [10, 1, 1]


# ---------------------------------------------------------------------- schedules


@EXAMPLES
@given(f=st.lists(st.floats(-10, 10), min_size=1, max_size=20), extra=st.integers(0, 300))
def test_a_plan_spends_the_budget_never_rises_and_reaches_the_end(f, extra):
    counts = core.plan(f, len(f) + extra)
    assert counts.sum() == len(f) + extra
    assert (np.diff(counts) <= 0).all() and counts[-1] >= 1
    assert counts.tolist() == core.plan(1024.0 * np.array(f), len(f) + extra).tolist()
    survival = counts / counts[0]
    assert (horizons.draw_lengths(survival, 20, np.random.default_rng(0)) >= 1).all()


@EXAMPLES
@given(f=st.lists(st.floats(-10, 10), min_size=1, max_size=20))
def test_pooling_keeps_the_sum_never_rises_and_leaves_falling_sequences_alone(f):
    levels = core.pooled(f)
    assert (np.diff(levels) <= 0).all() and levels.sum() == pytest.approx(sum(f), abs=1e-9)
    falling = sorted(f, reverse=True)
    np.testing.assert_allclose(core.pooled(falling), falling, atol=1e-12)


@EXAMPLES
@given(f=st.lists(st.integers(-2, 40), min_size=1, max_size=4), extra=st.integers(0, 9))
def test_no_other_schedule_has_less_variance(f, extra):
    """Integer plans are compared with all non-increasing ones, beyond the one episode per step that rounding may cost."""
    budget, coefficients = len(f) + extra, np.array(f) / 4
    others = [
        counts
        for counts in product(range(1, budget + 1), repeat=len(f))
        if sum(counts) == budget and all(a >= b for a, b in pairwise(counts))
    ]
    best = (coefficients / np.array(others)).sum(axis=1).min()
    # The best continuous schedule beats every integer one.
    g = np.sqrt(np.maximum(core.pooled(coefficients), 0.0))
    scales = np.linspace(0.0, budget / max(g.max(), 1e-9), 20_001)
    sums = np.maximum(scales[:, None] * g, 1.0).sum(axis=1)
    ideal = np.maximum(scales[min(np.searchsorted(sums, budget), 20_000)] * g, 1.0)
    assert (coefficients / ideal).sum() <= best + 0.01 * np.abs(coefficients).sum()
    counts = core.plan(coefficients, budget)
    assert counts.tolist() in [list(other) for other in others]
    if g.any():
        assert (np.abs(counts - ideal) < 1.01).all()


# ---------------------------------------------------------------------- estimates


@EXAMPLES
@given(seed=st.integers(0, 2**32 - 1))
def test_covariances_are_those_of_the_episodes_that_have_both_steps(seed):
    rewards = uneven_episodes(seed)
    estimate = core.covariances(rewards)
    for first, second in product(range(5), repeat=2):
        both = rewards[~np.isnan(rewards[:, [first, second]]).any(axis=1)][:, [first, second]]
        expected = np.cov(both.T)[0, 1] if len(both) >= 2 else NAN
        assert estimate[first, second] == pytest.approx(expected, nan_ok=True, abs=1e-12)


@EXAMPLES
@given(seed=st.integers(0, 2**32 - 1), delta=st.floats(0.001, 0.999))
def test_bounds_lie_above_the_estimates_and_close_in_on_them(seed, delta):
    rewards = uneven_episodes(seed)
    bounds = core.robust_covariances(rewards, delta, reward_range=1.0)
    # A covariance is at most the product of the deviations, of which all episodes tell that have one of the steps.
    estimate, plain = core.covariances(rewards), core.robust_covariances(rewards, 1.0, 1.0)
    known = ~np.isnan(estimate)
    largest = np.sqrt(np.outer(np.diag(plain), np.diag(plain)))
    np.testing.assert_allclose(plain, np.minimum(np.where(known, estimate, np.inf), largest), atol=1e-12)
    np.testing.assert_allclose(bounds, bounds.T)
    assert (bounds >= plain - 1e-12).all() and (bounds <= 0.25 + 1e-12).all()
    assert (core.robust_covariances(rewards, delta / 2, 1.0) >= bounds - 1e-12).all()
    many = np.tile(rewards, (20_000 // len(rewards), 1))
    closest = core.robust_covariances(many, delta, 1.0)
    np.testing.assert_allclose(closest, core.robust_covariances(many, 1.0, 1.0), atol=0.1)


def test_bounds_hold_as_often_as_they_say():
    rng, delta, runs = np.random.default_rng(8), 0.05, 2000
    failed = np.zeros((2, 2))
    exact = np.array([[0.25, 0.1], [0.1, 0.25]])  # of two tosses that agree with probability 0.7
    for _ in range(runs):
        first = rng.random(30) < 0.5
        second = first ^ (rng.random(30) < 0.3)
        failed += core.robust_covariances(np.stack([first, second], axis=1), delta, 1.0) < exact - 1e-12
    allowed = np.array([[delta, 4 * delta], [4 * delta, delta]]) * runs
    assert (failed <= allowed + NormalDist().inv_cdf(1 - ALPHA / 3) * np.sqrt(allowed)).all()


def test_where_nothing_is_known_the_discount_decides():
    bounds = core.robust_covariances(np.zeros((0, 30)), 0.1)
    np.testing.assert_allclose(core.variance_coefficients(bounds, GAMMA), horizons.discount_coefficients(GAMMA, 30) / 4)


def test_a_step_that_has_never_been_reached_is_given_the_largest_variance():
    rewards = np.array([[0.0, NAN], [1.0, NAN]] * 50)
    bounds = core.robust_covariances(rewards, 1.0)
    np.testing.assert_allclose(np.diag(bounds), [0.25, 0.25], atol=0.01)
    same = np.array([[1.0, NAN]] * 50)
    assert not core.robust_covariances(same, 0.1).any()  # no reward differs from any other


# ---------------------------------------------------------------------- over time


def test_episodes_are_full_until_enough_are_recorded():
    rule = AdaptiveHorizons(horizon=4, min_episodes=2)
    rule.record([1.0, 0.0], terminated=True)
    rule.replan()
    assert rule(3, np.random.default_rng(0)).tolist() == [4, 4, 4]


def test_lengths_follow_where_the_rewards_vary():
    rng = np.random.default_rng(9)
    early, late = AdaptiveHorizons(20, gamma=1.0), AdaptiveHorizons(20, gamma=1.0)
    for _ in range(256):
        toss = float(rng.random() < 0.5)
        early.record([toss, *[0.0] * 19], terminated=False)
        late.record([*[0.0] * 19, toss], terminated=False)
    early.replan()
    late.replan()
    assert early.survival[0] == 1.0 and early.survival[1] < 0.1
    np.testing.assert_allclose(late.survival, 1.0)
    assert early(1000, rng).mean() < 2 and late(1000, rng).tolist() == [20] * 1000


def test_a_plan_of_few_episodes_is_nearly_the_best():
    """Of independent rewards; the figures are those of the docstring."""
    horizon, n_episodes, runs = 200, 64, 10
    f = core.variance_coefficients(np.eye(horizon), 0.99)

    def excess(survival: np.ndarray) -> float:
        """Variance at an equal number of steps, relative to the best schedule's."""
        return float((f / survival).sum() * survival.sum() / np.sqrt(f).sum() ** 2 - 1.0)

    def mean_excess(delta: float) -> float:
        total = 0.0
        for seed in range(runs):
            rule = AdaptiveHorizons(horizon, delta=delta, reward_range=1.0)
            for rewards in np.random.default_rng(seed).random((n_episodes, horizon)):
                rule.record(rewards, terminated=False)
            rule.replan()
            total += excess(rule.survival) / runs
        return total

    assert mean_excess(1.0) == pytest.approx(0.02, abs=0.01)
    assert mean_excess(0.5) == pytest.approx(0.08, abs=0.01)
    assert excess(horizons.discount_survival(0.99, horizon)) == pytest.approx(0.08, abs=0.005)
    assert excess(np.ones(horizon)) == pytest.approx(0.32, abs=0.005)


def test_rewards_after_a_termination_are_0_and_after_a_truncation_unknown():
    ended, cut = AdaptiveHorizons(3, min_episodes=2), AdaptiveHorizons(3, min_episodes=2)
    for reward in (0.0, 1.0):
        ended.record([reward], terminated=True)
        cut.record([reward], terminated=False)
    ended.replan()
    cut.replan()
    assert ended.survival[1] == pytest.approx(1 / 190)  # the floor of 1 among 64 * 3 - 2
    np.testing.assert_allclose(cut.survival, horizons.discount_survival(0.99, 3), atol=0.02)


def test_only_the_latest_episodes_count():
    rule = AdaptiveHorizons(2, memory=10, min_episodes=10, reward_range=1.0)
    for reward in [0.0, 1.0] * 5:
        rule.record([reward, 0.0], terminated=False)
    rule.replan()
    assert rule.survival[1] < 0.1
    for reward in [0.0, 1.0] * 5:
        rule.record([0.0, reward], terminated=False)
    rule.replan()
    assert rule.survival.tolist() == [1.0, 1.0]


def test_misuse_is_told():
    with pytest.raises(ValueError, match="No episode has reached step 1 of 2"):
        core.estimated_return([[1.0, NAN]], GAMMA)
    with pytest.raises(ValueError, match=r"\(n_episodes, horizon\), got \(1,\)"):
        core.covariances([1.0])
    with pytest.raises(ValueError, match=r"delta must be in \(0, 1\], got 0"):
        core.robust_covariances([[1.0]], 0)
    with pytest.raises(ValueError, match=r"without NaN, got \(1, 1\)"):
        core.variance_coefficients([[NAN]], GAMMA)
    with pytest.raises(ValueError, match="budget=1 steps are less than one episode of 2"):
        core.plan([1.0, 1.0], 1)
    with pytest.raises(ValueError, match=r"of 1 to 2 steps, got \(3,\)"):
        AdaptiveHorizons(2).record([1.0] * 3, True)
    with pytest.raises(ValueError, match="horizon=0 must be at least 1"):
        AdaptiveHorizons(0)
    with pytest.raises(ValueError, match="memory=5 holds fewer episodes than min_episodes=10"):
        AdaptiveHorizons(2, memory=5)
    with pytest.raises(ValueError, match=r"gamma=1\.5 and delta=1\.0 must lie in"):
        AdaptiveHorizons(2, gamma=1.5)
