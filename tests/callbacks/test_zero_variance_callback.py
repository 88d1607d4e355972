"""What is logged is what the buffer holds, and ranking changes who leaves."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.callbacks import EveryNTimesteps
from stable_baselines3.common.vec_env import DummyVecEnv

from sb3_budget.buffers.zero_variance_replay_buffer import ZeroVarianceReplayBuffer
from sb3_budget.callbacks.zero_variance_callback import ZeroVarianceCallback, dqn_td_errors


def make(algorithm=DQN, slippery=False, buffer=None, **kwargs):
    venv = DummyVecEnv([lambda: gym.make("FrozenLake-v1", is_slippery=slippery)] * 2)
    if algorithm is DQN:
        settings = {"learning_starts": 50, "train_freq": 8, "batch_size": 16, "buffer_size": 500}
        kwargs = settings | {"replay_buffer_class": ZeroVarianceReplayBuffer, **kwargs}
        kwargs["replay_buffer_kwargs"] = {"start_after": 50, "min_count": 2, **(buffer or {})}
        if kwargs["replay_buffer_class"] is None:
            del kwargs["replay_buffer_kwargs"]
    return algorithm("MlpPolicy", venv, seed=3, device="cpu", **kwargs)


def test_logged_numbers_are_the_buffers():
    model = make()
    model.learn(200, callback=ZeroVarianceCallback())
    logged, found = model.logger.name_to_value, model.replay_buffer.statistics
    assert logged["budget/replay_pool_size"] == found.size > 0
    assert logged["budget/replay_hit_rate"] == found.hit_rate > 0.5
    assert logged["budget/replay_promoted"] == found.promoted > 0
    assert logged["budget/replay_stochastic"] == found.stochastic == 0
    assert 0.0 < logged["budget/replay_pool_share"] <= 0.25


def test_logging_changes_no_parameter():
    with_it = make().learn(200, callback=ZeroVarianceCallback())
    without = make().learn(200)
    pairs = zip(with_it.policy.parameters(), without.policy.parameters(), strict=True)
    assert all(th.equal(one, other) for one, other in pairs)


def test_temporal_differences_by_hand():
    model = make(gamma=0.5, buffer={"start_after": 0})
    model.learn(100)
    buffer = model.replay_buffer
    samples = buffer.read_pool(np.arange(len(buffer.pool)))
    errors = dqn_td_errors(model, samples)
    for row in range(len(errors)):
        with th.no_grad():
            value = model.q_net(samples.observations[row : row + 1])[0, samples.actions[row, 0]]
            future = model.q_net_target(samples.next_observations[row : row + 1]).max()
        target = samples.rewards[row, 0] + (1 - samples.dones[row, 0]) * 0.5 * future
        assert errors[row] == pytest.approx(abs(float(target - value)), abs=1e-6)


def by_action(model, samples):
    return samples.actions.flatten().numpy()


@pytest.mark.parametrize("rank", [by_action, None])
def test_a_ranked_pool_has_the_ranks_of_its_transitions(rank):
    model = make(buffer={"eviction": "priority", "capacity": 6})
    model.learn(600, callback=ZeroVarianceCallback(rank, rank_every=64))
    pool = model.replay_buffer.pool
    ranks, known = pool._priorities[:6], np.isfinite(pool._priorities[:6])
    assert len(pool) == 6 and known.any()
    if rank is by_action:
        assert (ranks[known] == pool.take(np.flatnonzero(known))["actions"].ravel()).all()


@pytest.mark.parametrize(
    ("model", "callback", "match"),
    [
        (lambda: make(replay_buffer_class=None), ZeroVarianceCallback, "not ReplayBuffer"),
        (lambda: make(PPO), ZeroVarianceCallback, "not NoneType"),
        (make, lambda: EveryNTimesteps(10, ZeroVarianceCallback()), "inside EveryNTimesteps"),
    ],
)
def test_another_place_is_refused_before_training(model, callback, match):
    with pytest.raises(ValueError, match=match):
        model().learn(100, callback=callback())


def test_ranking_needs_a_rank_outside_dqn():
    class Other(DQN):
        pass

    with pytest.raises(ValueError, match="rank="):
        make(Other, replay_buffer_class=ZeroVarianceReplayBuffer, replay_buffer_kwargs={"eviction": "priority"}).learn(
            10, callback=ZeroVarianceCallback()
        )
    with pytest.raises(ValueError, match="rank_every=0"):
        ZeroVarianceCallback(rank_every=0)
