"""Tries whether a restore is exact before it is trusted."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import RecordEpisodeStatistics, RecordVideo
from stable_baselines3.common.monitor import Monitor

from sb3_budget.states.adapters import find_adapter, full_name
from sb3_budget.states.layers import chain
from sb3_budget.states.state import State, capture, keeper, restore_state

#: Steps that are taken twice.
N_STEPS = 8


class SelfCheck(NamedTuple):
    """
    :param exact: Whether the same steps gave the same observations, rewards and ends, bit for bit.
    :param reason: What differed or could not be saved; empty if exact.
    :param steps: Simulator steps that it took.
    """

    exact: bool
    reason: str
    steps: int


_CHECKED: dict[tuple[Any, ...], SelfCheck] = {}


def self_check(env: gym.Env, n_steps: int = N_STEPS, seed: int = 0) -> SelfCheck:
    """
    Save, take some steps, reset, restore, take the same steps, and compare. If it is exact, the environment is left as
    it was; if not, it must be reset.

    :param env: An environment that has been reset.
    :param n_steps: Number of steps that are taken twice.
    :param seed: Seed of their actions.
    :return: What was found.
    """
    checked = _unrecorded(env)
    actions = copy.deepcopy(env.action_space)
    actions.seed(seed)
    chosen = [actions.sample() for _ in range(n_steps)]
    try:
        state = save_unchecked(checked)
        first = _play(checked, chosen)
        checked.reset()
        steps = len(first) + restore_state(checked, state).steps
        second = _play(checked, chosen[: len(first)])
        steps += len(second) + restore_state(checked, state).steps
    except ValueError as error:
        return SelfCheck(False, str(error), 0)
    for number, (one, other) in enumerate(zip(first, second, strict=False), start=1):
        for name, a, b in zip(("observation", "reward", "end", "time limit"), one, other, strict=True):
            if not _same(a, b):
                return SelfCheck(False, f"after a restore the {name} of step {number} differs", steps)
    if len(second) < len(first):
        return SelfCheck(False, f"after a restore the episode ends at step {len(second)}", steps)
    return SelfCheck(True, "", steps)


def save_state(env: gym.Env, observation: Any = None) -> State:
    """
    Save an environment with its wrappers. The first time in a process that an environment of these classes is saved,
    :func:`self_check` tries whether a restore is exact.

    :param env: An environment that has been reset.
    :param observation: What it returned last, for :func:`restore_state` to return. A ``StateWrapper`` knows it.
    :return: Its state.
    :raises ValueError: if the environment cannot be saved, or a restore would not be exact; the environment must then be
        reset.
    """
    steps = require_exact(env)
    state = save_unchecked(env)
    known = state.observation if observation is None else copy.deepcopy(observation)
    return state._replace(observation=known, steps=steps)


def require_exact(env: gym.Env) -> int:
    """
    :param env: An environment that has been reset.
    :return: Steps that were taken to find out; 0 if it was known.
    :raises ValueError: if a restore is not exact.
    """
    adapter = find_adapter(env)
    key = (adapter, full_name(type(env.unwrapped)), *(full_name(type(layer)) for layer in chain(env)))
    known = _CHECKED.get(key)
    if known is None:
        _CHECKED[key] = self_check(env)
    found = _CHECKED[key]
    if not found.exact:
        raise ValueError(
            f"States of {type(env.unwrapped).__name__} cannot be restored exactly by the adapter {adapter.name!r}: "
            f"{found.reason}. Register functions of your own with sb3_budget.states.register_adapter"
        )
    return found.steps if known is None else 0


def save_unchecked(env: gym.Env) -> State:
    """
    :param env: An environment that has been reset.
    :return: Its state, with what the outermost ``StateWrapper`` knows.
    :raises ValueError: if it cannot be saved.
    """
    known = keeper(env)
    if known is None:
        return capture(env)
    observation = env.observation if env is known else None
    return capture(env, observation, known.history)


def _unrecorded(env: gym.Env) -> gym.Env:
    """What lies below all wrappers that keep records of episodes: steps of a check are nobody's episode."""
    if find_adapter(env).replays:
        return env
    recorded = [layer for layer in chain(env) if isinstance(layer, (Monitor, RecordEpisodeStatistics, RecordVideo))]
    return recorded[-1].env if recorded else env


def _play(env: gym.Env, actions: list[Any]) -> list[tuple[Any, ...]]:
    outcomes = []
    for action in actions:
        observation, reward, terminated, truncated, _ = env.step(action)
        outcomes.append((copy.deepcopy(observation), reward, terminated, truncated))
        if terminated or truncated:
            break
    return outcomes


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, str):
        return bool(a == b)
    return np.array_equal(a, b, equal_nan=np.asarray(a).dtype.kind in "fc")
