"""States of the slots of a base ``VecEnv``, in this process or in another."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from stable_baselines3.common.vec_env import VecEnv

from sb3_budget.core.equality import equal
from sb3_budget.states.exactness import save_state
from sb3_budget.states.layers import keeper
from sb3_budget.states.state import Restored, State, restore_state
from sb3_budget.states.state_wrapper import StateWrapper


def get_state(venv: VecEnv, slot: int, observation: Any) -> State:
    """
    :param venv: The base ``VecEnv``.
    :param slot: A slot.
    :param observation: What the slot returned last.
    :return: The slot's state, without records of the episode that led to it.
    :raises ValueError: if it cannot be saved.
    """
    env = _local(venv, slot)
    if env is not None:
        # A wrapper's own reference may be a buffer that the environment has written to since.
        known: Any = keeper(env)
        return save_state(env, observation, check=known is None or known.check, keep_records=False)
    _require_wrapper(venv, slot)
    state = venv.env_method("try_state", False, indices=[slot])[0]
    if isinstance(state, ValueError):
        raise state
    # A VecEnv casts to the type of the space.
    if not equal(state.observation, observation, cast=True):
        raise ValueError(
            f"Slot {slot} of {type(venv).__name__} returns another observation than its StateWrapper knows: the StateWrapper "
            "must be the outermost wrapper, and observations must not be written to later"
        )
    return state


def set_state(venv: VecEnv, slot: int, state: State, keep_time: bool, seed: int | None) -> Restored:
    """
    :param venv: The base ``VecEnv``.
    :param slot: A slot.
    :param state: A state of any slot of such a ``VecEnv``.
    :param keep_time: Whether the time limit goes on counting.
    :param seed: Seed of later noise; ``None`` for that of the saved environment.
    :return: The observation, and the steps that were played again. Records of episodes begin anew.
    :raises ValueError: if the state does not fit, or holds no observation.
    """
    if state.observation is None:
        raise ValueError("The snapshot holds no observation for the episode to begin with: save_state(env, observation)")
    env = _local(venv, slot)
    if env is not None:
        return restore_state(env, state, keep_time, seed, keep_records=False)
    _require_wrapper(venv, slot)
    restored = venv.env_method("try_restore", state, keep_time, seed, False, indices=[slot])[0]
    if isinstance(restored, ValueError):
        raise restored
    return restored


def _local(venv: VecEnv, slot: int) -> gym.Env | None:
    envs = getattr(venv, "envs", None)
    return None if envs is None else envs[slot]


def _require_wrapper(venv: VecEnv, slot: int) -> None:
    if not venv.env_is_wrapped(StateWrapper, indices=[slot])[0]:
        raise ValueError(
            f"States in a {type(venv).__name__} need a StateWrapper: make_vec_env(..., wrapper_class=StateWrapper, "
            f"vec_env_cls={type(venv).__name__})"
        )
