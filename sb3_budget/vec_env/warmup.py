"""Stepping each slot by its own number of steps before learning starts."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs

from sb3_budget.vec_env.observations import write_observation

#: Maps a batch of raw observations of all slots to one action per slot.
WarmupActions = Callable[[VecEnvObs], NDArray]


def parse_warmup_actions(actions: str | WarmupActions, action_space: spaces.Space, seed: int | None) -> WarmupActions:
    """
    :param actions: ``"random"``, ``"noop"`` or a callable.
    :param action_space: Action space of one slot.
    :param seed: Seed of the random actions.
    :return: The rule as a callable.
    :raises ValueError: for another string, or a space without a zero action.
    """
    if callable(actions):
        return actions
    if actions == "random":
        return _RandomActions(action_space, seed)
    if actions == "noop":
        return _NoopActions(action_space)
    raise ValueError(f"warmup_actions={actions!r} is not 'random', 'noop' or a callable")


class _RandomActions:
    def __init__(self, action_space: spaces.Space, seed: int | None):
        self._space = deepcopy(action_space)
        self._space.seed(seed)

    def __call__(self, obs: VecEnvObs) -> NDArray:
        return np.stack([self._space.sample() for _ in range(_batch_size(obs))])


class _NoopActions:
    def __init__(self, action_space: spaces.Space):
        self._noop = np.zeros_like(action_space.sample())
        if not action_space.contains(self._noop):
            raise ValueError(f"warmup_actions='noop' needs an action space that contains zero, not {action_space}")

    def __call__(self, obs: VecEnvObs) -> NDArray:
        return np.stack([self._noop] * _batch_size(obs))


def _batch_size(obs: VecEnvObs) -> int:
    if isinstance(obs, dict):
        return len(next(iter(obs.values())))
    if isinstance(obs, tuple):
        return len(obs[0])
    return len(obs)


def warm_up(venv: VecEnv, obs: VecEnvObs, offsets: NDArray[np.int64], actions: WarmupActions) -> tuple[NDArray[np.int64], int]:
    """
    Step slot ``i`` by ``offsets[i]`` actions. An episode that ends on the way starts again.

    :param venv: The base vectorised environment, just reset.
    :param obs: Its first observations; overwritten with those after the warm-up.
    :param offsets: Steps per slot.
    :param actions: The behaviour.
    :return: Age of each slot's episode [steps], and the number of simulator steps taken.
    """
    ages = np.zeros(len(offsets), dtype=np.int64)
    for elapsed in range(int(offsets.max())):
        chosen = actions(obs)
        for slot in np.flatnonzero(offsets > elapsed).tolist():
            # VecEnv.step() would move every slot; the slot's own step() leaves auto-reset to us.
            slot_obs, _, terminated, truncated, _ = venv.env_method("step", chosen[slot], indices=[slot])[0]
            ages[slot] += 1
            if terminated or truncated:
                slot_obs, _ = venv.env_method("reset", indices=[slot])[0]
                ages[slot] = 0
            write_observation(obs, slot, slot_obs)
    return ages, int(offsets.sum())
