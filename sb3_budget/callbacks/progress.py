"""How far the training is."""

from __future__ import annotations

from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback


def progress_remaining(model: BaseAlgorithm) -> float:
    """
    Stable-Baselines3's own is that of before the last rollout while a rollout is collected, and in the first one that of the
    end of the training before. This is its formula at the present step.

    :param model: The algorithm.
    :return: Its progress remaining, in [0, 1].
    """
    return min(1.0, max(0.0, 1.0 - model.num_timesteps / max(1, model._total_timesteps)))


def in_training(callback: BaseCallback) -> bool:
    """
    Whether a training goes on that the callback takes part in. One that was broken off, as by Ctrl-C, tells no callback
    that it has ended; what the callback has left behind must not act on the next.

    :param callback: A callback that something asks in a step, or after it.
    :return: Whether it has heard of all steps before.
    """
    return callback.num_timesteps == callback.model.num_timesteps
