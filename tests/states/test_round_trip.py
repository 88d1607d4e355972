"""A restored environment goes on as the saved one did, bit for bit, in every family."""

from __future__ import annotations

import gc
import multiprocessing
import pickle

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sb3_budget.states import State, StateWrapper, restore_state, save_state
from tests.states.families import ALL, actions, advance, assert_same, make, play

N_STEPS = 12
EXAMPLES = settings(max_examples=15, deadline=None, derandomize=True)


@pytest.mark.parametrize("env_id", ALL)
def test_the_same_steps_follow_in_the_same_and_in_another_instance(env_id):
    env, other = make(env_id), make(env_id)
    env.reset(seed=1)
    other.reset(seed=2)
    advance(env, 20)
    advance(other, 7, seed=1)
    state = env.get_state()
    chosen = actions(env, N_STEPS, seed=3)
    first = play(env, chosen)
    assert len(first) > 1 or first[-1][2]
    for target in (other, env):
        target.reset()
        restored = target.set_state(state)
        assert_same(restored.observation, state.observation)
        assert_same(play(target, chosen), first)
    env.close()
    other.close()


@pytest.mark.parametrize("env_id", ["FrozenLake-v1", "MiniGrid-DoorKey-8x8-v0", "HalfCheetah-v5", "LunarLander-v3"])
def test_the_next_reset_is_the_same_too(env_id):
    env, other = make(env_id), make(env_id)
    env.reset(seed=1)
    other.reset(seed=2)
    state = env.get_state()
    other.set_state(state)
    assert_same(env.reset()[0], other.reset()[0])


@pytest.mark.parametrize("env_id", ["Ant-v5", "ALE/Breakout-v5", "FrozenLake-v1"])
def test_eight_copies_and_the_donor_earn_the_same(env_id):
    envs = [make(env_id) for _ in range(8)]
    for seed, env in enumerate(envs):
        env.reset(seed=seed)
        advance(env, 5 + seed, seed=seed)
    state = envs[3].get_state()
    chosen = actions(envs[0], N_STEPS)
    donor = play(envs[3], chosen)
    for env in envs:
        env.set_state(state)
        assert_same(play(env, chosen), donor)


@pytest.mark.parametrize("env_id", ["FrozenLake-v1", "ALE/Pong-v5"])
def test_with_seeds_of_their_own_copies_part(env_id):
    if env_id.startswith("ALE"):
        env, n_steps = make(env_id), 60
    else:
        env, n_steps = make(env_id, is_slippery=True), 3
    env.reset(seed=0)
    state = env.get_state()
    chosen = actions(env, n_steps)
    paths = set()
    for seed in range(8):
        # All from one generator: with Atari's that of the emulator, which seeds only move on.
        env.set_state(state)
        env.set_state(state, seed=seed)
        paths.add(str([np.asarray(outcome[0]).sum() for outcome in play(env, chosen)]))
    assert len(paths) > 1
    env.set_state(state)
    first = play(env, chosen)
    env.set_state(state)
    assert_same(play(env, chosen), first)


@pytest.mark.parametrize("keep_time", [True, False])
def test_a_time_limit_goes_on_or_begins_anew(keep_time):
    env = make("Pendulum-v1", max_episode_steps=30)
    env.reset(seed=0)
    advance(env, 25)
    state = env.get_state()
    env.reset()
    env.set_state(state, keep_time=keep_time)
    outcomes = play(env, actions(env, 40))
    assert len(outcomes) == (5 if keep_time else 30)
    assert outcomes[-1][3]


@pytest.mark.parametrize("env_id", ["HalfCheetah-v5", "LunarLander-v3"])
def test_near_the_end_of_a_long_episode(env_id):
    env = make(env_id)
    limit = 990 if env_id == "HalfCheetah-v5" else 40
    env.reset(seed=0)
    play(env, actions(env, limit))
    state = env.get_state()
    rest = play(env, actions(env, 20, seed=1))
    env.reset()
    env.set_state(state)
    assert_same(play(env, actions(env, 20, seed=1)), rest)
    if env_id == "HalfCheetah-v5":
        assert len(rest) == 10 and rest[-1][3]


