"""What a callback needs of its place and of the algorithm, checked in one way by all."""

from __future__ import annotations

import numpy as np
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback, EventCallback
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import (
    VecCheckNan,
    VecEnv,
    VecEnvWrapper,
    VecMonitor,
    VecNormalize,
    VecVideoRecorder,
    unwrap_vec_wrapper,
)

from sb3_budget.vec_env.episode_control_vec_env import EpisodeControlVecEnv
from sb3_budget.vec_env.staggered_reset_vec_env import StaggeredResetVecEnv

#: Wrappers below which a step is the same, or of which the raw one is known.
SEE_THROUGH = (VecNormalize, VecMonitor, VecCheckNan, VecVideoRecorder)


def require_on_policy(callback: BaseCallback) -> None:
    """
    :param callback: A callback that reads rollouts, with its model set.
    :raises ValueError: if the algorithm has none.
    """
    if not isinstance(callback.model, OnPolicyAlgorithm):
        raise ValueError(f"{type(callback).__name__} needs an on-policy algorithm, not {type(callback.model).__name__}")


def require_top_level(callback: BaseCallback) -> None:
    """
    To be called when training starts: a ``CallbackList`` tells its children of their parent only after it has
    initialised them.

    :param callback: A callback that acts at the start or end of rollouts.
    :raises ValueError: if an ``EventCallback`` holds it, which passes on steps only.
    """
    if isinstance(callback.parent, EventCallback):
        raise ValueError(
            f"{type(callback).__name__} inside {type(callback.parent).__name__} would never hear of rollouts: it must "
            "be passed to learn() itself, in a list"
        )


def require_bare(name: str, env: VecEnv) -> EpisodeControlVecEnv:
    """
    :param name: Name of an argument.
    :param env: An environment to continue saved states in.
    :return: The same.
    :raises ValueError: if it cannot, or changes what the simulator gives.
    """
    if not isinstance(env, EpisodeControlVecEnv) or not env.enabled:
        raise ValueError(f"{name} must be an EpisodeControlVecEnv(make_vec_env(...)) that is enabled, and nothing around it")
    if isinstance(env, StaggeredResetVecEnv):
        raise ValueError(
            f"{name} must be a plain EpisodeControlVecEnv: StaggeredResetVecEnv would cut episodes by rules of its own"
        )
    return env


def require_state_access(callback: BaseCallback, name: str, env: EpisodeControlVecEnv) -> EpisodeControlVecEnv:
    """
    :param callback: A callback that saves states of the training, with its model set.
    :param name: Name of the argument by which it was given the other environment.
    :param env: An environment to continue them in.
    :return: What saves the states.
    :raises ValueError: if there is none, or observations of the two would differ by more than ``VecNormalize``.
    """
    chain = callback.training_env
    control = unwrap_vec_wrapper(chain, EpisodeControlVecEnv)
    if control is env:
        raise ValueError(f"{name} is the environment that is trained on: its episodes would be broken off. Make another one")
    if control is None:
        raise ValueError(
            f"{type(callback).__name__} saves states: put EpisodeControlVecEnv around the base VecEnv that is trained on"
        )
    if control.observation_space != env.observation_space:
        raise ValueError(
            f"{name} has the observations {env.observation_space}, the training environment {control.observation_space}"
        )
    while isinstance(chain, VecEnvWrapper) and chain is not control:
        if not isinstance(chain, SEE_THROUGH):
            raise ValueError(f"Steps of {name} would lack what {type(chain).__name__} does to those of the training")
        chain = chain.venv
    return control


def require_steps_or_fraction(name: str, value: int | float) -> None:
    """
    :param name: Name of an argument.
    :param value: Steps (int), or a fraction (float).
    :raises ValueError: if it is neither.
    """
    if value < 0 or (isinstance(value, float) and value > 1.0):
        raise ValueError(f"{name}={value} must be a number of steps (int) or a fraction in [0, 1] (float)")


def as_steps(value: int | float, whole: int) -> int:
    """
    :param value: Steps (int), or a fraction (float).
    :param whole: Of what it is a fraction [steps].
    :return: Steps.
    """
    return round(value * whole) if isinstance(value, float) else value


def require_finite(buffer: RolloutBuffer, num_timesteps: int) -> None:
    """
    :param buffer: A full rollout.
    :param num_timesteps: The model's steps so far.
    :raises ValueError: if a reward or value in it is NaN or infinite.
    """
    broken = ~np.isfinite(buffer.rewards + buffer.values)
    if broken.any():
        row, slot = np.argwhere(broken)[0].tolist()
        raise ValueError(
            f"Reward {buffer.rewards[row, slot]} or value {buffer.values[row, slot]} of slot {slot} is not finite in row "
            f"{row} of the rollout that ends at step {num_timesteps}. Nothing was trained on it"
        )
