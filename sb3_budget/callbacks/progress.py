"""How much of the training is left, for schedules."""

from __future__ import annotations

from stable_baselines3.common.base_class import BaseAlgorithm


def progress_remaining(model: BaseAlgorithm) -> float:
    """
    Stable-Baselines3's goes below 0 in the last rollout, and keeps that until the first rollout of the next training ends.

    :param model: The algorithm.
    :return: Its progress remaining, in [0, 1].
    """
    return min(1.0, max(0.0, model._current_progress_remaining))
