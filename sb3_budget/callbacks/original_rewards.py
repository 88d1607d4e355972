"""Rewards as the environment gave them."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecNormalize


def original_rewards(rewards: NDArray[Any], normalize: VecNormalize | None) -> NDArray[Any]:
    """
    :param rewards: Those of the present step, as the algorithm has them.
    :param normalize: The normaliser of its environment, if any, whose scale changes from step to step.
    :return: Those of before it, shape (n_envs,).
    """
    return rewards if normalize is None else normalize.get_original_reward()
