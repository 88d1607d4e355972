"""Every example runs, with a budget of seconds."""

from __future__ import annotations

import argparse
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize, unwrap_vec_wrapper

import sb3_budget
from sb3_budget import SelectiveRolloutBuffer, StaggeredResetVecEnv

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name: str) -> SimpleNamespace:
    return SimpleNamespace(**runpy.run_path(str(EXAMPLES / name)))


@pytest.mark.parametrize("name", ["ppo_drop_in.py", "a2c.py", "trpo.py", "maskable_ppo.py", "time_feature.py"])
def test_a_drop_in_example_trains_on_shifted_slots(name: str) -> None:
    if name in ("trpo.py", "maskable_ppo.py", "time_feature.py"):
        pytest.importorskip("sb3_contrib")
    model = load(name).main(total_timesteps=512, verbose=0)
    venv = unwrap_vec_wrapper(model.get_env(), StaggeredResetVecEnv)
    assert venv is not None
    assert model.num_timesteps >= 512
    assert venv.ledger.learning_steps == model.num_timesteps
    assert len(np.unique(venv.offsets)) == venv.num_envs
    assert all(np.isfinite(parameter.detach().numpy()).all() for parameter in model.policy.parameters())


@pytest.mark.parametrize("priority", ["contrast", "none"])
def test_the_sparse_maze_begins_episodes_in_saved_states(priority: str, capsys: pytest.CaptureFixture[str]) -> None:
    model = load("sparse_maze.py").main(total_timesteps=2048, priority=priority, verbose=0)
    assert model.num_timesteps >= 2048
    assert capsys.readouterr().out.endswith("saved states: 0%\n") == (priority == "none")


