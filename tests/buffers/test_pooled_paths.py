"""Paths are found again by their keys, wherever rows have moved to."""

from __future__ import annotations

import numpy as np

from sb3_budget.buffers.pooled_paths import PooledPaths
from sb3_budget.core.transition_graph import Paths
from sb3_budget.core.transition_pool import TransitionPool


def pool_of(*keys):
    pool = TransitionPool(10, {"rewards": ((), np.float32)})
    for key in keys:
        pool.put(key, {"rewards": 0.0})
    return pool


def test_paths_follow_their_keys_and_what_has_none_is_a_single_step():
    found = Paths(np.array([1.0, 2.0, 3.0]), np.array([0.25, 0.5, 0.5]), np.array([1, 1, 2]), np.array([2, 1, 1]))
    paths = PooledPaths(["a", "b", "c"], found, gamma=0.5)
    assert paths.mean_length == 4 / 3
    rewards, discounts, last = paths.of(pool_of("new", "b", "a"), np.array([0, 1, 2, 2]))
    np.testing.assert_array_equal(rewards, np.array([[np.nan], [2.0], [1.0], [1.0]], dtype=np.float32))
    assert discounts.ravel().tolist() == [0.5, 0.5, 0.25, 0.25] and last.tolist() == [0, 1, 1, 1]


def test_a_path_whose_end_is_gone_is_a_single_step():
    paths = PooledPaths(["a", "b"], Paths(np.ones(2), np.full(2, 0.25), np.array([1, 1]), np.array([2, 1])), gamma=0.5)
    rewards, discounts, last = paths.of(pool_of("a"), np.array([0]))
    assert np.isnan(rewards).all() and discounts.tolist() == [[0.5]] and last.tolist() == [0]


def test_no_transitions_have_a_mean_length_of_zero():
    empty = np.zeros(0)
    assert PooledPaths([], Paths(empty, empty, empty.astype(int), empty.astype(int)), gamma=0.5).mean_length == 0.0
