"""A wrapper that gives states to whoever holds the environment, in another process too."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium as gym

from sb3_budget.states.adapters import find_adapter
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
    """

    #: Told by this, the state of this wrapper is not part of a state.
    keeps_states = True

    def __init__(self, env: gym.Env):
        super().__init__(env)
        self._adapter = find_adapter(env)
        self.observation: Any = None
        self.history: History | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if self._adapter.before_reset is not None:
            self._adapter.before_reset(self.env.unwrapped)
        if self._adapter.replays:
            generator = None if seed is not None else copy.deepcopy(self.env.unwrapped.np_random)
            self.history = History(generator, seed, copy.deepcopy(options), [])
        self.observation, info = self.env.reset(seed=seed, options=options)
        return self.observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        if self.history is not None:
            self.history.actions.append(copy.deepcopy(action))
        self.observation, reward, terminated, truncated, info = self.env.step(action)
        return self.observation, reward, terminated, truncated, info

    def get_state(self) -> State:
        """
        :return: The present state.
        :raises ValueError: as :func:`~sb3_budget.states.save_state`.
        """
        return save_state(self)

    def set_state(self, state: State, keep_time: bool = True, seed: int | None = None) -> Restored:
        """
        :param state: A state of an environment like this one.
        :param keep_time: See :func:`~sb3_budget.states.restore_state`.
        :param seed: See :func:`~sb3_budget.states.restore_state`.
        :return: The observation, and the steps that were played again.
        :raises ValueError: as :func:`~sb3_budget.states.restore_state`.
        """
        return restore_state(self, state, keep_time=keep_time, seed=seed)
