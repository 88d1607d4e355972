"""Targets are found again by their keys, wherever rows have moved to; untried actions stand beside them."""

from __future__ import annotations

import numpy as np

from sb3_budget.buffers.pooled_targets import PooledTargets, Untried
from sb3_budget.core.transition_pool import TransitionPool


def pool_of(*keys):
    pool = TransitionPool(10, {"rewards": ((), np.float32)})
    for key in keys:
        pool.put(key, {"rewards": 0.0})
    return pool


def draw(targets, pool, n=2_000):
    return targets.draw(pool, n, np.random.default_rng(0))


def test_targets_follow_their_keys_and_what_is_new_has_none():
    drawn = draw(PooledTargets(["a", "b"], np.array([1.0, 2.0]), gamma=0.5), pool_of("new", "b", "a"))
    values = np.array([np.nan, 2.0, 1.0], dtype=np.float32)
    np.testing.assert_array_equal(drawn.values.ravel(), values[drawn.rows])
    assert set(drawn.rows.tolist()) == {0, 1, 2} and not drawn.replaced.any() and len(drawn.actions) == 0


def test_untried_actions_are_drawn_as_often_as_pooled_rows_in_the_states_where_they_were_not_tried():
    untried = Untried(["b", "b"], np.array([[3], [4]]), 7.0)
    drawn = draw(PooledTargets(["a", "b"], np.array([1.0, 2.0]), 0.5, untried), pool_of("a", "b"))
    assert (drawn.rows[drawn.replaced] == 1).all() and (drawn.values[drawn.replaced] == 7.0).all()
    assert len(drawn.actions) == drawn.replaced.sum()
    counts = [*np.bincount(drawn.rows[~drawn.replaced]), *(np.sum(drawn.actions == action) for action in (3, 4))]
    assert len(counts) == 4 and min(counts) > 430  # of 500 expected, more than three standard deviations


def test_a_pooled_row_stands_in_for_an_untried_action_whose_state_has_left():
    untried = Untried(["b"], np.array([[3]]), 7.0)
    drawn = draw(PooledTargets(["a", "b"], np.array([1.0, 2.0]), 0.5, untried), pool_of("a"))
    assert not drawn.replaced.any() and (drawn.rows == 0).all() and (drawn.values == 1.0).all() and len(drawn.actions) == 0