@EXAMPLES
@given(st.lists(st.integers(0, 3), max_size=30), st.lists(st.integers(0, 3), min_size=1, max_size=10), st.integers(0, 2**31))
def test_restoring_what_was_just_saved_changes_nothing(before, after, seed):
    env, twin = (make("FrozenLake-v1", is_slippery=True) for _ in range(2))
    for one in (env, twin):
        one.reset(seed=seed)
        play(one, before)
    env.set_state(env.get_state())
    assert_same(play(env, after), play(twin, after))


def _play_elsewhere(env_id: str, data: bytes, chosen: list, answers) -> None:
    env = make(env_id)
    env.reset(seed=77)
    env.set_state(pickle.loads(data))
    answers.send(pickle.dumps(play(env, chosen)))


@pytest.mark.parametrize("env_id", ["Humanoid-v5", "ALE/Qbert-v5"])
def test_a_state_is_the_same_in_another_process(env_id):
    env = make(env_id)
    env.reset(seed=5)
    advance(env, 15)
    data = pickle.dumps(env.get_state())
    chosen = actions(env, N_STEPS)
    first = play(env, chosen)
    context = multiprocessing.get_context("spawn")
    answers, to_child = context.Pipe(duplex=False)
    process = context.Process(target=_play_elsewhere, args=(env_id, data, chosen, to_child))
    process.start()
    # Ours is closed, so that a child which dies is an end of file and not a silence.
    to_child.close()
    elsewhere = pickle.loads(answers.recv())
    process.join()
    assert_same(elsewhere, first)


def test_a_state_from_rl_zoo_fits_an_environment_without_it():
    """RL Zoo replaces Gymnasium's time limit by a class of its own, where it was imported."""
    patched = type("PatchedTimeLimit", (gym.wrappers.TimeLimit,), {"__module__": "rl_zoo3.gym_patches"})
    with_zoo, without = (
        StateWrapper(limit(gym.make("Pendulum-v1").unwrapped, 50)) for limit in (patched, gym.wrappers.TimeLimit)
    )
    with_zoo.reset(seed=0)
    advance(with_zoo, 20)
    without.reset(seed=1)
    without.set_state(with_zoo.get_state())
    chosen = actions(with_zoo, 40)
    assert_same(play(without, chosen), play(with_zoo, chosen))


def test_states_are_small_and_do_not_pile_up():
    env = make("HalfCheetah-v5")
    env.reset(seed=0)
    advance(env, 5)
    size = env.get_state().n_bytes
    assert size < 7_000
    for _ in range(200):
        env.set_state(env.get_state())
        env.step(env.action_space.sample())
    assert abs(env.get_state().n_bytes - size) < 1_000


def test_ten_thousand_states_leave_nothing_behind():
    env = make("Pendulum-v1", max_episode_steps=20_000)
    env.reset(seed=0)
    state = env.get_state()
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(10_000):
        env.set_state(state)
        state = env.get_state()
    gc.collect()
    assert len(gc.get_objects()) - before < 100


def test_a_state_does_not_change_with_the_environment_it_came_from():
    env = make("HalfCheetah-v5")
    env.reset(seed=0)
    state = env.get_state()
    copy = pickle.loads(pickle.dumps(state))
    advance(env, 10)
    assert_same(tuple(state), tuple(copy))


def test_domain_randomisation_is_part_of_the_state():
    env = make("HalfCheetah-v5")
    env.reset(seed=0)
    env.unwrapped.model.body_mass[1] *= 2.0
    env.unwrapped.model.opt.gravity[2] = -5.0
    env.unwrapped.model.opt.wind[:] = [3.0, 0.0, 0.0]
    env.unwrapped.model.opt.density = 2.0
    env.unwrapped.model.geom_solref[:, 0] *= 1.5
    env.unwrapped.model.actuator_ctrlrange[:] *= 0.5
    state = env.get_state()
    first = play(env, actions(env, 5))
    other = make("HalfCheetah-v5")
    other.reset(seed=1)
    other.set_state(state)
    assert_same(play(other, actions(env, 5)), first)


def test_without_a_wrapper_functions_do_the_same():
    env = gym.make("Pendulum-v1")
    observation, _ = env.reset(seed=0)
    state = save_state(env, observation)
    chosen = actions(env, 5)
    first = play(env, chosen)
    assert_same(restore_state(env, state).observation, observation)
    assert_same(play(env, chosen), first)
    assert isinstance(state, State) and state.format == 2
    inside = StateWrapper(gym.make("Pendulum-v1"))
    inside.reset(seed=3)
    inside.set_state(state)
    assert_same(play(inside, chosen), first)
