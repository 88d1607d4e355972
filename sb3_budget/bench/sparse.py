"""Tasks of the benchmark whose reward is far from where episodes begin."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv, generate_random_map

NEEDS_MINIGRID = "This task needs MiniGrid: pip install 'sb3-budget[minigrid]'"


def frozen_lake_16(**kwargs: Any) -> FrozenLakeEnv:
    """
    A frozen lake of 16 by 16 without slips. The goal is 30 steps away, and pays 1.

    :param kwargs: Keyword arguments of ``FrozenLakeEnv``, e.g. ``render_mode``.
    :return: Gymnasium's own class, whose tables are known not to be part of a state.
    """
    return FrozenLakeEnv(desc=generate_random_map(16, p=0.85, seed=3), is_slippery=False, **kwargs)


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
    :return: MiniGrid's DoorKey, as :func:`from_view` shows it.
    """
    return from_view(f"MiniGrid-DoorKey-{size}x{size}-v0", **kwargs)


def key_corridor(**kwargs: Any) -> gym.Env:
    """
    A ball behind a locked door, whose key is behind another one.

    :param kwargs: Keyword arguments of the environment.
    :return: MiniGrid's KeyCorridor with one row of rooms of 3 by 3, as :func:`from_view` shows it.
    """
    return from_view("MiniGrid-KeyCorridorS3R1-v0", **kwargs)


def from_view(env_id: str, **kwargs: Any) -> gym.Env:
    """
    :param env_id: Id of an environment of MiniGrid, whose levels are new in every episode.
    :param kwargs: Its keyword arguments.
    :return: The environment as its agent sees it: the 7 by 7 cells before it, one-hot and flat.
    """
    try:
        from minigrid.wrappers import ImgObsWrapper, OneHotPartialObsWrapper
    except ImportError as error:
        raise ImportError(NEEDS_MINIGRID) from error
    return gym.wrappers.FlattenObservation(ImgObsWrapper(OneHotPartialObsWrapper(gym.make(env_id, **kwargs))))


class OneLevel(gym.Wrapper):
    """
    The same level in every episode, and 1 for reaching its goal, however late: the same action in the same state always has
    the same outcome. MiniGrid's own reward depends on a clock that the observation does not show.

    :param env: Environment of MiniGrid.
    :param level: Seed of the level.
    """

    def __init__(self, env: gym.Env, level: int):
        super().__init__(env)
        self.level = level

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """
        :param seed: Passed over: there is one level.
        :param options: Options of the environment's reset.
        :return: As in Gymnasium.
        """
        return self.env.reset(seed=self.level, options=options)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """
        :param action: An action.
        :return: As in Gymnasium.
        """
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, float(float(reward) > 0.0), terminated, truncated, info


def one_door_key(size: int, level: int = 1, **kwargs: Any) -> gym.Env:
    """
    :param size: Side of the room in cells.
    :param level: Seed of the level.
    :param kwargs: Keyword arguments of the environment.
    :return: One level of DoorKey, whose goal pays 1: fully observed, as a flat vector of small integers.
    """
    try:
        from minigrid.wrappers import FullyObsWrapper, ImgObsWrapper
    except ImportError as error:
        raise ImportError(NEEDS_MINIGRID) from error
    env = ImgObsWrapper(FullyObsWrapper(gym.make(f"MiniGrid-DoorKey-{size}x{size}-v0", **kwargs)))
    return OneLevel(gym.wrappers.FlattenObservation(env), level)
