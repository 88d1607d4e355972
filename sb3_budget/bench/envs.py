"""The bare envs of a benchmark."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

from sb3_budget.bench import tasks


def find_spec(env_id: str) -> EnvSpec:
    """
    :param env_id: id of the env, or ``module:id``, which imports a module that registers it; Atari's and ours need none
    :return: its spec
    :raises ValueError: if Gymnasium does not know it
    """
    module, _, name = env_id.rpartition(":")
    if not module and name.startswith("ALE/") and importlib.util.find_spec("ale_py"):
        module = "ale_py"
    tasks.register()
    try:
        if module:
            importlib.import_module(module)
        return gym.spec(name)
    except (gym.error.Error, ImportError) as error:
        raise ValueError(f"unknown env {env_id}: {error}") from error


def make_envs(
    env_id: str,
    n_envs: int,
    seed: int | None = None,
    env_kwargs: dict[str, Any] | None = None,
    vec_env_cls: type[VecEnv] = DummyVecEnv,
) -> VecEnv:
    """
    :param env_id: id of the env
    :param n_envs: number of slots
    :param seed: seed of the first slot
    :param env_kwargs: keyword arguments of the env
    :param vec_env_cls: kind of VecEnv
    :return: the envs with Monitor
    """
    if "mujoco" in str(find_spec(env_id).entry_point):
        _silence_deprecations()
    return make_vec_env(env_id, n_envs, seed=seed, env_kwargs=dict(env_kwargs or {}), vec_env_cls=vec_env_cls)  # type: ignore[arg-type]  # SB3 names its own kinds


def _silence_deprecations() -> None:
    """Newer MuJoCo prints a deprecation of Gymnasium's model files for every env it makes, and logs it to a file."""
    import mujoco

    def warn(text: str) -> None:
        if "deprecated" not in text:
            print(f"MuJoCo: {text}", file=sys.stderr)

    mujoco.set_mju_user_warning(warn)
