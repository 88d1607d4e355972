"""Nothing is trusted that does not go on exactly, and whatever cannot be saved says so."""

from __future__ import annotations

import pickle
import threading

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils import EzPickle
from gymnasium.wrappers import TimeLimit
from stable_baselines3.common.monitor import Monitor

from sb3_budget.states import (
    REPLAY,
    Adapter,
    StateWrapper,
    find_adapter,
    register_adapter,
    restore_state,
    save_state,
    self_check,
)
from sb3_budget.states.adapters import FAMILIES, full_name
from tests.states.families import actions, advance, assert_same, make, play


class Walk(gym.Env):
    """A random walk, with whatever else a test hides in it."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), dtype=np.float64)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position, self.n_resets = 0.0, getattr(self, "n_resets", 0) + 1
        return np.array([self.position]), {}

    def step(self, action):
        self.position += float(action) + self.np_random.normal()
        return np.array([self.position]), self.position, False, False, {}


class Hidden(Walk):
    """Keeps its position where no attribute shows it."""

    def __init__(self):
        box = [0.0]
        self._read, self._write = (lambda: box[0]), (lambda value: box.__setitem__(0, value))

    def reset(self, *, seed=None, options=None):
        self._write(0.0)
        return super().reset(seed=seed)

    def step(self, action):
        self._write(self._read() + float(action))
        return np.array([self._read()]), 0.0, False, False, {}


class Locked(Walk):
    def reset(self, *, seed=None, options=None):
        self.lock = threading.Lock()
        return super().reset(seed=seed)


class Holder(Walk):
    """Holds an object that is pickled as a new one."""

    class Simulator(EzPickle):
        position = 0.0

    def reset(self, *, seed=None, options=None):
        self.simulator = self.Simulator()
        return super().reset(seed=seed)


@pytest.fixture(autouse=True)
def _forget(monkeypatch):
    monkeypatch.setattr("sb3_budget.states.exactness._CHECKED", {})
    monkeypatch.setattr("sb3_budget.states.adapters.FAMILIES", FAMILIES.copy())


def ready(env):
    env.reset(seed=0)
    return env


def test_an_env_in_python_passes_and_is_left_as_it_was():
    env, twin = ready(Walk()), ready(Walk())
    found = self_check(env, n_steps=5)
    assert found == (True, "", 2 * 5 + 3 + 5)
    assert_same(play(env, actions(env, 5)), play(twin, actions(twin, 5)))


def test_a_hidden_state_is_found_out():
    env = ready(StateWrapper(Hidden()))
    found = self_check(env)
    assert not found.exact and found.reason == "after a restore the observation of step 1 differs"
    for _ in range(2):
        with pytest.raises(ValueError, match=r"Hidden cannot be restored exactly by the adapter 'plain'.*step 1 differs"):
            env.get_state()


def test_a_broken_adapter_is_caught():
    def forgetful(env):
        return {"position": env.position}

    register_adapter(Walk, Adapter("mine", forgetful, lambda env, payload: vars(env).update(payload)))
    with pytest.raises(ValueError, match="adapter 'mine': after a restore the observation of step 1 differs"):
        save_state(ready(Walk()))


def test_an_adapter_of_ones_own_serves_the_class_and_its_subclasses():
    def save(env):
        return env.position, env.np_random.bit_generator.state

    def restore(env, payload):
        env.position, env.np_random.bit_generator.state = payload

    class Child(Walk):
        pass

    register_adapter(Walk, Adapter("mine", save, restore))
    env = ready(StateWrapper(Child()))
    assert find_adapter(env).name == "mine"
    advance(env, 4)
    state = env.get_state()
    first = play(env, actions(env, 5))
    env.reset()
    env.set_state(state)
    assert_same(play(env, actions(env, 5)), first)
    env.set_state(state, seed=1)
    assert_same(play(env, [0])[0][0] != first[0][0], np.array([True]))


def test_any_env_that_its_seed_decides_can_be_played_again():
    register_adapter(Hidden, REPLAY)
    env = ready(StateWrapper(Hidden()))
    play(env, [1, 2])
    state = env.get_state()
    assert play(env, [1])[0][0] == [4.0]
    env.reset()
    assert env.set_state(state).steps == 2
    assert play(env, [1])[0][0] == [4.0]
    assert env.set_state(env.get_state()).steps == 3


def test_the_first_save_of_a_class_pays_for_the_check():
    first, second = ready(StateWrapper(Walk())), ready(StateWrapper(Walk()))
    assert first.get_state().steps == 2 * 8 + 3 + 8
    assert second.get_state().steps == 0
    assert ready(StateWrapper(Monitor(Walk()))).get_state().steps == 2 * 8 + 3 + 8


def test_the_steps_of_a_check_are_nobodys_episode(tmp_path):
    env = ready(StateWrapper(Monitor(gym.make("CartPole-v1", max_episode_steps=4), str(tmp_path / "log"))))
    env.get_state()
    outcomes = play(env, [0] * 10)
    assert len(outcomes) == 4
    assert env.get_wrapper_attr("get_episode_lengths")() == [4]
    env.close()


def test_a_reset_that_differs_is_found_out():
    class Elsewhere(Walk):
        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.position = float(np.random.default_rng().random())
            return np.array([self.position]), {}

    assert self_check(ready(Elsewhere())).reason == "after a restore the observation of the next reset differs"


def test_noise_that_a_wrapper_keeps_to_itself_is_found_out():
    class Noise(gym.Wrapper):
        def __init__(self, env):
            super().__init__(env)
            rng = np.random.default_rng()
            self._draw = lambda: rng.normal()

        def step(self, action):
            observation, *others = self.env.step(action)
            return observation + self._draw(), *others

    for wrapped in (Noise(Walk()), Noise(Monitor(Walk()))):
        assert "observation of step 1 differs" in self_check(ready(wrapped)).reason


def test_actions_of_the_check_are_those_of_the_outermost_wrapper():
    class Named(gym.ActionWrapper):
        action_space = spaces.MultiBinary(1)

        def action(self, action):
            return int(action[0])

    assert self_check(ready(Named(Monitor(gym.make("CartPole-v1"))))).exact


def test_an_env_that_refuses_random_actions_says_so_and_can_be_trusted_unseen():
    class Strict(Walk):
        def step(self, action):
            assert action == 2, "illegal move"
            return super().step(action)

    env = ready(StateWrapper(Strict()))
    with pytest.raises(ValueError, match="AssertionError: illegal move"):
        env.get_state()
    trusted = ready(StateWrapper(Strict(), check=False))
    state = trusted.get_state()
    first = play(trusted, [2, 2])
    trusted.set_state(state)
    assert_same(play(trusted, [2, 2]), first)


def test_noise_that_was_reseeded_is_played_again_too():
    register_adapter(Walk, REPLAY)
    env, other = ready(StateWrapper(Walk())), ready(StateWrapper(Walk()))
    env.set_state(env.get_state(), seed=7)
    play(env, [1, 1])
    env.np_random = np.random.default_rng(11)
    play(env, [1])
    later = env.get_state()
    first = play(env, [1, 2, 0])
    other.set_state(later)
    np.testing.assert_array_equal(other.unwrapped.position, later.observation[0])
    assert_same(play(other, [1, 2, 0]), first)


def test_a_past_that_is_longer_than_the_time_limit_is_played_again_under_a_monitor():
    register_adapter(Walk, REPLAY)
    env = ready(StateWrapper(Monitor(TimeLimit(Walk(), 20))))
    play(env, [1] * 15)
    env.set_state(env.get_state(), keep_time=False)
    play(env, [1] * 10)
    later = env.get_state()
    first = play(env, [1, 2, 0])
    env.set_state(later)
    assert_same(play(env, [1, 2, 0]), first)
    assert not env.env.needs_reset


def test_what_cannot_be_saved_is_named():
    with pytest.raises(ValueError, match=r"Locked cannot be restored.*'lock' \(lock\) cannot be saved: cannot pickle"):
        save_state(ready(Locked()))
    with pytest.raises(ValueError, match=r"'simulator' \(Simulator\) cannot be saved: a Simulator would be built anew"):
        save_state(ready(Holder()))
    register_adapter(Walk, Adapter("mine", lambda env: threading.Lock(), lambda env, payload: None))
    with pytest.raises(ValueError, match="What the adapter 'mine' saved cannot be pickled"):
        save_state(ready(Walk()))
    register_adapter(Walk, REPLAY)
    with pytest.raises(ValueError, match=r"Walk is its past.*wrapper_class=StateWrapper"):
        save_state(ready(Walk()))


def test_a_state_of_something_else_is_refused():
    env = ready(Walk())
    state = save_state(env)
    with pytest.raises(ValueError, match=r"one of .*Walk, not of .*CartPoleEnv"):
        restore_state(ready(gym.make("CartPole-v1")), state)
    with pytest.raises(ValueError, match=r"saved in the wrappers \[\], but this environment has \['.*Monitor'\]"):
        restore_state(ready(Monitor(Walk())), state)
    with pytest.raises(ValueError, match="format 1, this version of sb3_budget reads format 2"):
        restore_state(env, state._replace(format=1))
    with pytest.raises(ValueError, match="saved by the adapter 'other', this environment has 'plain'"):
        restore_state(env, state._replace(adapter="other"))
    with pytest.raises(ValueError, match="not a bytes"):
        restore_state(env, pickle.dumps(state))
    for damaged in (state.simulator[:-7], state.simulator[: len(state.simulator) // 2], b""):
        with pytest.raises(ValueError, match="cannot be read"):
            restore_state(env, state._replace(simulator=damaged))


def test_a_state_of_another_model_or_game_is_refused():
    pytest.importorskip("mujoco")
    env, other = make("HalfCheetah-v5"), make("HalfCheetah-v5", frame_skip=4)
    env.reset(seed=0)
    other.reset(seed=0)
    state = env.get_state()
    other.unwrapped.model.opt.timestep = 0.5
    with pytest.raises(ValueError, match=r"MuJoCo model .*dt=0\.01.*but the environment has .*dt=0\.5"):
        other.set_state(state)
    pong, breakout = make("ALE/Pong-v5"), make("ALE/Breakout-v5")
    pong.reset(seed=0)
    breakout.reset(seed=0)
    with pytest.raises(ValueError, match=r"one of pong in mode.*but the environment plays breakout"):
        breakout.set_state(pong.get_state())


def test_only_classes_of_environments_have_adapters():
    with pytest.raises(ValueError, match="needs a class of environments"):
        register_adapter(Walk(), REPLAY)
    with pytest.raises(ValueError, match="needs a class of environments"):
        register_adapter(dict, REPLAY)
    assert full_name(Walk).endswith("test_exactness.Walk")
