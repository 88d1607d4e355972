"""How far the training is."""

from __future__ import annotations

from stable_baselines3.common.base_class import BaseAlgorithm


def progress_remaining(model: BaseAlgorithm) -> float:
    """
    Stable-Baselines3's own is that of before the last rollout while a rollout is collected, and in the first one that of the
    end of the training before. This is its formula at the present step.

    :param model: The algorithm.
    :return: Its progress remaining, in [0, 1].
    """
    return min(1.0, max(0.0, 1.0 - model.num_timesteps / max(1, model._total_timesteps)))
