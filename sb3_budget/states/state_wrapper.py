"""A wrapper that gives states to whoever holds the environment, in another process too."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium as gym
import numpy as np

from sb3_budget.states.adapters import Adapter, find_adapter
from sb3_budget.states.exactness import save_state
from sb3_budget.states.state import History, Restored, State, restore_state


class StateWrapper(gym.Wrapper):
    """
    Saves and restores the environment below it, with all wrappers in between.

    ``SubprocVecEnv`` needs it, and environments that are saved by playing their past again (Box2D)::

        venv = make_vec_env("LunarLander-v3", n_envs=8, vec_env_cls=SubprocVecEnv, wrapper_class=StateWrapper)
        state = venv.env_method("get_state", indices=[0])[0]

    It must be the outermost wrapper, as ``wrapper_class`` makes it: observations that it keeps are those that it
    returns.

    :param env: The environment.
    :param adapter: How it is saved, instead of what its class says; in another process, where ``register_adapter`` does
        not reach, by ``wrapper_kwargs={"adapter": ...}``.
    :param check: Whether :func:`~sb3_budget.states.self_check` must have passed. Switch it off where random actions are
        not legal.
    """

    #: Told by this, the state of this wrapper is not part of a state.
    keeps_states = True

    def __init__(self, env: gym.Env, adapter: Adapter | None = None, check: bool = True):
        super().__init__(env)
        self.adapter = adapter
        self.check = check
        self._adapter = find_adapter(self)
        self.observation: Any = None
        self.history: History | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if self._adapter.before_reset is not None:
            self._adapter.before_reset(self.env.unwrapped)
        if self._adapter.replays:
            generator = None if seed is not None else copy.deepcopy(self.env.unwrapped.np_random)
            self.history = History(generator, seed, copy.deepcopy(options), [], [])
        self.observation, info = self.env.reset(seed=seed, options=options)
        return self.observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        if self.history is not None:
            self.history.actions.append(copy.deepcopy(action))
        self.observation, reward, terminated, truncated, info = self.env.step(action)
        return self.observation, reward, terminated, truncated, info

    @property
    def np_random(self) -> np.random.Generator:
        return self.env.np_random

    @np_random.setter
    def np_random(self, value: np.random.Generator) -> None:
        if self.history is not None:
            self.history.generators.append((len(self.history.actions), copy.deepcopy(value)))
        self.env.np_random = value

    def get_state(self, keep_records: bool = True) -> State:
        """
        :param keep_records: See :func:`~sb3_budget.states.save_state`.
        :return: The present state.
        :raises ValueError: as :func:`~sb3_budget.states.save_state`.
        """
        return save_state(self, check=self.check, keep_records=keep_records)

    def set_state(self, state: State, keep_time: bool = True, seed: int | None = None, keep_records: bool = True) -> Restored:
        """
        :param state: A state of an environment like this one.
        :param keep_time: See :func:`~sb3_budget.states.restore_state`.
        :param seed: See :func:`~sb3_budget.states.restore_state`.
        :param keep_records: See :func:`~sb3_budget.states.restore_state`.
        :return: The observation, and the steps that were played again.
        :raises ValueError: as :func:`~sb3_budget.states.restore_state`.
        """
        return restore_state(self, state, keep_time, seed, keep_records)

    def try_state(self, keep_records: bool = True) -> State | ValueError:
        """
        :param keep_records: See :func:`~sb3_budget.states.save_state`.
        :return: :meth:`get_state`, or its error: raised in a worker of ``SubprocVecEnv`` that would end the worker.
        """
        try:
            return self.get_state(keep_records)
        except ValueError as error:
            return error

    def try_restore(self, *arguments: Any) -> Restored | ValueError:
        """
        :param arguments: Those of :meth:`set_state`.
        :return: Its result, or its error.
        """
        try:
            return self.set_state(*arguments)
        except ValueError as error:
            return error
