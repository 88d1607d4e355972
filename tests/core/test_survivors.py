"""Russian roulette on would-be stops."""

import numpy as np
import pytest

from sb3_budget.core.survivors import SurvivorWeights

ALPHA_BOUND = 4.0
"""Standard errors that a mean may be off by: chance 6e-5 of a false alarm."""


def test_a_spared_episode_weighs_more_from_the_second_row_after_the_toss():
    survivors, rng = SurvivorWeights(2, 0.75), np.random.default_rng(0)
    stopped = np.array([True, False])
    while stopped[0]:
        survivors = SurvivorWeights(2, 0.75)
        assert survivors.advance().tolist() == [1.0, 1.0]
        stopped = survivors.toss(np.array([True, False]), rng)
    assert survivors.advance().tolist() == [1.0, 1.0]
    assert survivors.advance().tolist() == [4.0, 1.0]
    assert survivors.advance().tolist() == [4.0, 1.0]


def test_an_end_forgets_the_weight():
    survivors = SurvivorWeights(1, 0.5)
    rng = np.random.default_rng(1)
    survivors.advance()
    survivors.toss(np.array([True]), rng)
    survivors.end(np.array([True]))
    assert [survivors.advance()[0] for _ in range(3)] == [1.0, 1.0, 1.0]


def test_without_a_coin_every_stop_is_made_and_nothing_is_drawn():
    rng = np.random.default_rng(2)
    before = rng.bit_generator.state
    assert SurvivorWeights(2, 1.0).toss(np.array([True, False]), rng).tolist() == [True, False]
    assert rng.bit_generator.state == before


@pytest.mark.parametrize("probability", [0.2, 0.5, 0.9])
def test_weight_of_the_survivors_makes_up_for_those_that_were_stopped(probability):
    n = 100_000
    survivors, rng = SurvivorWeights(n, probability), np.random.default_rng(3)
    alive = ~survivors.toss(np.ones(n, dtype=bool), rng)
    survivors.advance(), survivors.advance()
    total = survivors.advance()[alive].sum() / n
    error = np.sqrt(probability / (1.0 - probability) / n)
    assert abs(total - 1.0) < ALPHA_BOUND * error