def test_the_allocator_opens_doors_in_minigrid(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("minigrid")
    model = load("allocator_doorkey.py").main(total_timesteps=2048, n_envs=4, size=5, verbose=0)
    assert model.num_timesteps >= 2048
    printed = capsys.readouterr().out
    assert "saved states" in printed and " 0% of episodes" not in printed


def test_the_allocator_runs_beside_an_audit_on_dense_rewards(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("mujoco")
    with pytest.warns(UserWarning, match="dense"):
        model = load("allocator_halfcheetah.py").main(total_timesteps=4096, n_envs=16, audit_every=2048, verbose=0)
    control = unwrap_vec_wrapper(model.get_env(), sb3_budget.EpisodeControlVecEnv)
    assert control is not None and control.ledger.verification_steps > 0
    assert not capsys.readouterr().out.endswith(" 0%\n")


@pytest.mark.parametrize(("name", "package"), [("cartpole", None), ("halfcheetah", "mujoco"), ("minigrid_levels", "minigrid")])
def test_an_example_of_grpo_trains_on_groups_that_meet(name: str, package: str | None) -> None:
    if package is not None:
        pytest.importorskip(package)
    model = load(f"grpo_{name}.py").main(total_timesteps=512, n_envs=16, verbose=0)
    assert model.num_timesteps >= 512
    assert model.rollout_buffer.statistics.mean_peers > 0.0
    assert 0.0 <= model.rollout_buffer.statistics.coefficient <= 1.0
    assert all(np.isfinite(parameter.detach().numpy()).all() for parameter in model.policy.parameters())


def test_evaluation_under_vecnormalize_sees_whole_episodes(tmp_path: Path) -> None:
    example = load("eval_callback_vecnormalize.py")
    example.main(total_timesteps=1_024, eval_freq=16, n_eval_episodes=2, log_path=str(tmp_path), verbose=0)
    evaluations = np.load(tmp_path / "evaluations.npz")
    assert (evaluations["ep_lengths"] == 200).all()
    assert (tmp_path / "best_model.zip").exists()


def test_shifted_starts_differ_by_who_shifts_them() -> None:
    example = load("shifted_starts.py")
    assert set(example.main(total_timesteps=1_024, n_slots=4, verbose=0)) == {"its own", "random"}


def test_rewards_by_offset_start_after_the_warm_up() -> None:
    example = load("shifted_starts.py")
    venv = VecNormalize(make_vec_env("Pendulum-v1", n_envs=1, seed=0))
    model = PPO("MlpPolicy", venv, n_steps=8, batch_size=8, n_epochs=1, seed=0, device="cpu").learn(8)
    offsets, noop = example.rewards_by_offset(model, "Pendulum-v1", 4, "noop")
    assert offsets.tolist() == [0, 50, 100, 150]
    _, random = example.rewards_by_offset(model, "Pendulum-v1", 4, "random")
    assert noop[0] == random[0]
    assert (noop[1:] != random[1:]).all()
    assert ((noop <= 0.0) & (noop >= -17.0)).all()


def test_only_a_lake_that_does_not_slip_fills_the_pool() -> None:
    example = load("zero_variance_replay.py")
    found = [example.main(1_200, slippery, backups="graph", verbose=0).replay_buffer.statistics for slippery in (False, True)]
    assert found[0].size > 10 and found[0].stochastic == 0 and found[0].share > 0.0
    assert found[1].stochastic > 10 > found[1].size


@pytest.mark.parametrize("arm", ["stock", "recycled", "recent"])
def test_the_critic_is_measured_against_true_values(arm: str) -> None:
    found = load("critic_recycling.py").main("slippery-lake" if arm == "recent" else "lake", arm, total_timesteps=1_024)
    assert len(found.errors) == 2 and 0.0 < min(found.errors) < 5.0
    assert len(found.returns) > 10 and set(found.returns) <= {0.0, 1.0}


def test_the_custom_gate_stops_episodes() -> None:
    selective = load("custom_gate.py").main(total_timesteps=2_000, verbose=0)
    assert selective.n_looks > 0
    assert 0 < selective.n_stops <= selective.n_rejections


def zoo_configurations() -> list[tuple[str, dict[str, Any]]]:
    entries = yaml.safe_load((EXAMPLES / "zoo" / "ppo.yml").read_text())
    entries["selective buffer"] = load("zoo/selective_buffer.py").hyperparams["Pendulum-v1"]
    return list(entries.items())


@pytest.mark.parametrize(("name", "entry"), zoo_configurations())
def test_an_rl_zoo_configuration_names_what_exists(name: str, entry: dict[str, Any]) -> None:
    assert entry["callback"][0] == "sb3_budget.StaggeredResetCallback"
    for part in [*entry["vec_env_wrapper"], *entry["callback"]]:
        dotted, kwargs = next(iter(part.items())) if isinstance(part, dict) else (part, {})
        part_class = getattr(sb3_budget, dotted.removeprefix("sb3_budget."))
        if "StaggeredResetVecEnv" not in dotted:
            part_class(**kwargs)
    assert entry["n_envs"] * entry["n_steps"] % entry["batch_size"] == 0


@pytest.mark.parametrize("config", ["ppo.yml", "selective_buffer.py"])
def test_rl_zoo_trains_with_a_configuration(config: str, tmp_path: Path) -> None:
    exp_manager = pytest.importorskip("rl_zoo3.exp_manager")
    arguments = {"algo": "ppo", "env_id": "Pendulum-v1", "log_folder": str(tmp_path), "n_timesteps": 1024}
    settings = {"config": str(EXAMPLES / "zoo" / config), "eval_freq": -1, "log_interval": -1, "verbose": 0}
    manager = exp_manager.ExperimentManager(argparse.Namespace(**arguments), **arguments, **settings)
    model, _ = manager.setup_experiment()
    manager.learn(model)
    venv = unwrap_vec_wrapper(model.get_env(), StaggeredResetVecEnv)
    assert venv is not None and venv.enabled
    assert isinstance(model.rollout_buffer, SelectiveRolloutBuffer) == (config == "selective_buffer.py")
