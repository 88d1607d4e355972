"""Environments of every family, and what the tests do with them."""

from __future__ import annotations

import copy
import importlib.util
import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from sb3_budget.states import StateWrapper

MUJOCO = [
    "Ant-v5", "HalfCheetah-v5", "Hopper-v5", "Humanoid-v5", "HumanoidStandup-v5", "InvertedDoublePendulum-v5",
    "InvertedPendulum-v5", "Pusher-v5", "Reacher-v5", "Swimmer-v5", "Walker2d-v5",
]  # fmt: skip
PYTHON = [
    "Acrobot-v1", "Blackjack-v1", "CartPole-v1", "CliffWalking-v1", "FrozenLake-v1", "FrozenLake8x8-v1", "MountainCar-v0",
    "MountainCarContinuous-v0", "Pendulum-v1", "Taxi-v4",
]  # fmt: skip
MINIGRID = ["MiniGrid-DoorKey-8x8-v0", "MiniGrid-Dynamic-Obstacles-6x6-v0", "MiniGrid-KeyCorridorS3R1-v0"]
BOX2D = ["BipedalWalker-v3", "LunarLander-v3"]
ATARI = ["ALE/Pong-v5", "ALE/Breakout-v5", "ALE/Qbert-v5", "ALE/Tetris-v5", "ALE/MontezumaRevenge-v5"]
ALL = [*MUJOCO, *PYTHON, *MINIGRID, *BOX2D, *ATARI]

NEEDS = {"MiniGrid": "minigrid", "ALE/": "ale_py", "Bipedal": "Box2D", "Lunar": "Box2D"} | dict.fromkeys(MUJOCO, "mujoco")


def make(env_id: str, **kwargs: Any) -> gym.Env:
    """The environment in a ``StateWrapper``, or a skipped test where its package is missing."""
    for prefix, package in NEEDS.items():
        if env_id.startswith(prefix):
            pytest.importorskip(package)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for package in ("minigrid", "ale_py"):
            if importlib.util.find_spec(package):
                gym.register_envs(importlib.import_module(package))
        return StateWrapper(gym.make(env_id, **kwargs))


def advance(env: gym.Env, n_steps: int, seed: int = 0) -> None:
    """Random steps, through as many episodes as it takes."""
    for action in actions(env, n_steps, seed):
        *_, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            env.reset()


def actions(env: gym.Env, n: int, seed: int = 0) -> list[Any]:
    space = copy.deepcopy(env.action_space)
    space.seed(seed)
    return [space.sample() for _ in range(n)]


def play(env: gym.Env, chosen: list[Any]) -> list[tuple[Any, ...]]:
    """What comes of actions, up to the end of the episode."""
    outcomes = []
    for action in chosen:
        observation, reward, terminated, truncated, _ = env.step(action)
        outcomes.append((copy.deepcopy(observation), reward, terminated, truncated))
        if terminated or truncated:
            break
    return outcomes


def assert_same(a: Any, b: Any) -> None:
    """Equal, bit for bit."""
    assert type(a) is type(b) or (np.isscalar(a) and np.isscalar(b)), (type(a), type(b))
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            assert_same(a[key], b[key])
    elif isinstance(a, (tuple, list)):
        assert len(a) == len(b)
        for one, other in zip(a, b, strict=True):
            assert_same(one, other)
    else:
        np.testing.assert_array_equal(a, b)
