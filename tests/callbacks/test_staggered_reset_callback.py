"""Switching the wrapper on, logging the phases, and following a schedule."""

from __future__ import annotations

import pytest
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import CallbackList, EveryNTimesteps

from sb3_budget.callbacks.staggered_reset_callback import StaggeredResetCallback
from sb3_budget.core.staggering import block_offsets
from sb3_budget.vec_env.staggered_reset_vec_env import StaggeredResetVecEnv
from tests.callbacks.clock import Recorder, clocks, collector, eager, never


def staggered(n_envs=4, horizon=32, **kwargs):
    return StaggeredResetVecEnv(clocks(n_envs, wrapper=None, horizon=horizon), **kwargs)


def learn(callback, venv, n_rollouts=2, n_steps=8):
    recorder, model = Recorder(), collector(venv, n_steps=n_steps)
    model.learn(n_rollouts * n_steps * venv.num_envs, callback=[callback, recorder])
    return recorder


def test_a_disabled_wrapper_is_switched_on():
    venv = staggered(enabled=False)
    recorder = learn(StaggeredResetCallback(), venv, n_rollouts=4)
    assert venv.enabled
    assert sorted(recorder.reasons()) == [(0, "time_limit", 32), (1, "stagger", 24), (2, "stagger", 16), (3, "stagger", 8)]


def test_without_it_a_disabled_wrapper_stays_off():
    recorder = learn(EveryNTimesteps(10**6, None), staggered(enabled=False), n_rollouts=5)
    assert recorder.ends == []


def test_listed_first_it_makes_room_for_a_gate():
    venv = staggered(enabled=False)
    collector(venv).learn(64, callback=[StaggeredResetCallback(), eager(never)])
    with pytest.raises(ValueError, match="list that callback first"):
        collector(staggered(enabled=False)).learn(64, callback=[eager(never), StaggeredResetCallback()])


def test_the_phases_of_each_rollout_are_logged():
    recorder = learn(StaggeredResetCallback(), staggered(n_blocks=4, offsets="blocks"), n_rollouts=6)
    late = recorder.logs[-1]
    assert late["budget/phase_coverage"] == 1.0
    assert late["budget/phase_entropy"] > 0.9
    assert late["budget/phase_dispersion"] == pytest.approx(1.0)
    assert recorder.logs[0]["budget/phase_coverage"] <= 0.5


def test_the_update_to_data_ratio_counts_gradient_steps():
    recorder = Recorder()
    model = PPO("MlpPolicy", staggered(n_envs=4), n_steps=8, batch_size=16, n_epochs=3, device="cpu")
    model.learn(3 * 32, callback=[StaggeredResetCallback(), recorder])
    assert "budget/utd" not in recorder.logs[0]
    # Logged before the third update: two of them, of three epochs of two minibatches, in 96 steps.
    assert recorder.logs[-1]["budget/utd"] == pytest.approx(2 * 3 * 2 / 96)


def test_of_a_loaded_model_it_counts_this_training_only(tmp_path):
    def ppo(**kwargs):
        return PPO("MlpPolicy", staggered(n_envs=4), n_steps=8, batch_size=16, n_epochs=3, device="cpu", **kwargs)

    ppo().learn(64).save(tmp_path / "model")
    recorder = Recorder()
    model = PPO.load(tmp_path / "model", env=staggered(n_envs=4), device="cpu")
    model.learn(3 * 32, callback=[StaggeredResetCallback(), recorder], reset_num_timesteps=False)
    assert [log.get("budget/utd") for log in recorder.logs] == [None, pytest.approx(6 / 64), pytest.approx(12 / 96)]


def test_blocks_are_dealt_anew_in_another_environment_and_after_a_seed():
    callback, model = StaggeredResetCallback(n_blocks=lambda progress: 2), collector(staggered(n_envs=8), n_steps=8)
    dealt = block_offsets(8, 32, 2).tolist()
    model.learn(64, callback=callback)
    other = staggered(n_envs=8)
    model.set_env(other)
    model.learn(64, callback=callback)
    assert other.offsets.tolist() == dealt
    other.seed(0)
    model.learn(64, callback=callback)
    assert other.offsets.tolist() == dealt
    # Nothing is dealt where nothing has changed: slots would be shifted once more.
    before = other.offsets
    model.learn(64, callback=callback, reset_num_timesteps=False)
    assert other.offsets is before


def test_a_schedule_of_blocks_shifts_the_slots_when_it_changes():
    venv = staggered(n_envs=8)
    seen = []

    def schedule(progress):
        seen.append((progress, venv.offsets.copy().tolist()))
        return 2 if progress > 0.5 else 1000

    learn(StaggeredResetCallback(n_blocks=schedule), venv, n_rollouts=4)
    assert seen[1][1] == block_offsets(8, 32, 2).tolist()
    # More blocks than steps: as many as steps.
    assert venv.offsets.tolist() == block_offsets(8, 32, 32).tolist()


def test_a_rollout_that_covers_the_horizon_is_reported_once():
    with pytest.warns(UserWarning, match="Staggered resets cannot help here: a rollout of 40 steps") as caught:
        learn(StaggeredResetCallback(), staggered(), n_steps=40, n_rollouts=3)
    assert len(caught) == 1


def test_another_discount_than_the_models_is_reported():
    with pytest.warns(UserWarning, match=r"discounts with gamma=0.99, the model with gamma=0.9"):
        learn(StaggeredResetCallback(), staggered(horizon_budget="discount", gamma=0.99), n_rollouts=1)
    learn(StaggeredResetCallback(), staggered(horizon_budget="discount", gamma=0.9), n_rollouts=1)


def test_what_cannot_work_is_refused():
    with pytest.raises(ValueError, match="n_blocks=4 must be a function"):
        StaggeredResetCallback(n_blocks=4)
    with pytest.raises(ValueError, match="take mode='first_episode', which can begin later"):
        learn(StaggeredResetCallback(), staggered(mode="warmup", enabled=False))
    with pytest.raises(ValueError, match="needs StaggeredResetVecEnv"):
        learn(StaggeredResetCallback(), clocks(2))
    for nested in (StaggeredResetCallback(), CallbackList([StaggeredResetCallback()])):
        with pytest.raises(ValueError, match="must be passed to learn"):
            learn(EveryNTimesteps(8, nested), staggered())
