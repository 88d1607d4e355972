"""Tries whether a restore is exact before it is trusted."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import gymnasium as gym

from sb3_budget.core.equality import equal
from sb3_budget.states.adapters import find_adapter, full_name
from sb3_budget.states.layers import chain, keeper, unrecorded
from sb3_budget.states.state import State, capture, restore_state

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
    Take some steps, save, take more and a reset, go elsewhere, restore, take the same steps and a reset, and compare. The
    state that is tried is none that a mere reset leads to, and what is done in between differs from what is repeated. If it
    is exact, the environment is left as it was; if not, it must be reset. Records of ``Monitor`` and the like stay as they
    are in any case.

    :param env: An environment that has been reset.
    :param n_steps: Number of steps that are taken twice; whole episodes may pass.
    :param seed: Seed of the actions.
    :return: What was found.
    """
    space = copy.deepcopy(env.action_space)
    space.seed(seed)
    before, repeated, elsewhere = ([space.sample() for _ in range(n)] for n in (n_steps, n_steps, 3))
    try:
        with unrecorded(env):
            present = save_unchecked(env)
            _play(env, before)
            state = save_unchecked(env)
            first = [*_play(env, repeated), (env.reset()[0],)]
            _play(env, elsewhere)
            steps = 2 * n_steps + len(elsewhere) + restore_state(env, state).steps
            second = [*_play(env, repeated), (env.reset()[0],)]
            steps += n_steps + restore_state(env, present).steps
    except Exception as error:  # whatever an environment raises where it is taken back or acts at random
        reason = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        return SelfCheck(False, reason, 0)
    for number, (one, other) in enumerate(zip(first, second, strict=True), start=1):
        for name, a, b in zip(("observation", "reward", "end", "time limit", "next start"), one, other, strict=False):
            if not equal(a, b):
                where = f"step {number}" if number <= n_steps else "the next reset"
                return SelfCheck(False, f"after a restore the {name} of {where} differs", steps)
    return SelfCheck(True, "", steps)


def save_state(env: gym.Env, observation: Any = None, check: bool = True, keep_records: bool = True) -> State:
    """
    Save an environment with its wrappers. The first time in a process that an environment of these classes is saved,
    :func:`self_check` tries whether a restore is exact.

    :param env: An environment that has been reset.
    :param observation: What it returned last, for :func:`restore_state` to return. A ``StateWrapper`` knows it.
    :param check: Whether to require the self-check.
    :param keep_records: Whether the state holds what ``Monitor`` and the like have recorded of the present episode, a
        reward per step, or a record that begins here.
    :return: Its state.
    :raises ValueError: if the environment cannot be saved, or a restore would not be exact; the environment must then be
        reset.
    """
    known: Any = keeper(env)
    observation = copy.deepcopy(known.observation if observation is None and known is not None else observation)
    steps = require_exact(env) if check else 0
    return save_unchecked(env, keep_records)._replace(observation=observation, steps=steps)


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


def save_unchecked(env: gym.Env, keep_records: bool = True) -> State:
    """
    :param env: An environment that has been reset.
    :param keep_records: See :func:`save_state`.
    :return: Its state, with what the outermost ``StateWrapper`` knows.
    :raises ValueError: if it cannot be saved.
    """
    known = keeper(env)
    if known is None:
        return capture(env, keep_records=keep_records)
    return capture(env, known.observation, known.history, keep_records)


def _play(env: gym.Env, actions: list[Any]) -> list[tuple[Any, ...]]:
    """What comes of actions; where an episode ends, the next one begins."""
    outcomes: list[tuple[Any, ...]] = []
    for action in actions:
        observation, reward, terminated, truncated, _ = env.step(action)
        outcomes.append((copy.deepcopy(observation), reward, terminated, truncated))
        if terminated or truncated:
            outcomes[-1] += (copy.deepcopy(env.reset()[0]),)
    return outcomes
