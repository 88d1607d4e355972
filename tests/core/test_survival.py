"""How many episodes live to their time limit."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sb3_budget.core.survival import Survival

ALPHA = 1e-6
NEVER = 10**9


def simulate(survival, rng, n_steps, danger, stop=0.0, n_envs=64):
    """At each step episodes end with the chance ``danger(age)``, or are stopped with the chance ``stop``."""
    ages = np.zeros(n_envs, dtype=np.int64)
    for _ in range(n_steps):
        ended = rng.random(n_envs) < danger(ages)
        survival.add(ages, ended)
        gone = ended | (rng.random(n_envs) < stop) | (ages + 1 >= survival.horizon)
        ages = np.where(gone, 0, ages + 1)


def test_without_ends_all_live():
    survival = Survival(100, NEVER)
    assert survival.share == 1.0
    survival.add(np.arange(100), np.zeros(100, dtype=bool))
    assert survival.share == 1.0


def test_the_share_is_the_product_over_the_ages():
    survival = Survival(2, NEVER)
    # Of ten episodes two ended at age 0, of five at age 1 one did.
    survival.add(np.array([0] * 10 + [1] * 5), np.array([1] * 2 + [0] * 8 + [1] + [0] * 4, dtype=bool))
    assert survival.share == pytest.approx(8 / 10 * 4 / 5, rel=1e-6)


def test_an_end_counts_once_wherever_in_its_bucket_it_comes():
    for age in (50, 70, 99):
        survival = Survival(1000, NEVER)
        # One of four dies between ages 50 and 100, the others live on.
        for ages, ended in ((range(age + 1), age), *[(range(1000), None)] * 3):
            for each in ages:
                survival.add(np.array([each]), np.array([each == ended]))
        assert survival.share == pytest.approx(3 / 4, rel=1e-6)


def test_where_all_end_none_lives():
    survival = Survival(50, NEVER)
    simulate(survival, np.random.default_rng(0), 40, lambda ages: np.where(ages == 7, 1.0, 0.0))
    assert survival.share < 1e-6


def test_a_stopped_episode_counts_half_at_the_age_at_which_it_was_stopped():
    survival = Survival(100, NEVER)
    # Ages 0 to 4 are one bucket: of three episodes one ends there, one lives, and one is stopped after age 2.
    for age in range(5):
        survival.add(
            np.array([age, age, age][: 3 if age < 3 else 2]), np.array([age == 4, False, False][: 3 if age < 3 else 2])
        )
    assert survival.share == pytest.approx(1 - 1 / 2.5, rel=1e-6)


@given(st.floats(0.0, 0.02), st.integers(20, 200))
def test_ages_beyond_the_horizon_and_short_horizons_are_no_exception(danger, horizon):
    rng = np.random.default_rng(0)
    survival = Survival(horizon, NEVER)
    survival.add(rng.integers(0, 2 * horizon, size=500), rng.random(500) < danger)
    assert 0.0 <= survival.share <= 1.0


def test_stops_that_know_nothing_of_the_danger_do_not_change_the_estimate():
    def danger(ages):
        # All of it comes late, where a stopped episode is rarely seen.
        return np.where(ages >= 60, 0.02, 0.0)

    truth = math.exp(-0.02 * 40)
    survival = Survival(100, NEVER)
    simulate(survival, np.random.default_rng(0), 4000, danger, stop=0.02)
    # Some 256,000 steps, a sixth of them late: 800 ends or more, so that the exponent is known to 1 / sqrt(800) of 0.8. Half
    # of those stopped within 5 ages at 0.02 a step are not at risk, which leaves a bias of a hundredth at most.
    margin = 4.9 * 0.8 / math.sqrt(800) + 0.01
    assert math.erfc(4.9 / math.sqrt(2)) < ALPHA
    assert abs(math.log(survival.share / truth)) < margin


def test_what_was_long_ago_is_forgotten():
    survival, rng = Survival(100, memory=2000.0), np.random.default_rng(0)
    simulate(survival, rng, 500, lambda ages: np.full(len(ages), 0.05))
    assert survival.share < 0.05
    simulate(survival, rng, 500, lambda ages: np.zeros(len(ages)))
    assert survival.share > 0.99


@pytest.mark.parametrize(("horizon", "memory"), [(0, 1.0), (10, 0.0), (10, -1.0), (10, float("nan"))])
def test_bad_input(horizon, memory):
    with pytest.raises(ValueError, match="must be positive"):
        Survival(horizon, memory)
