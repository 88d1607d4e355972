"""What evaluations say about forgetting is logged."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import CallbackList, EvalCallback, StopTrainingOnNoModelImprovement
from stable_baselines3.common.env_util import make_vec_env

from sb3_budget import StabilityCallback
from tests.callbacks.recorded import RecordingLogger


def ppo():
    return PPO("MlpPolicy", make_vec_env("CartPole-v1"), n_steps=20, batch_size=20, n_epochs=1)


def every_20_steps(**callbacks):
    return EvalCallback(make_vec_env("CartPole-v1"), eval_freq=20, n_eval_episodes=2, verbose=0, **callbacks)


def evaluated(callback, returns):
    """The log after evaluations with these mean returns."""
    evaluation = every_20_steps(callback_after_eval=callback)
    callback.model = SimpleNamespace(logger=RecordingLogger())
    for mean in returns:
        evaluation.last_mean_reward = mean
        callback._on_step()
    return callback.logger.records


def test_falls_count_in_shares_of_the_range():
    assert evaluated(StabilityCallback(), [0.0, 100.0, 85.0, 75.0, 100.0, 70.0])["eval/forgetting_events"] == 2
    assert evaluated(StabilityCallback(tolerance=0.5), [0.0, 100.0, 85.0, 75.0, 100.0, 70.0])["eval/forgetting_events"] == 0


def test_a_steady_return_does_not_fluctuate():
    log = evaluated(StabilityCallback(window=3), [5.0] * 4)
    assert log == {"eval/fluctuation": 0.0, "eval/forgetting_events": 0}


@pytest.mark.parametrize("in_list", [False, True])
def test_it_runs_in_an_eval_callback(in_list):
    stability = StabilityCallback()
    after_eval = CallbackList([StopTrainingOnNoModelImprovement(9), stability]) if in_list else stability
    evaluation = every_20_steps(callback_after_eval=after_eval)
    model = ppo().learn(40, callback=evaluation)
    assert len(stability.history) == 2
    model.learn(20, callback=evaluation, reset_num_timesteps=False)
    assert len(stability.history) == 3
    assert stability.history[-1] == evaluation.last_mean_reward


def test_misuse_is_refused():
    with pytest.raises(ValueError, match="window=1 must be at least 2"):
        StabilityCallback(window=1)
    with pytest.raises(ValueError, match=r"tolerance=1.5 must lie in \[0, 1\]"):
        StabilityCallback(tolerance=1.5)
    with pytest.raises(ValueError, match="callback_after_eval"):
        ppo().learn(20, callback=StabilityCallback())


@pytest.mark.parametrize("in_list", [False, True])
def test_a_place_that_sees_improvements_only_is_refused(in_list):
    stability = StabilityCallback()
    evaluation = every_20_steps(callback_on_new_best=CallbackList([stability]) if in_list else stability)
    with pytest.raises(ValueError, match="callback_after_eval"):
        ppo().learn(20, callback=evaluation)
    # The parent of a callback in a list is known at the first evaluation only.
    assert evaluation.n_calls == (20 if in_list else 0)
