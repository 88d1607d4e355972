"""How far the training is, and whether it is still the same."""

from __future__ import annotations

from collections.abc import Callable

from stable_baselines3.common.base_class import BaseAlgorithm


def progress_remaining(model: BaseAlgorithm) -> float:
    """
    Stable-Baselines3's own is that of before the last rollout while a rollout is collected, and in the first one that of the
    end of the training before. This is its formula at the present step.

    :param model: The algorithm.
    :return: Its progress remaining, in [0, 1].
    """
    return min(1.0, max(0.0, 1.0 - model.num_timesteps / max(1, model._total_timesteps)))


def present_training(model: BaseAlgorithm) -> Callable[[], bool]:
    """
    Stable-Baselines3 does not tell callbacks of a training that is broken off, as by Ctrl-C. What they have left in place must
    find out by itself that another one has begun, which may have other callbacks or none.

    :param model: The algorithm, in a training or about to begin one.
    :return: Whether no other training of the model has begun since.
    """
    training = model.start_time
    return lambda: model.start_time == training
