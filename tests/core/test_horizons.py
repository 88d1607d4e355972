"""Horizon budgets agree with their closed forms, and no other lengths give a narrower interval."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sb3_budget.core import horizons

ALPHA = 1e-4
EXAMPLES = settings(max_examples=50, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
GAMMAS = st.floats(0.5, 1.0)
HORIZONS = st.integers(1, 200)


def plausible(count: int, n_draws: int, probability: float, n_tests: int = 1) -> bool:
    """Whether a binomial count is within its normal interval of level ALPHA, shared among several tests."""
    width = NormalDist().inv_cdf(1 - ALPHA / (2 * n_tests)) * np.sqrt(n_draws * probability * (1 - probability))
    return bool(abs(count - n_draws * probability) <= width)


@pytest.mark.parametrize(("gamma", "horizon"), [(0.5, 6), (0.9, 50), (0.99, 1000)])
def test_coefficients_are_those_of_the_paper(gamma: float, horizon: int) -> None:
    t = np.arange(horizon)
    expected = gamma**t * (gamma**t + gamma ** (t + 1) - 2 * gamma**horizon) / (1 - gamma)
    np.testing.assert_allclose(horizons.discount_coefficients(gamma, horizon), expected, rtol=1e-9)


def test_coefficients_reach_their_limit_without_discounting() -> None:
    limit = [9, 7, 5, 3, 1]
    np.testing.assert_allclose(horizons.discount_coefficients(1.0, 5), limit)
    np.testing.assert_allclose(horizons.discount_coefficients(1.0 - 1e-12, 5), limit, rtol=1e-9)


def test_episodes_of_one_step_have_one_schedule() -> None:
    assert horizons.discount_survival(0.9, 1).tolist() == [1.0]
    assert horizons.interval_ratio(0.9, 1) == pytest.approx(1.0)
    assert horizons.draw_lengths([1.0], 4, np.random.default_rng(0)).tolist() == [1, 1, 1, 1]


@EXAMPLES
@given(gamma=GAMMAS, horizon=HORIZONS)
def test_survival_falls_from_one_and_stays_positive(gamma: float, horizon: int) -> None:
    survival = horizons.discount_survival(gamma, horizon)
    assert survival.shape == (horizon,)
    assert survival[0] == 1.0
    assert np.all(np.diff(survival) <= 0.0)
    assert survival[-1] > 0.0


@pytest.mark.parametrize(
    ("gamma", "horizon", "ratio", "share"),
    [(0.99, 1000, 0.45, 0.1), (0.995, 1000, 0.62, 0.2), (0.999, 1000, 0.89, 0.5), (0.99, 500, 0.62, 0.2)],
)
def test_known_gains_and_mean_lengths(gamma: float, horizon: int, ratio: float, share: float) -> None:
    assert horizons.interval_ratio(gamma, horizon) == pytest.approx(ratio, abs=0.005)
    mean_length = horizons.mean_length(horizons.discount_survival(gamma, horizon))
    assert mean_length / horizon == pytest.approx(share, abs=0.005)


@EXAMPLES
@given(gamma=GAMMAS, horizon=st.integers(2, 40), seed=st.integers(0, 2**32 - 1))
def test_no_other_survival_gives_a_narrower_interval(gamma: float, horizon: int, seed: int) -> None:
    coefficients = horizons.discount_coefficients(gamma, horizon)

    def squared_width(survival: np.ndarray) -> float:
        """At a budget of one step per step of the horizon."""
        return float(np.sum(coefficients / (survival * horizon / survival.sum())))

    best = squared_width(horizons.discount_survival(gamma, horizon))
    uniform = squared_width(np.ones(horizon))
    other = np.sort(np.random.default_rng(seed).uniform(0.01, 1.0, horizon))[::-1]
    assert best <= squared_width(other) * (1 + 1e-9)
    assert horizons.interval_ratio(gamma, horizon) == pytest.approx(np.sqrt(best / uniform))


def test_mean_length_is_the_sum_of_survival() -> None:
    assert horizons.mean_length([1.0, 0.5, 0.25]) == 1.75
    assert horizons.mean_length(np.ones(7)) == 7.0


def test_lengths_have_the_survival_that_they_are_drawn_from() -> None:
    survival = np.array([1.0, 0.8, 0.8, 0.3, 0.0])
    lengths = horizons.draw_lengths(survival, 20_000, np.random.default_rng(5), full_fraction=0.0)
    observed = np.bincount(lengths, minlength=6)[1:]
    probabilities = -np.diff(survival, append=0.0)
    assert observed[[1, 4]].tolist() == [0, 0]
    for count, probability in zip(observed, probabilities, strict=True):
        assert plausible(count, lengths.size, probability, survival.size)


def test_a_share_of_the_lengths_is_full() -> None:
    lengths = horizons.draw_lengths([1.0, 0.0, 0.0], 5000, np.random.default_rng(6), full_fraction=0.2)
    assert set(lengths.tolist()) == {1, 3}
    assert plausible(int(np.sum(lengths == 3)), lengths.size, 0.2)


def test_extreme_full_fractions() -> None:
    rng = np.random.default_rng(7)
    assert horizons.draw_lengths([1.0, 0.0], 5, rng, full_fraction=0.0).tolist() == [1] * 5
    assert horizons.draw_lengths([1.0, 0.0], 5, rng, full_fraction=1.0).tolist() == [2] * 5
    assert horizons.draw_lengths([1.0, 0.0], 0, rng).tolist() == []


@EXAMPLES
@given(gamma=GAMMAS, horizon=HORIZONS, seed=st.integers(0, 2**32 - 1))
def test_lengths_are_in_range_and_repeatable(gamma: float, horizon: int, seed: int) -> None:
    survival = horizons.discount_survival(gamma, horizon)
    lengths = horizons.draw_lengths(survival, 50, np.random.default_rng(seed))
    assert lengths.dtype == np.int64
    assert np.all((lengths >= 1) & (lengths <= horizon))
    np.testing.assert_array_equal(lengths, horizons.draw_lengths(survival, 50, np.random.default_rng(seed)))


def test_bad_input_is_refused_with_the_numbers() -> None:
    rng = np.random.default_rng(0)
    for gamma in (0.0, 1.1, float("nan")):
        with pytest.raises(ValueError, match=rf"gamma must be in \(0, 1\], got {gamma}"):
            horizons.discount_survival(gamma, 10)
    with pytest.raises(ValueError, match="horizon must be at least 1, got 0"):
        horizons.interval_ratio(0.9, 0)
    with pytest.raises(ValueError, match=r"at least one step, got \(0,\)"):
        horizons.mean_length([])
    with pytest.raises(ValueError, match=r"begin at 1, since no episode has length 0, got 0\.9"):
        horizons.mean_length([0.9, 0.5])
    with pytest.raises(ValueError, match=r"largest increase of 0\.25"):
        horizons.draw_lengths([1.0, 0.5, 0.75], 3, rng)
    with pytest.raises(ValueError, match=r"an end of -0\.5"):
        horizons.draw_lengths([1.0, -0.5], 3, rng)
    with pytest.raises(ValueError, match="survival must not increase"):
        horizons.draw_lengths([1.0, float("nan")], 3, rng)
    with pytest.raises(ValueError, match="n must not be negative, got -1"):
        horizons.draw_lengths([1.0], -1, rng)
    with pytest.raises(ValueError, match=r"full_fraction must be in \[0, 1\], got 2"):
        horizons.draw_lengths([1.0], 1, rng, full_fraction=2)
