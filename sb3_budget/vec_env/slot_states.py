"""States of the slots of a base ``VecEnv``, in this process or in another."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from stable_baselines3.common.vec_env import VecEnv

from sb3_budget.states.exactness import save_state
from sb3_budget.states.state import Restored, State, restore_state
from sb3_budget.states.state_wrapper import StateWrapper


def get_state(venv: VecEnv, slot: int, observation: Any) -> State:
    """
    :param venv: The base ``VecEnv``.
    :param slot: A slot.
    :param observation: What the slot returned last.
    :return: The slot's state.
    :raises ValueError: if it cannot be saved.
    """
    env = _local(venv, slot)
    if env is not None:
        return save_state(env, observation)
    _require_wrapper(venv, slot)
    state: State = venv.env_method("get_state", indices=[slot])[0]
    return state


def set_state(venv: VecEnv, slot: int, state: State, keep_time: bool, seed: int | None) -> Restored:
    """
    :param venv: The base ``VecEnv``.
    :param slot: A slot.
    :param state: A state of any slot of such a ``VecEnv``.
    :param keep_time: Whether the time limit goes on counting.
    :param seed: Seed of later noise; ``None`` for that of the saved environment.
    :return: The observation, and the steps that were played again.
    :raises ValueError: if the state does not fit, or holds no observation.
    """
    if state.observation is None:
        raise ValueError("The snapshot holds no observation for the episode to begin with: save_state(env, observation)")
    env = _local(venv, slot)
    if env is None:
        _require_wrapper(venv, slot)
        restored: Restored = venv.env_method("set_state", state, keep_time, seed, indices=[slot])[0]
        return restored
    if isinstance(env, StateWrapper):
        return env.set_state(state, keep_time, seed)
    return restore_state(env, state, keep_time, seed)


def _local(venv: VecEnv, slot: int) -> gym.Env | None:
    envs = getattr(venv, "envs", None)
    return None if envs is None else envs[slot]


def _require_wrapper(venv: VecEnv, slot: int) -> None:
    if not venv.env_is_wrapped(StateWrapper, indices=[slot])[0]:
        raise ValueError(
            f"States in a {type(venv).__name__} need a StateWrapper: make_vec_env(..., wrapper_class=StateWrapper, "
            f"vec_env_cls={type(venv).__name__})"
        )
