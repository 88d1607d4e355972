"""What a callback needs of its place and of the algorithm, checked in one way by all."""

from __future__ import annotations

import numpy as np
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback, EventCallback
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm


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


def require_steps_or_fraction(name: str, value: int | float) -> None:
    """
    :param name: Name of an argument.
    :param value: Steps (int), or a fraction (float).
    :raises ValueError: if it is neither.
    """
    if value < 0 or (isinstance(value, float) and value > 1.0):
        raise ValueError(f"{name}={value} must be a number of steps (int) or a fraction in [0, 1] (float)")


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
