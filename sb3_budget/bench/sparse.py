"""Tasks of the benchmark whose reward is far from where episodes begin."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv, generate_random_map


class FrozenLake16Env(FrozenLakeEnv):
    """
    A frozen lake of 16 by 16 without slips. The goal is 30 steps away, and pays 1.

    :param kwargs: Keyword arguments of ``FrozenLakeEnv``, e.g. ``render_mode``.
    """

    def __init__(self, **kwargs: Any):
        super().__init__(desc=generate_random_map(16, p=0.85, seed=3), is_slippery=False, **kwargs)


def scaled_mountain_car(**kwargs: Any) -> gym.Env:
    """
    :param kwargs: Keyword arguments of ``MountainCar-v0``.
    :return: The same with both observations in ``[-1, 1]``.
    """
    env = gym.make("MountainCar-v0", **kwargs)
    assert isinstance(env.observation_space, spaces.Box)
    low, high = env.observation_space.low, env.observation_space.high
    middle, half = (high + low) / 2, (high - low) / 2
    space = spaces.Box(-1.0, 1.0, low.shape, np.float32)
    return gym.wrappers.TransformObservation(env, lambda seen: ((seen - middle) / half).astype(np.float32), space)


def door_key(size: int, **kwargs: Any) -> gym.Env:
    """
    :param size: Side of the room in cells.
    :param kwargs: Keyword arguments of the environment.
    :return: MiniGrid's DoorKey, fully observed, as a flat vector of small integers.
    """
    try:
        from minigrid.wrappers import FullyObsWrapper, ImgObsWrapper
    except ImportError as error:
        raise ImportError("DoorKey needs MiniGrid: pip install 'sb3-budget[minigrid]'") from error
    env = ImgObsWrapper(FullyObsWrapper(gym.make(f"MiniGrid-DoorKey-{size}x{size}-v0", **kwargs)))
    return gym.wrappers.FlattenObservation(env)
