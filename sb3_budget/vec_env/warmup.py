"""Stepping each slot by its own number of steps before learning starts."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs

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
        self._noop = np.zeros_like(deepcopy(action_space).sample())
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


def warm_up(
    obs: VecEnvObs,
    offsets: NDArray[np.int64],
    actions: WarmupActions,
    advance: Callable[[VecEnvObs, int, NDArray], None],
) -> None:
    """
    Step slot ``i`` by ``offsets[i]`` actions.

    :param obs: The first observations; overwritten with those after the warm-up.
    :param offsets: Steps per slot.
    :param actions: The behaviour.
    :param advance: ``advance(obs, slot, action)`` steps one slot, writes its observation into ``obs``, and begins its
        next episode if this one is over.
    """
    for elapsed in range(int(offsets.max())):
        chosen = actions(obs)
        for slot in np.flatnonzero(offsets > elapsed).tolist():
            advance(obs, slot, chosen[slot])
