"""Rows of a rollout know their group and episode, and can be left out."""

from __future__ import annotations

import numpy as np
import pytest
import torch as th
from gymnasium import spaces

from sb3_budget import FinishedGroupRolloutBuffer, GroupRolloutBuffer
from sb3_budget.core.groups import residual_advantages

OBSERVATIONS, ACTIONS = spaces.Box(-1.0, 1.0, (1,), np.float32), spaces.Discrete(2)


def fill(buffer, n_steps, ends, first=None, seed=0):
    """Rows whose observation is their number, with the given ends, shape (n_steps, n_envs)."""
    rng, n_envs = np.random.default_rng(seed), buffer.n_envs
    started = np.ones(n_envs, dtype=bool) if first is None else first
    for row in range(n_steps):
        observations = np.arange(n_envs, dtype=np.float32)[:, None] + n_envs * row
        rewards = rng.normal(size=n_envs).astype(np.float32)
        values, log_probs = th.tensor(rng.normal(size=n_envs)), th.zeros(n_envs)
        buffer.add(observations, np.zeros((n_envs, 1)), rewards, started, values, log_probs)
        started = ends[row]
    buffer.compute_returns_and_advantage(th.zeros(n_envs), started)


def make(cls=GroupRolloutBuffer, n_steps=4, n_envs=4, **kwargs):
    buffer = cls(n_steps, OBSERVATIONS, ACTIONS, device="cpu", n_envs=n_envs, group_size=2, seed=0, **kwargs)
    buffer.reset()
    return buffer


def no_ends(n_steps=4, n_envs=4):
    return np.zeros((n_steps, n_envs), dtype=bool)


def sampled(buffer, batch_size=3):
    batches = [samples.observations.numpy().ravel().tolist() for samples in buffer.get(batch_size)]
    return sorted(int(number) for batch in batches for number in batch)


@pytest.mark.parametrize("cls", [GroupRolloutBuffer, FinishedGroupRolloutBuffer])
def test_an_episode_that_is_left_out_is_never_sampled(cls):
    buffer, ends = make(cls), no_ends()
    ends[1], ends[3] = True, True
    fill(buffer, 4, ends)
    buffer.leave_out([(0, 1)])
    # Group 0 are slots 0 and 1, and its episode 1 are the last two rows.
    assert sampled(buffer) == sorted({*range(16)} - {8, 9, 12, 13})
    assert not buffer.empty
    buffer = make(cls)
    fill(buffer, 4, ends)
    buffer.leave_out([(group, episode) for group in (0, 1) for episode in (0, 1)])
    assert buffer.empty


def test_an_episode_that_is_dropped_stays_so_until_its_group_is_past_it():
    buffer = make()
    buffer.drop_episodes([(1, 0)])
    fill(buffer, 4, no_ends())
    np.testing.assert_array_equal(buffer.weights, [[1, 1, 0, 0]] * 4)
    buffer.reset()
    ends = no_ends()
    ends[1, 2:] = True
    fill(buffer, 4, ends, first=np.zeros(4, dtype=bool))
    np.testing.assert_array_equal(buffer.weights[:, 2:], [[0, 0], [0, 0], [1, 1], [1, 1]])
    assert not buffer._dropped


def test_without_a_scale_residuals_are_those_of_the_core():
    plain, scaled = make(), make(scale="batch")
    for buffer in (plain, scaled):
        fill(buffer, 4, no_ends())
    gae = plain.returns - plain.values
    group = np.broadcast_to([0, 0, 1, 1], (4, 4))
    expected = residual_advantages(gae, group, plain.episodes, plain.times).advantages
    np.testing.assert_allclose(plain.advantages, expected, atol=1e-6)
    np.testing.assert_allclose(scaled.advantages, expected / expected.std(), atol=1e-5)


def test_remembered_rows_of_a_mate_that_is_ahead_are_peers():
    counts = {}
    for n_rollouts in (0, 1):
        buffer, ends = make(n_steps=2, n_envs=2, remember_peers=n_rollouts), no_ends(2, 2)
        # Slot 1 is one row ahead: it begins episode 1 at the second row, slot 0 at the third.
        ends[0, 1], ends[1, 0] = True, True
        fill(buffer, 2, ends)
        buffer.reset()
        fill(buffer, 2, no_ends(2, 2), first=np.array([True, False]))
        counts[n_rollouts] = buffer.statistics.mean_peers
    # Without a memory one step of two is met, at either side; with it slot 0 meets its mate at its first step too.
    assert counts == {0: 0.5, 1: 0.75}


def test_plain_rewards_are_what_was_noted_and_otherwise_what_was_added():
    buffer = make(n_steps=1, n_envs=4)
    buffer.note_rewards(np.array([1.0, np.nan, 3.0, 4.0]))
    fill(buffer, 1, no_ends(1))
    np.testing.assert_array_equal(buffer.plain_rewards[0, [0, 2, 3]], [1.0, 3.0, 4.0])
    assert buffer.plain_rewards[0, 1] == buffer.rewards[0, 1]


def test_whole_episodes_come_together_and_all_of_them():
    buffer, ends = make(FinishedGroupRolloutBuffer, n_steps=6), no_ends(6)
    ends[1], ends[2, ::2], ends[5] = True, True, True
    fill(buffer, 6, ends)
    seen = []
    for samples, episode in buffer.get_episodes(8):
        rows = samples.observations.numpy().ravel().astype(int)
        for number in range(episode.max() + 1):
            slots = rows[episode == number] % 4
            assert len(set(slots.tolist())) == 1
        seen += rows.tolist()
    finished = {(group.group, group.episode) for group in buffer.finished}
    expected = [
        row * 4 + slot for row in range(6) for slot in range(4) if (slot // 2, int(buffer.episodes[row, slot])) in finished
    ]
    assert sorted(seen) == sorted(expected)


def test_rows_belong_to_the_episodes_that_were_noted():
    """Slot 0 plays one member of start 7 while slot 1 plays the other, and then both of start 8."""
    buffer = make(FinishedGroupRolloutBuffer, n_steps=4, n_envs=2, scale="none")
    episodes, members = np.array([[7, 7], [7, 8], [7, 8], [7, 9]]), np.array([[1, 0], [1, 0], [1, 1], [1, 0]])
    add, row, ends = buffer.add, iter(range(4)), no_ends(4, 2)

    def noted(*args):
        present = next(row)
        buffer.note_episodes(episodes[present], members[present])
        add(*args)

    buffer.add, ends[:3, 1], ends[3, 0] = noted, True, True
    fill(buffer, 4, ends)
    np.testing.assert_array_equal(buffer.episodes, episodes)
    assert [(group.group, group.episode) for group in buffer.finished] == [(0, 8), (0, 7)]
    # Row 1 and 2 of slot 1 are start 8; row 0 of slot 1 and all of slot 0 are start 7; the last of slot 1 waits.
    assert sampled(buffer) == [0, 1, 2, 3, 4, 5, 6]
    rewards, columns = buffer.plain_rewards.astype(np.float64), buffer._ready.columns
    np.testing.assert_allclose(
        columns["advantages"][columns["episode"] == 8][0], (rewards[1, 1] - rewards[2, 1]) / 2, rtol=1e-5
    )
    slow = columns["advantages"][(columns["episode"] == 7) & (columns["member"] == 1)]
    np.testing.assert_allclose(slow, [(rewards[:, 0].sum() - rewards[0, 1]) / 2] * 4, rtol=1e-5)
    assert len(buffer._carried) == 1
