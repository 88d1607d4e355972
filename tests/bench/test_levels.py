from __future__ import annotations

import importlib
import sys
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from stable_baselines3.common.env_checker import check_env as check_env_for_sb3

from sb3_budget.bench import cli, tasks

pytest.importorskip("minigrid")

from minigrid.core.constants import OBJECT_TO_IDX
from minigrid.minigrid_env import MiniGridEnv

from sb3_budget.bench.levels import KINDS, LARGEST, MOST_GOALS, SMALLEST, LevelsEnv
from sb3_budget.core.cells import ExactCells, default_cells

ENV_ID = "sb3_budget/MiniGridLevels-v0"


def goals(env: LevelsEnv) -> int:
    return int((env.grid.encode()[:, :, 0] == OBJECT_TO_IDX["goal"]).sum())


def walk(env: LevelsEnv, actions: np.ndarray) -> list[np.ndarray]:
    return [np.append(*env.step(action)[:2]) for action in actions]


def test_both_checkers_pass_without_a_warning():
    tasks.register()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gym.make(ENV_ID).unwrapped, skip_render_check=True)
        check_env_for_sb3(gym.make(ENV_ID))


def test_a_seed_decides_the_level_and_all_that_comes():
    first, second = LevelsEnv(), LevelsEnv()
    second.reset(seed=1)
    for seed in range(5):
        np.testing.assert_array_equal(first.reset(seed=seed)[0], second.reset(seed=seed)[0])
        np.testing.assert_array_equal(first.grid.encode(), second.grid.encode())
        actions = np.random.default_rng(seed).integers(3, size=64)
        np.testing.assert_array_equal(walk(first, actions), walk(second, actions))


def test_levels_differ_in_size_wealth_and_first_view():
    env = LevelsEnv()
    views, sizes, wealth = set(), set(), set()
    for seed in range(100):
        views.add(env.reset(seed=seed)[0].tobytes())
        sizes.add(env.grid.width)
        wealth.add(goals(env))
    assert len(views) > 90
    assert sizes == set(range(SMALLEST, LARGEST + 1, 2))
    assert wealth == set(range(1, MOST_GOALS + 1))


def test_the_view_is_that_of_minigrid():
    env = LevelsEnv()
    for seed in range(5):
        env.reset(seed=seed)
        for action in np.random.default_rng(seed).integers(3, size=40):
            observation = env.step(action)[0]
            image = MiniGridEnv.gen_obs(env)["image"][:, :, 0]
            np.testing.assert_array_equal(observation[:-4].reshape(7, 7, 3), image[:, :, None] == KINDS)
            assert observation[-4:].argmax() == env.agent_dir


def test_a_goal_pays_one_and_comes_up_elsewhere():
    env, found = LevelsEnv(), 0.0
    for seed in range(20):
        env.reset(seed=seed)
        before = goals(env)
        for action in np.random.default_rng(seed).integers(3, size=64):
            ahead = env.grid.get(*env.front_pos)
            reaches = action == env.actions.forward and ahead is not None and ahead.type == "goal"
            _, reward, terminated, _, _ = env.step(action)
            assert reward == float(reaches) and not terminated and goals(env) == before
            found += reward
    assert found > 0


def test_every_episode_is_as_long():
    tasks.register()
    env = gym.make(ENV_ID)
    env.reset(seed=0)
    ends = [env.step(0)[2:4] for _ in range(64)]
    assert ends == [(False, False)] * 63 + [(False, True)]


def test_without_minigrid_the_command_says_which_extra(monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SystemExit):
        cli.main(["bench", "--env", ENV_ID, "--steps", "1"])
    assert "needs MiniGrid: pip install 'sb3-budget[minigrid]'" in capsys.readouterr().err


def test_without_minigrid_the_module_says_which_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "minigrid.envs", None)
    monkeypatch.delitem(sys.modules, "sb3_budget.bench.levels")
    with pytest.raises(ImportError, match=r"sb3-budget\[minigrid\]"):
        importlib.import_module("sb3_budget.bench.levels")


@pytest.mark.parametrize("env_id", ["sb3_budget/DoorKey6-v0", "sb3_budget/KeyCorridor3-v0"])
def test_levels_are_new_in_every_episode_and_show_what_lies_before_the_agent(env_id):
    tasks.register()
    env = gym.make(env_id)
    env.reset(seed=0)
    levels = []
    for _ in range(4):
        view, _ = env.reset()
        assert env.observation_space.contains(view) and view.shape == (7 * 7 * 20,) and set(np.unique(view)) == {0, 1}
        levels.append(env.unwrapped.grid.encode().tobytes())
    assert len(set(levels)) > 1
    assert isinstance(default_cells(view.shape, view.dtype, is_discrete=False), ExactCells)
