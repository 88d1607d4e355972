"""Running sums over episodes agree with the sums over whole episodes."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from sb3_budget.core.episodes import EpisodeTracker

EXAMPLES = settings(max_examples=25, deadline=None, derandomize=True)


def test_closed_form_over_two_episodes():
    tracker = EpisodeTracker(np.zeros(1, dtype=np.int64), gamma=0.5)
    for value, reward, done in [(7.0, 1.0, False), (8.0, 2.0, False), (9.0, 4.0, True)]:
        tracker.visit(np.array([value]))
        assert tracker.initial_values.tolist() == [7.0]
        tracker.add(np.array([reward]), np.array([done]))
    assert (tracker.lengths[0], tracker.returns[0], tracker.discounts[0]) == (0, 0.0, 1.0)
    tracker.visit(np.array([3.0]))
    tracker.add(np.array([10.0]), np.array([False]))
    assert (tracker.lengths[0], tracker.returns[0], tracker.discounts[0]) == (1, 10.0, 0.5)
    assert tracker.initial_values.tolist() == [3.0]


def test_episodes_that_run_already_keep_their_age():
    tracker = EpisodeTracker(np.array([0, 3]), gamma=0.5)
    assert tracker.discounts.tolist() == [1.0, 0.125]
    tracker.add(np.array([8.0, 8.0]), np.array([False, False]))
    assert tracker.returns.tolist() == [8.0, 1.0]
    assert tracker.lengths.tolist() == [1, 4]


def test_the_given_ages_are_not_changed():
    ages = np.array([2, 5])
    EpisodeTracker(ages, 0.9).add(np.zeros(2), np.ones(2, dtype=bool))
    assert ages.tolist() == [2, 5]


@EXAMPLES
@given(st.data(), st.integers(1, 15), st.integers(1, 4), st.sampled_from([0.0, 0.5, 0.9, 1.0]))
def test_agrees_with_a_sum_over_each_episode(data, n_steps, n_envs, gamma):
    rewards = data.draw(npst.arrays(np.float64, (n_steps, n_envs), elements=st.floats(-10, 10)))
    dones = data.draw(npst.arrays(np.bool_, (n_steps, n_envs)))
    values = np.arange(n_steps * n_envs, dtype=np.float64).reshape(n_steps, n_envs)
    tracker = EpisodeTracker(np.zeros(n_envs, dtype=np.int64), gamma)
    starts = np.zeros(n_envs, dtype=int)
    for t in range(n_steps):
        tracker.visit(values[t])
        for slot in range(n_envs):
            past = rewards[starts[slot] : t, slot]
            assert tracker.lengths[slot] == len(past)
            np.testing.assert_allclose(tracker.returns[slot], (past * gamma ** np.arange(len(past))).sum(), atol=1e-9)
            np.testing.assert_allclose(tracker.discounts[slot], gamma ** len(past))
            assert tracker.initial_values[slot] == values[starts[slot], slot]
        tracker.add(rewards[t], dones[t])
        starts[dones[t]] = t + 1
