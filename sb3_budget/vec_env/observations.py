"""One slot's part of a batch of observations, for Box, Discrete, Dict and Tuple spaces alike."""

from __future__ import annotations

from typing import Any

import numpy as np
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs


def slot_observation(obs: VecEnvObs, slot: int) -> Any:
    """
    :param obs: Batch of observations.
    :param slot: Index of the slot.
    :return: A copy of the slot's observation.
    """
    if isinstance(obs, dict):
        return {key: np.copy(value[slot]) for key, value in obs.items()}
    if isinstance(obs, tuple):
        return tuple(np.copy(value[slot]) for value in obs)
    return np.copy(obs[slot])


def write_observation(obs: VecEnvObs, slot: int, value: Any) -> None:
    """
    Put one slot's observation into a batch, in place.

    :param obs: Batch of observations.
    :param slot: Index of the slot.
    :param value: The slot's observation, as its environment returned it.
    """
    if isinstance(obs, dict):
        for key in obs:
            obs[key][slot] = value[key]
    elif isinstance(obs, tuple):
        for part, part_value in zip(obs, value, strict=True):
            part[slot] = part_value
    else:
        obs[slot] = value
