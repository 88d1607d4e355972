"""The bare envs of a benchmark."""

from __future__ import annotations

import sys
from typing import Any

import gymnasium as gym
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv


def make_envs(env_id: str, n_envs: int, seed: int | None = None, env_kwargs: dict[str, Any] | None = None) -> VecEnv:
    """
    :param env_id: id of the env
    :param n_envs: number of slots
    :param seed: seed of the first slot
    :param env_kwargs: keyword arguments of the env
    :return: the envs with Monitor, in this process
    """
    if "mujoco" in str(gym.spec(env_id).entry_point):
        _silence_deprecations()
    return make_vec_env(env_id, n_envs, seed=seed, env_kwargs=dict(env_kwargs or {}))


def _silence_deprecations() -> None:
    """Newer MuJoCo prints a deprecation of Gymnasium's model files for every env it makes, and logs it to a file."""
    import mujoco

    def warn(text: str) -> None:
        if "deprecated" not in text:
            print(f"MuJoCo: {text}", file=sys.stderr)

    mujoco.set_mju_user_warning(warn)
