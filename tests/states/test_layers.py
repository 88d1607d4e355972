"""The state of wrappers is part of the state, and records of finished episodes are not."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import (
    FrameStackObservation,
    NormalizeObservation,
    RecordEpisodeStatistics,
    RecordVideo,
    TimeAwareObservation,
)
from stable_baselines3.common.atari_wrappers import AtariWrapper, MaxAndSkipEnv
from stable_baselines3.common.monitor import Monitor

from sb3_budget.states import StateWrapper, save_state
from tests.states.families import actions, advance, assert_same, make, play

WRAPPERS = {
    "frame stack": lambda env: FrameStackObservation(env, 3),
    "action repeat": lambda env: MaxAndSkipEnv(env, skip=2),
    "time in the observation": TimeAwareObservation,
    "statistics": RecordEpisodeStatistics,
    "monitor": Monitor,
}


@pytest.mark.parametrize("name", WRAPPERS)
def test_wrappers_go_on_as_they_were(name):
    env, other = (StateWrapper(WRAPPERS[name](gym.make("Pendulum-v1", max_episode_steps=40))) for _ in range(2))
    env.reset(seed=0)
    other.reset(seed=1)
    advance(env, 11)
    advance(other, 5)
    state = env.get_state()
    chosen = actions(env, 60)
    first = play(env, chosen)
    assert_same(other.set_state(state).observation, state.observation)
    assert_same(play(other, chosen), first)


@pytest.mark.parametrize("keep_time", [True, False])
def test_the_record_of_an_episode_goes_on_or_begins_anew(keep_time):
    env = StateWrapper(Monitor(RecordEpisodeStatistics(gym.make("Pendulum-v1", max_episode_steps=20))))
    env.reset(seed=0)
    play(env, actions(env, 5))
    state = env.get_state()
    env.reset()
    env.set_state(state, keep_time=keep_time, keep_records=keep_time)
    for action in actions(env, 20):
        *_, truncated, info = env.step(action)
        if truncated:
            break
    assert info["episode"]["l"] == 20
    monitor = env.env
    assert monitor.get_episode_lengths() == [20]
    assert monitor.get_total_steps() == 20 + (0 if keep_time else 5)


def test_finished_episodes_stay_on_record():
    env = StateWrapper(Monitor(gym.make("Pendulum-v1", max_episode_steps=3)))
    env.reset(seed=0)
    state = env.get_state()
    play(env, actions(env, 5))
    env.set_state(state)
    play(env, actions(env, 5))
    assert env.env.get_episode_lengths() == [3, 3]


def test_an_atari_game_in_its_usual_wrappers():
    env, other = (StateWrapper(AtariWrapper(make("ALE/Breakout-v5", frameskip=1).env)) for _ in range(2))
    env.reset(seed=0)
    other.reset(seed=1)
    advance(env, 30)
    state = env.get_state()
    chosen = actions(env, 25, seed=2)
    first = play(env, chosen)
    restored = other.set_state(state)
    assert_same(restored.observation, state.observation)
    assert restored.observation.shape == (84, 84, 1)
    assert_same(play(other, chosen), first)


def test_a_wrapper_that_cannot_be_saved_is_named():
    class Handle(gym.Wrapper):
        def __init__(self, env):
            super().__init__(env)
            self.generator = (n for n in range(3))

    env = StateWrapper(Handle(gym.make("Pendulum-v1")))
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"wrapper Handle cannot be saved.*'generator'"):
        env.get_state()


def test_the_wrapper_knows_the_last_observation():
    env = StateWrapper(gym.make("Pendulum-v1"))
    first, _ = env.reset(seed=0)
    np.testing.assert_array_equal(env.get_state().observation, first)
    last, *_ = env.step(env.action_space.sample())
    state = env.get_state()
    np.testing.assert_array_equal(state.observation, last)
    env.reset()
    env.set_state(state).observation[:] = 7.0
    np.testing.assert_array_equal(env.get_state().observation, last)


def test_how_a_wrapper_is_set_up_and_what_it_has_learnt_are_no_state():
    def make_env(limit):
        return StateWrapper(NormalizeObservation(gym.make("Pendulum-v1", max_episode_steps=limit)))

    env, other = make_env(30), make_env(50)
    env.reset(seed=0)
    other.reset(seed=1)
    play(other, actions(other, 20))
    state = env.get_state()
    seen = other.env.obs_rms.count
    other.set_state(state)
    assert other.env.obs_rms.count == seen
    other.reset()
    assert len(play(other, actions(other, 100))) == 50


def test_videos_are_left_alone(tmp_path):
    pytest.importorskip("moviepy")

    def make_env(folder):
        env = gym.make("CartPole-v1", render_mode="rgb_array")
        return StateWrapper(RecordVideo(env, str(tmp_path / folder), episode_trigger=lambda number: False))

    env, other = make_env("a"), make_env("b")
    env.reset(seed=0)
    other.reset(seed=1)
    state = env.get_state()
    assert state.n_bytes < 5_000
    other.set_state(state)
    assert other.env.video_folder.endswith("b")


def test_it_must_be_outermost():
    env = FrameStackObservation(StateWrapper(gym.make("Pendulum-v1")), 2)
    env.reset(seed=0)
    with pytest.raises(ValueError, match="must be the outermost wrapper, but FrameStackObservation is around it"):
        save_state(env)
