"""Slots are shifted anew by what is measured in each block."""

from types import SimpleNamespace

import numpy as np
import pytest
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

from sb3_budget import AdaptiveOffsetCallback, StaggeredResetVecEnv
from tests.callbacks.recorded import RecordingLogger

N_ENVS, HORIZON = 4, 200


def pendulum():
    return make_vec_env("Pendulum-v1", n_envs=N_ENVS, seed=0)


def ppo(venv):
    return PPO("MlpPolicy", venv, n_steps=10, batch_size=40, n_epochs=1, seed=0, device="cpu")


def at_ages(callback, venv, ages, errors):
    """One rollout of one step in which slots of these ages have these value errors."""
    callback._venv = venv
    returns = np.array([errors], dtype=np.float32)
    buffer = SimpleNamespace(returns=returns, values=np.zeros_like(returns))
    callback.model = SimpleNamespace(rollout_buffer=buffer, logger=RecordingLogger())
    callback._ages = [np.array(ages), np.array(ages) + 1]
    callback._on_rollout_end()


def test_errors_are_averaged_by_block():
    callback = AdaptiveOffsetCallback(n_blocks=2, period=100, ema=0.5)
    venv = StaggeredResetVecEnv(pendulum())
    at_ages(callback, venv, [0, 10, 150, 199], [1.0, -3.0, 5.0, 5.0])
    assert callback.value_errors.tolist() == [2.0, 5.0]
    records = callback.logger.records
    assert (records["budget/value_error_block_0"], records["budget/value_error_block_1"]) == (2.0, 5.0)
    assert (records["budget/value_error_min"], records["budget/value_error_max"]) == (2.0, 5.0)
    at_ages(callback, venv, [0, 10, 20, 30], [4.0] * 4)
    assert callback.value_errors.tolist() == [3.0, 5.0]


def test_slots_that_have_fallen_into_step_are_shifted_anew():
    venv = StaggeredResetVecEnv(pendulum(), offsets=lambda n, horizon, rng: np.zeros(n))
    callback = AdaptiveOffsetCallback(n_blocks=4, period=1)
    at_ages(callback, venv, [0, 1, 2, 3], [1.0] * N_ENVS)
    assert sorted(venv.offsets.tolist()) == [0, 50, 100, 150]


def test_slots_that_are_spread_keep_their_offsets():
    venv = StaggeredResetVecEnv(pendulum(), offsets=lambda n, horizon, rng: np.arange(n) * 7)
    callback = AdaptiveOffsetCallback(n_blocks=4, period=1)
    at_ages(callback, venv, [0, 50, 100, 150], [1.0] * N_ENVS)
    assert venv.offsets.tolist() == [0, 7, 14, 21]


def test_slots_bunch_where_the_critic_errs():
    venv = StaggeredResetVecEnv(pendulum())
    callback = AdaptiveOffsetCallback(n_blocks=2, period=1, uniform=0.0)
    at_ages(callback, venv, [0, 50, 100, 150], [0.0, 0.0, 1.0, 1.0])
    assert venv.offsets.tolist() == [100] * N_ENVS


def test_it_runs_with_ppo_and_logs_errors():
    venv = StaggeredResetVecEnv(pendulum(), seed=0)
    callback = AdaptiveOffsetCallback(n_blocks=5, period=2)
    ppo(venv).learn(400, callback=callback)
    assert np.isfinite(callback.value_errors).any()


def test_by_default_it_has_the_blocks_of_the_snapshots():
    # 20 blocks; errors in them differ by chance, and the first check deals starts by them.
    venv = StaggeredResetVecEnv(pendulum(), mode="snapshot", seed=0)
    callback = AdaptiveOffsetCallback(period=1, uniform=0.0)
    model = ppo(venv)
    model.learn(80, callback=callback)
    assert len(callback.value_errors) == venv.snapshot_blocks == 20
    assert np.ptp(venv._archive.weights) > 0.0
    model.set_env(StaggeredResetVecEnv(pendulum()))
    model.learn(80, callback=callback)
    assert len(callback.value_errors) == 10


@pytest.mark.parametrize("kwargs", [{"n_blocks": 1}, {"period": 0}, {"uniform": 2.0}, {"ema": 0.0}, {"min_entropy": -0.1}])
def test_bad_arguments_are_refused(kwargs):
    with pytest.raises(ValueError):
        AdaptiveOffsetCallback(**kwargs)


def test_misuse_is_refused():
    with pytest.raises(ValueError, match="StaggeredResetVecEnv"):
        ppo(pendulum()).learn(40, callback=AdaptiveOffsetCallback())
    snapshots = StaggeredResetVecEnv(pendulum(), mode="snapshot", n_blocks=4)
    with pytest.raises(ValueError, match="n_blocks=5 cannot replace the 4 blocks of the snapshots"):
        ppo(snapshots).learn(40, callback=AdaptiveOffsetCallback(n_blocks=5))
    with pytest.raises(ValueError, match="exceeds the horizon"):
        ppo(StaggeredResetVecEnv(pendulum())).learn(40, callback=AdaptiveOffsetCallback(n_blocks=HORIZON + 1))
