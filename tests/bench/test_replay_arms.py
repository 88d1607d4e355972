"""What the off-policy arms train, what they are measured against, and that stock is SB3's."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3 import DQN
from stable_baselines3.common.env_util import make_vec_env

from sb3_budget.bench import arms, cli, plan, run, tasks
from sb3_budget.bench.envs import make_envs
from sb3_budget.bench.hyperparams import read_hyperparams
from sb3_budget.bench.replay_arms import DistinctReplayBuffer
from sb3_budget.bench.settings import Settings
from sb3_budget.buffers.zero_variance_replay_buffer import ZeroVarianceReplayBuffer

DQN_ARMS = [name for name, arm in arms.ARMS.items() if arm.replay is not None]
WRITTEN = {"learning_starts": 50, "train_freq": 4, "batch_size": 16, "buffer_size": 2_000, "gamma": 0.95}
BUFFER = {"mix_ratio": 0.5, "min_count": 1, "start_after": 50}
FILE = Path(__file__).parents[2] / "examples" / "hyperparams" / "dqn.yml"


def job(arm, slippery=False, **changes):
    settings = Settings(2, False, {}, {"is_slippery": slippery}, {}, {}, {}, {})
    settings = settings._replace(
        dqn={**WRITTEN, "replay_buffer_kwargs": BUFFER}, replay={"refresh_every": 50, "optimism": 1.0}
    )
    return run.Job("FrozenLake-v1", arm, 3, settings, 400, evals=2, eval_episodes=1)._replace(**changes)


def parameters(model):
    return [parameter.detach().numpy() for parameter in model.policy.parameters()]


def same(first, second):
    return all(np.array_equal(one, other) for one, other in zip(parameters(first), parameters(second), strict=True))


def trained(arm, **kwargs):
    model, _, callbacks = run.build(job(arm, **kwargs))
    return model.learn(400, callback=callbacks)


def test_stock_is_sb3_to_the_bit():
    venv = make_vec_env("FrozenLake-v1", 2, seed=3, env_kwargs={"is_slippery": False})
    # Trained at once: DQN draws from global generators, which each model seeds.
    plain = DQN("MlpPolicy", venv, seed=3, device="cpu", **WRITTEN).learn(400)
    assert same(trained("dqn"), plain)


def test_arms_differ_in_their_buffer_and_its_targets_only():
    models = {name: trained(name) for name in DQN_ARMS}
    kinds = {name: type(model.replay_buffer) for name, model in models.items()}
    assert kinds.pop("dqn") not in (ZeroVarianceReplayBuffer, DistinctReplayBuffer)
    assert kinds.pop("dqn+uniform-pool") is DistinctReplayBuffer
    assert set(kinds.values()) == {ZeroVarianceReplayBuffer}
    untried = {name: model.logger.name_to_value.get("budget/replay_untried") for name, model in models.items()}
    assert [name for name, found in untried.items() if found is not None] == ["dqn+graph", "dqn+explore"]
    assert untried["dqn+graph"] == 0 < untried["dqn+explore"]
    assert not same(models["dqn"], models["dqn+pool"]) and not same(models["dqn+graph"], models["dqn+explore"])


def test_the_control_holds_each_distinct_transition_once_whether_or_not_others_contradict_it():
    control, checked = (trained(name, slippery=True).replay_buffer for name in ("dqn+uniform-pool", "dqn+pool"))
    assert checked.statistics.stochastic > 0
    held = [{name: part.item() for name, part in transition.items()} for transition in control.export()]
    pairs = [(one["observations"], one["actions"]) for one in held]
    assert len({tuple(one.values()) for one in held}) == len(held) > len(set(pairs)) > len(checked.pool)


def test_with_one_outcome_as_evidence_the_control_is_the_pool_where_nothing_varies():
    assert same(trained("dqn+uniform-pool"), trained("dqn+pool"))


@pytest.mark.parametrize("arm", DQN_ARMS)
def test_a_run_reports_its_curve_and_its_budget(arm):
    result = run.run(job(arm), lambda _: None)
    assert [point[0] for point in result["points"]] == [0, 200, 400]
    assert result["ledger"]["total_steps"] == 400
    assert result["looks"] == 0 and ("budget/replay_pool_size" in result["log"]) == (arm != "dqn")


def test_each_arm_is_measured_against_stock_of_its_own_algorithm(tmp_path):
    assert arms.baseline("dqn+pool+mine") == arms.baseline("dqn") == "dqn"
    assert arms.baseline("grpo+select") == "stock"
    command = ["bench", "--env", "FrozenLake-v1", "--arms", "dqn,dqn+pool", "--seeds", "2", "--steps", "300", "--evals", "2"]
    extra = [
        "--eval-episodes",
        "1",
        "--jobs",
        "1",
        "--target-return",
        "0.0",
        "--hyperparams",
        str(FILE),
        "--out",
        str(tmp_path),
    ]
    assert cli.main([*command, *extra]) == 0
    found = json.loads((tmp_path / "results.json").read_text())
    assert found["arms"]["dqn+pool"]["steps_to_stock_final"] is not None
    assert found["arms"]["dqn+pool"]["target"]["seed_steps"] == 0.0
    assert [(pair["arm"], pair["against"]) for pair in found["envs"]["FrozenLake-v1"]["contrasts"]] == [("dqn+pool", "dqn")]
    assert "| steps of seed |" in (tmp_path / "report.md").read_text()


def test_a_file_is_for_the_algorithm_of_the_arm():
    settings, steps = read_hyperparams(str(FILE), "FrozenLake-v1", DQN)
    assert (settings.ppo, settings.env_kwargs, steps) == ({}, {"is_slippery": False}, 8_000)
    assert settings.dqn["replay_buffer_kwargs"]["min_count"] == 1 and settings.replay["optimism"] == 1.0
    with pytest.raises(ValueError, match="unknown buffer_size"):
        read_hyperparams(str(FILE), "FrozenLake-v1")


def planned(**changes):
    arguments = {
        "env": ["FrozenLake-v1"],
        "arms": "dqn",
        "seeds": 1,
        "first_seed": 0,
        "steps": 500,
        "n_envs": None,
        "n_steps": None,
    }
    arguments |= {"evals": None, "eval_episodes": 1, "stochastic": False, "quick": False}
    arguments |= {"arm_hyperparams": [], "hyperparams": None, **changes}
    return plan.jobs(argparse.Namespace(**arguments))


def test_what_dqn_cannot_do_is_refused_before_the_first_run():
    assert planned()[0].settings.n_envs == 1
    with pytest.raises(ValueError, match="--n-steps is a rollout's length"):
        planned(n_steps=16)
    with pytest.raises(ValueError, match="needs discrete actions"):
        planned(env=["Pendulum-v1"])
    with pytest.raises(ValueError, match="not for DQN"):
        planned(stochastic=True)


def test_hashes_of_on_policy_runs_are_those_from_before_there_were_others():
    old = Settings(4, True, {"n_steps": 16}, {}, {}, {}, {}, {})
    first = run.Job("CartPole-v1", "stock", 0, old, 640)
    assert first.settings_hash == run._digest([first.env_id, "stock", old[:7], 640, 10, 8])
    with_allocator = first._replace(settings=old._replace(allocator={"priority": "novelty"}))
    assert with_allocator.settings_hash == run._digest([first.env_id, "stock", with_allocator.settings[:8], 640, 10, 8])
    assert first._replace(settings=old._replace(replay={"optimism": 1.0})).settings_hash != first.settings_hash


def test_the_level_of_one_door_key_never_changes_and_pays_one_however_late():
    pytest.importorskip("minigrid")
    tasks.register()
    env = gym.make("sb3_budget/OneDoorKey5-v0")
    first, second = (env.reset(seed=seed)[0] for seed in (1, 2))
    assert (first == second).all()
    for _ in range(30):
        observation, *_ = env.step(0)
    assert env.observation_space.contains(observation)
    unwrapped = env.unwrapped
    unwrapped.grid.set(*unwrapped.front_pos, None)
    goal = next(place for place in np.ndindex(5, 5) if getattr(unwrapped.grid.get(*place), "type", "") == "goal")
    unwrapped.agent_pos, unwrapped.agent_dir = (goal[0], goal[1] - 1), 1
    _, reward, terminated, _, _ = env.step(2)
    assert (reward, terminated) == (1.0, True)
    make_envs("sb3_budget/OneDoorKey5-v0", 1).close()
