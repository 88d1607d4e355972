"""What the wrapper that resets slots needs of the environments below it."""

from __future__ import annotations

import numpy as np
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper


def require_base(name: str, venv: VecEnv) -> None:
    """
    :param name: Class of the wrapper.
    :param venv: What it is to be put on.
    :raises ValueError: if that is a wrapper itself.
    """
    if isinstance(venv, VecEnvWrapper):
        below = type(venv).__name__
        raise ValueError(
            f"{name} must sit directly on the base VecEnv, but was given a {below}: write {below}({name}(venv)) "
            f"instead of {name}({below}(venv))"
        )


def require_early_resets(name: str, venv: VecEnv) -> None:
    """
    :param name: Class of the wrapper.
    :param venv: The base vectorised environment.
    :raises ValueError: if a ``Monitor`` forbids resets of unfinished episodes.
    """
    monitored = np.flatnonzero(venv.env_is_wrapped(Monitor)).tolist()
    if not all(venv.get_attr("allow_early_resets", indices=monitored)):
        raise ValueError(
            f"{name} resets slots before their episode is over, but Monitor was built with allow_early_resets=False: build it "
            "with allow_early_resets=True"
        )
