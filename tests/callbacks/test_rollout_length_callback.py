"""Rollouts that change their length between two updates."""

import numpy as np
import pytest
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.callbacks import BaseCallback, EveryNTimesteps
from stable_baselines3.common.env_util import make_vec_env

from sb3_budget import (
    RolloutLengthCallback,
    SelectiveMaskableRolloutBuffer,
    SelectiveRecurrentPPO,
    SelectiveRolloutBuffer,
)


def ppo(**kwargs):
    venv = make_vec_env("CartPole-v1", n_envs=2, seed=0)
    return PPO("MlpPolicy", venv, n_steps=8, batch_size=16, n_epochs=2, seed=0, device="cpu", **kwargs)


class Lengths(BaseCallback):
    """Notes the number of rows of every rollout and of every batch that an update was offered."""

    def __init__(self):
        super().__init__()
        self.rows = []

    def _on_step(self):
        return True

    def _on_rollout_end(self):
        buffer = self.model.rollout_buffer
        self.rows.append((len(buffer.rewards), sum(len(batch.returns) for batch in buffer.get(16))))


def test_the_length_follows_the_schedule_and_updates_see_whole_rollouts():
    lengths = Lengths()
    model = ppo(rollout_buffer_class=SelectiveRolloutBuffer)
    schedule = RolloutLengthCallback(lambda progress: 16 if progress > 0.5 else 4)
    model.learn(150, callback=[lengths, schedule])
    # The first rollout too, and the one that begins right after the half.
    assert [rows for rows, _ in lengths.rows] == [16, 16, 16, *[4] * 7]
    assert all(offered == 2 * rows for rows, offered in lengths.rows)


def test_a_second_training_begins_where_the_schedule_does():
    model = ppo(rollout_buffer_class=SelectiveRolloutBuffer)
    schedule, seen = RolloutLengthCallback(lambda progress: round(10 - 6 * progress)), []
    for _ in range(2):
        lengths = Lengths()
        model.learn(100, callback=[lengths, schedule])
        seen.append([rows for rows, _ in lengths.rows])
    assert seen[0] == seen[1] and seen[0][0] == 4 and seen[0][-1] > 8
    lengths = Lengths()
    model.learn(100, callback=[lengths, schedule], reset_num_timesteps=False)
    assert lengths.rows[0][0] == 7


def test_no_length_leaves_a_minibatch_of_one_row():
    contrib = pytest.importorskip("sb3_contrib")
    envs = pytest.importorskip("sb3_contrib.common.envs")
    venv = make_vec_env(envs.InvalidActionEnvDiscrete, n_envs=1, seed=0)
    small = dict(n_steps=16, batch_size=16, n_epochs=1, seed=0, device="cpu")
    maskable = contrib.MaskablePPO("MlpPolicy", venv, rollout_buffer_class=SelectiveMaskableRolloutBuffer, **small)
    for model in (maskable, SelectiveRecurrentPPO("MlpLstmPolicy", venv, **small)):
        model.learn(40, callback=RolloutLengthCallback(lambda progress: 17))
        assert all(np.isfinite(parameter.detach().numpy()).all() for parameter in model.policy.parameters())
        assert len(list(model.rollout_buffer.get(16))) == 1


def test_a_constant_length_changes_nothing():
    stock = ppo().learn(64)
    scheduled = ppo(rollout_buffer_class=SelectiveRolloutBuffer).learn(64, RolloutLengthCallback(lambda progress: 8))
    for a, b in zip(stock.policy.parameters(), scheduled.policy.parameters(), strict=True):
        assert np.array_equal(a.detach().numpy(), b.detach().numpy())


def test_misuse_is_refused():
    with pytest.raises(ValueError, match="function of the progress"):
        RolloutLengthCallback(16)
    with pytest.raises(ValueError, match="SelectiveRolloutBuffer"):
        ppo().learn(16, callback=RolloutLengthCallback(lambda progress: 8))
    with pytest.raises(ValueError, match="on-policy"):
        DQN("MlpPolicy", "CartPole-v1", buffer_size=10).learn(8, callback=RolloutLengthCallback(lambda progress: 8))
    nested = EveryNTimesteps(8, RolloutLengthCallback(lambda progress: 8))
    with pytest.raises(ValueError, match="learn\\(\\) itself"):
        ppo(rollout_buffer_class=SelectiveRolloutBuffer).learn(16, callback=nested)
