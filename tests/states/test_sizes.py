"""States stay small, alone and in thousands, and share what they have in common."""

from __future__ import annotations

import gc
import pickle

import numpy as np
import pytest
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.monitor import Monitor

from sb3_budget import EpisodeControlVecEnv
from sb3_budget.states import StateWrapper, shared
from tests.states.families import actions, advance, assert_same, make, play

#: Of one state that is pickled alone [bytes], as documented.
BOUNDS = {"HalfCheetah-v5": 7_000, "Ant-v5": 11_000, "Humanoid-v5": 18_000}


def size(value) -> int:
    return len(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL))


@pytest.fixture
def cheetah():
    env = make("HalfCheetah-v5")
    env.reset(seed=0)
    return env


@pytest.mark.parametrize("env_id", BOUNDS)
def test_one_state_alone(env_id):
    env = make(env_id)
    env.reset(seed=0)
    for seed in range(5):
        advance(env, 20, seed=seed)
        state = env.get_state()
        assert state.n_bytes == size(state) < BOUNDS[env_id]


def test_ten_thousand_states_of_different_phases(cheetah):
    states = []
    for _ in range(10):
        cheetah.reset()
        for number, action in enumerate(actions(cheetah, 800)):
            cheetah.step(action)
            if number % 8 == 0:
                states.append(cheetah.get_state())
    # A thousand, counted ten times.
    assert 10 * size(states) < 50e6
    assert 10 * sum(map(size, states)) < 100e6
    assert len({part for state in states for part in state.shared}) == 1 + 10  # one model, attributes of ten episodes


def test_states_share_what_they_have_in_common(cheetah):
    first = cheetah.get_state()
    advance(cheetah, 3)
    second = cheetah.get_state()
    assert first.simulator != second.simulator
    assert all(one is other for one, other in zip(first.shared, second.shared, strict=True))


def test_what_arrives_from_elsewhere_is_shared_too(cheetah):
    state = cheetah.get_state()
    copy, other = (pickle.loads(pickle.dumps(state)) for _ in range(2))
    assert all(a is b is c for a, b, c in zip(state.shared, copy.shared, other.shared, strict=True))
    shared.share.cache_clear()
    shared.unshare.cache_clear()
    data = pickle.dumps(state)
    del state, copy, other
    gc.collect()
    assert not shared._ALIVE
    one, other = pickle.loads(data), pickle.loads(data)
    assert all(a is b for a, b in zip(one.shared, other.shared, strict=True))
    first = play(cheetah, actions(cheetah, 3))
    cheetah.reset()
    cheetah.set_state(one)
    assert_same(play(cheetah, actions(cheetah, 3)), first)


def test_nothing_is_kept_that_no_state_holds():
    for number in range(10 * shared.RECENT):
        shared.share(number.to_bytes(8, "big"))
    gc.collect()
    assert len(shared._ALIVE) <= 2 * shared.RECENT
    held = [shared.share(number.to_bytes(8, "big")) for number in range(10 * shared.RECENT)]
    assert [int.from_bytes(shared.unshare(part), "big") for part in held] == list(range(10 * shared.RECENT))
    assert held[0] is shared.share(bytes(8))
    del held
    gc.collect()
    assert len(shared._ALIVE) <= 2 * shared.RECENT


@pytest.mark.parametrize("env_id", ["HalfCheetah-v5", "Ant-v5"])
def test_each_state_brings_its_own_model(env_id):
    env, other = make(env_id), make(env_id)
    env.reset(seed=0)
    other.reset(seed=1)
    rng = np.random.default_rng(0)
    course = actions(env, 5)
    states, outcomes = [], []
    for _ in range(3):
        env.unwrapped.model.body_mass[:] *= rng.uniform(0.5, 2.0)
        env.unwrapped.model.geom_friction[:] *= rng.uniform(0.5, 2.0)
        advance(env, 4)
        states.append(env.get_state())
        outcomes.append(play(env, course))
    for target in (other, env):
        for state, outcome in zip(states, outcomes, strict=True):
            target.unwrapped.model.body_mass[:] *= 3.0
            target.unwrapped.model.opt.density = 7.0
            target.set_state(state)
            assert_same(play(target, course), outcome)


def test_every_number_of_the_simulator_comes_back(cheetah):
    from sb3_budget.states.mujoco import DERIVED

    advance(cheetah, 7)
    data = cheetah.unwrapped.data
    saved = {name: getattr(data, name).tobytes() for name in (*DERIVED, "qpos", "qvel", "qacc_warmstart", "ctrl")}
    state = cheetah.get_state()
    advance(cheetah, 9)
    cheetah.set_state(state)
    assert {name: getattr(data, name).tobytes() for name in saved} == saved


def test_records_of_an_episode_can_be_left_out():
    env = StateWrapper(Monitor(make("Pendulum-v1").env))
    env.reset(seed=0)
    play(env, actions(env, 150))
    full, short = env.get_state(), env.get_state(keep_records=False)
    assert full.n_bytes > short.n_bytes + 150 * 8
    first = play(env, actions(env, 50))
    env.set_state(short)
    assert_same(play(env, actions(env, 50)), first)
    assert env.get_wrapper_attr("get_episode_lengths")() == [200, 50]


def test_states_of_slots_hold_no_records():
    venv = EpisodeControlVecEnv(make_vec_env("Pendulum-v1", 1, seed=0), seed=0)
    venv.reset()
    sizes = []
    for _ in range(2):
        sizes.append(venv.get_states(0)[0].n_bytes)
        for _ in range(100):
            venv.step(np.zeros((1, 1), dtype=np.float32))
    assert abs(sizes[1] - sizes[0]) < 200
