"""What evaluations say about forgetting is logged."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import EvalCallback
from stable_baselines3.common.env_util import make_vec_env

from sb3_budget import StabilityCallback
from tests.callbacks.recorded import RecordingLogger


def evaluated(callback, returns):
    """The log after evaluations with these mean returns."""
    callback.parent = EvalCallback(make_vec_env("CartPole-v1"))
    callback.model = SimpleNamespace(logger=RecordingLogger())
    for mean in returns:
        callback.parent.last_mean_reward = mean
        callback._on_step()
    return callback.logger.records


def test_falls_count_in_shares_of_the_range():
    assert evaluated(StabilityCallback(), [0.0, 100.0, 85.0, 75.0, 100.0, 70.0])["eval/forgetting_events"] == 2
    assert evaluated(StabilityCallback(tolerance=0.5), [0.0, 100.0, 85.0, 75.0, 100.0, 70.0])["eval/forgetting_events"] == 0


def test_a_steady_return_does_not_fluctuate():
    log = evaluated(StabilityCallback(window=3), [5.0] * 4)
    assert log == {"eval/fluctuation": 0.0, "eval/forgetting_events": 0}


def test_it_runs_in_an_eval_callback():
    stability = StabilityCallback()
    evaluation = EvalCallback(
        make_vec_env("CartPole-v1"), callback_after_eval=stability, eval_freq=20, n_eval_episodes=2, verbose=0
    )
    PPO("MlpPolicy", make_vec_env("CartPole-v1"), n_steps=20, batch_size=20, n_epochs=1).learn(60, callback=evaluation)
    assert len(stability.history) == 3
    assert stability.history[-1] == evaluation.last_mean_reward


def test_misuse_is_refused():
    with pytest.raises(ValueError, match="window=1 must be at least 2"):
        StabilityCallback(window=1)
    with pytest.raises(ValueError, match=r"tolerance=1.5 must lie in \[0, 1\]"):
        StabilityCallback(tolerance=1.5)
    model = PPO("MlpPolicy", make_vec_env("CartPole-v1"), n_steps=20, batch_size=20, n_epochs=1)
    with pytest.raises(ValueError, match="callback_after_eval"):
        model.learn(20, callback=StabilityCallback())
