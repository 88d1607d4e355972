from __future__ import annotations

import numpy as np
import pytest

from sb3_budget.bench import statistics


def test_iqm_leaves_out_the_outer_quarters():
    assert statistics.iqm(np.array([100.0, 1.0, 2.0, 3.0, 4.0, -100.0, 2.5, 2.5])) == pytest.approx(2.5)


@pytest.mark.parametrize("values", [[7.0], [1.0, 3.0], [1.0, 2.0, 9.0]])
def test_iqm_of_three_or_fewer_is_the_mean(values):
    assert statistics.iqm(np.array(values)) == pytest.approx(np.mean(values))


def test_iqm_works_point_by_point():
    curves = np.array([[0.0, 5.0], [2.0, 6.0], [4.0, 7.0], [90.0, -90.0]])
    np.testing.assert_allclose(statistics.iqm(curves), [3.0, 5.5])


def test_interval_of_equal_values_has_no_width():
    assert statistics.interval(np.full(5, 3.0)) == (3.0, (3.0, 3.0))


def test_interval_contains_the_iqm_and_is_repeatable():
    values = np.random.default_rng(1).normal(size=9)
    first, second = statistics.interval(values), statistics.interval(values)
    assert first == second
    assert first.ci[0] < first.iqm < first.ci[1]


def test_bootstrap_interval_covers_the_mean_about_as_often_as_it_says():
    """Binomial: 200 intervals of nominal 95 % over normal samples of 12; fewer than 160 hits has probability < 1e-6
    even at a true coverage of 90 %."""
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(200):
        low, high = statistics.interval(rng.normal(size=12)).ci
        hits += low <= 0.0 <= high
    assert hits >= 160


def test_area_is_the_mean_height_of_the_trapezoids():
    steps = np.array([0.0, 10.0, 30.0])
    np.testing.assert_allclose(statistics.area(steps, np.array([[0.0, 2.0, 4.0], [1.0, 1.0, 1.0]])), [70 / 30, 1.0])


def test_area_of_one_point_is_its_height():
    assert statistics.area(np.array([5.0]), np.array([3.0])) == 3.0


@pytest.mark.parametrize(
    ("level", "expected"), [(5.0, 50.0), (10.0, 100.0), (0.0, 0.0), (-3.0, 0.0), (15.0, 250.0), (20.1, np.inf)]
)
def test_first_reach_interpolates_and_takes_the_first_crossing(level, expected):
    steps = np.array([0.0, 100.0, 200.0, 300.0])
    assert statistics.first_reach(steps, np.array([0.0, 10.0, 10.0, 20.0]), level) == pytest.approx(expected)


def test_reach_interval_of_one_seed_is_a_point():
    steps, returns = np.array([0.0, 100.0]), np.array([[0.0, 10.0]])
    assert statistics.reach_interval(steps, returns, 4.0) == (40.0, 40.0)


def test_reach_interval_is_open_where_resampled_curves_never_arrive():
    steps, returns = np.array([0.0, 100.0]), np.array([[0.0, 10.0], [0.0, 1.0]])
    low, high = statistics.reach_interval(steps, returns, 5.0)
    assert low == 50.0
    assert high == np.inf
