"""Groups are finished when their last member is, with the returns of episodes that were seen whole."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sb3_budget.core.group_outcomes import FinishedGroup, GroupOutcomes, outcome_statistics

EXAMPLES = settings(max_examples=50, deadline=None, derandomize=True)


def play(rng, n_envs, n_steps, n_rollouts, p_end):
    """Rows of slots whose episodes end at random, rollout by rollout."""
    episodes, times = np.zeros(n_envs, dtype=np.int64), np.zeros(n_envs, dtype=np.int64)
    for _ in range(n_rollouts):
        rows = [np.zeros((n_steps, n_envs), dtype=np.int64) for _ in range(2)]
        rewards, ends = rng.normal(size=(n_steps, n_envs)), rng.random((n_steps, n_envs)) < p_end
        for row in range(n_steps):
            rows[0][row], rows[1][row] = episodes, times
            episodes, times = episodes + ends[row], np.where(ends[row], 0, times + 1)
        yield rewards, rows[0], rows[1], ends


@EXAMPLES
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 3]), st.integers(1, 7), st.floats(0.05, 0.9))
def test_a_group_is_reported_once_with_the_sums_of_its_rewards(seed, group_size, n_steps, p_end):
    rng, outcomes = np.random.default_rng(seed), GroupOutcomes(6, group_size)
    returns, lengths, ended, reported = {}, {}, set(), {}
    for rewards, episodes, times, ends in play(rng, 6, n_steps, 8, p_end):
        finished = outcomes.add(rewards, episodes, times, ends)
        for row, slot in np.ndindex(*rewards.shape):
            key = (slot, int(episodes[row, slot]))
            returns[key] = returns.get(key, 0.0) + rewards[row, slot]
            lengths[key] = lengths.get(key, 0) + 1
            if ends[row, slot]:
                ended.add(key)
        for group in finished:
            assert (group.group, group.episode) not in reported
            reported[group.group, group.episode] = group
    for group in range(6 // group_size):
        members = range(group * group_size, (group + 1) * group_size)
        for episode in range(50):
            keys = [(slot, episode) for slot in members]
            assert ((group, episode) in reported) == all(key in ended for key in keys)
            if (group, episode) in reported:
                found = reported[group, episode]
                np.testing.assert_allclose(found.returns, [returns[key] for key in keys], atol=1e-12)
                np.testing.assert_array_equal(found.lengths, [lengths[key] for key in keys])
    whole = [returns[key] for key in ended]
    assert outcomes._moments.n == len(whole)
    if whole:
        assert outcomes.return_std == pytest.approx(np.std(whole))


def test_an_episode_that_was_not_seen_from_its_first_step_on_finishes_no_group():
    outcomes = GroupOutcomes(2, 2)
    rows = np.ones((2, 2))
    # Slot 1 is in its third step already; episode 0 ends for both, and episode 1 after it.
    ends = np.array([[True, True], [True, True]])
    finished = outcomes.add(rows, np.array([[0, 0], [1, 1]]), np.array([[0, 2], [0, 0]]), ends)
    assert [(group.group, group.episode) for group in finished] == [(0, 1)]
    assert outcomes._moments.n == 3


def test_a_slot_that_was_moved_on_in_the_middle_starts_counting_anew():
    outcomes = GroupOutcomes(1, 1)
    outcomes.add(np.array([[5.0]]), np.array([[0]]), np.array([[0]]), np.array([[False]]))
    # Not the second step of episode 0, but the first of episode 1.
    (finished,) = outcomes.add(np.array([[1.0]]), np.array([[1]]), np.array([[0]]), np.array([[True]]))
    assert finished.returns.tolist() == [1.0]


def test_groups_that_cannot_be_finished_are_forgotten():
    outcomes = GroupOutcomes(2, 2)
    for episode in range(100):
        # Slot 1 skips every episode that slot 0 ends.
        outcomes.add(
            np.zeros((1, 2)), np.array([[2 * episode, 2 * episode + 1]]), np.zeros((1, 2), int), np.array([[True, True]])
        )
    assert len(outcomes._open) <= 2


def group_of(*returns):
    return FinishedGroup(0, 0, np.zeros(len(returns)), np.ones(len(returns), int), np.array(returns))


def test_a_group_with_a_member_that_was_cut_short_is_not_alike():
    assert outcome_statistics([group_of(2.0, np.nan), group_of(2.0, 2.0)], 1e9, 1.0).zero_variance == 0.5
    assert np.isnan(outcome_statistics([group_of(2.0, np.nan)], 0.0, 1.0)).all()


def test_raw_returns_are_kept_beside_those_of_the_training():
    outcomes, one = GroupOutcomes(2, 2), np.zeros((1, 2), int)
    ends, raw = np.array([[True, True]]), np.array([[7.0, np.nan]])
    (finished,) = outcomes.add(np.array([[0.5, 0.25]]), one, one, ends, raw)
    np.testing.assert_array_equal(finished.returns, [0.5, 0.25])
    np.testing.assert_array_equal(finished.raw_returns, [7.0, np.nan])
    assert outcomes.raw_return_std == 0.0 and outcomes.return_std == 0.125


def test_an_episode_of_the_same_age_but_another_number_was_not_seen_whole():
    outcomes = GroupOutcomes(1, 1)
    outcomes.add(np.array([[5.0]]), np.array([[0]]), np.array([[0]]), np.array([[False]]))
    assert outcomes.add(np.array([[1.0]]), np.array([[2]]), np.array([[1]]), np.array([[True]])) == []


def test_one_slot_may_play_several_members_and_a_later_start_may_finish_first():
    outcomes = GroupOutcomes(2, 2)
    # Slot 0 is in start 0 throughout; slot 1 plays the other member of it, and then both members of start 1.
    rewards = np.array([[1.0, 10.0], [1.0, 20.0], [1.0, 30.0], [1.0, 40.0]])
    episodes = np.array([[0, 0], [0, 1], [0, 1], [0, 2]])
    members = np.array([[1, 0], [1, 0], [1, 1], [1, 0]])
    times = np.array([[0, 0], [1, 0], [2, 0], [3, 0]])
    ends = np.array([[False, True], [False, True], [False, True], [True, False]])
    later, first = outcomes.add(rewards, episodes, times, ends, members=members)
    assert (later.episode, later.returns.tolist()) == (1, [20.0, 30.0])
    assert (first.episode, first.returns.tolist(), first.lengths.tolist()) == (0, [10.0, 4.0], [1, 4])
    assert outcomes.oldest.tolist() == [0]
    # The next rollout goes on with member 0 of start 2, and slot 0 plays the other.
    (last,) = outcomes.add(
        np.ones((1, 2)), np.array([[2, 2]]), np.array([[0, 1]]), np.array([[True, True]]), members=np.array([[1, 0]])
    )
    assert (last.episode, last.returns.tolist(), outcomes.oldest.tolist()) == (2, [41.0, 1.0], [2])


def test_statistics_by_hand():
    statistics = outcome_statistics([group_of(1.0, 3.0), group_of(5.0, 5.0)], 0.0, 1.0)
    assert statistics == (0.5, 0.5)
    assert np.isnan(outcome_statistics([], 0.0, 1.0)).all()


def test_misuse_is_refused():
    with pytest.raises(ValueError, match="n_envs=5 must be a multiple of group_size=2"):
        GroupOutcomes(5, 2)
