"""Which attributes of an environment in Python are its state."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from sb3_budget.states import StateWrapper, find_adapter, plain_adapter, restore_state, save_state, self_check
from tests.states.families import assert_same, play


class Machine(gym.Env):
    """Attributes with treacherous names, methods as values, references to itself, and some that come and go."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self, slot: int = 0):
        self.slot, self.difficulty = slot, 1
        self.me = self

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.clock, self.P, self.window = 0, np.eye(2), [0.0]
        self.mode, self.rng = self.slow, self.np_random
        self.__dict__.pop("bonus", None)
        return np.zeros(1), {}

    def slow(self):
        return 1.0

    def fast(self):
        return 10.0

    def step(self, action):
        self.clock += 1
        self.P = self.P + action
        self.window = [*self.window[-2:], float(self.rng.normal())]
        if action:
            self.mode = self.fast
            self.bonus = 5.0
        value = self.clock + self.P.sum() + sum(self.window) + self.mode() + getattr(self, "bonus", 0.0)
        return np.array([value]), 0.0, False, False, {}


def ready(env, seed=0):
    env.reset(seed=seed)
    return env


def test_every_attribute_goes_with_the_state_whatever_its_name():
    env, other = ready(Machine()), ready(Machine(), seed=1)
    play(env, [0, 1, 0])
    play(other, [1, 1])
    state = save_state(env)
    first = play(env, [0, 1, 0])
    restore_state(other, state)
    assert other.me is other and other.mode.__self__ is other
    assert_same(play(other, [0, 1, 0]), first)


def test_what_came_later_goes():
    env = ready(Machine())
    state = save_state(env)
    play(env, [1])
    assert hasattr(env, "bonus")
    restore_state(env, state)
    assert not hasattr(env, "bonus")


def test_other_names_of_the_generator_are_reseeded_too():
    env = ready(Machine())
    state = save_state(env)
    outcomes = set()
    for seed in range(3):
        restore_state(env, state, seed=seed)
        assert env.rng is env.np_random
        outcomes.add(play(env, [0])[0][0][0])
    assert len(outcomes) == 3


def test_what_is_no_state_can_be_named():
    adapter = plain_adapter(["slot", "difficulty"])
    env, other = (ready(StateWrapper(Machine(slot), adapter=adapter)) for slot in (0, 1))
    assert find_adapter(env) is adapter
    other.unwrapped.difficulty = 3
    state = env.get_state()
    other.set_state(state)
    assert (other.unwrapped.slot, other.unwrapped.difficulty) == (1, 3)
    with pytest.raises(
        ValueError, match="saved by the adapter 'plain without difficulty, slot', this environment has 'plain'"
    ):
        restore_state(ready(StateWrapper(Machine())), state)


def test_an_open_window_stays_open():
    env = gym.make("CartPole-v1")
    env.reset(seed=0)
    state = save_state(env)
    env.unwrapped.screen = "a window"
    restore_state(env, state)
    assert env.unwrapped.screen == "a window"


def test_attributes_with_names_of_windows_are_state_in_environments_of_ones_own():
    class Door(gym.Env):
        observation_space, action_space = gym.spaces.Discrete(2), gym.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.isopen, self.clock, self.steps = True, None, 0
            return 0, {}

        def step(self, action):
            self.steps += 1
            if self.steps == 20:
                self.isopen, self.clock = False, 5
            return 0, float(self.isopen), False, False, {}

    env = Door()
    env.reset(seed=0)
    state = save_state(env)
    for _ in range(25):
        env.step(0)
    restore_state(env, state)
    assert (env.isopen, env.clock, env.step(0)[1]) == (True, None, 1.0)


def test_a_window_of_pygame_stays_open_whatever_the_state_says():
    class Surface:
        """Of pygame, by name."""

    Surface.__module__ = "pygame.surface"
    env = Machine()
    env.reset(seed=0)
    env.window = None
    state = save_state(env)
    window = env.window = Surface()
    restore_state(env, state)
    assert env.window is window


def test_tables_of_toy_text_are_not_copied():
    env = gym.make("Taxi-v4")
    env.reset(seed=0)
    assert self_check(env).exact
    assert save_state(env).n_bytes < 5_000
