"""Slots begin in saved states, in this process, in others and in threads."""

from __future__ import annotations

import pickle

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack, VecMonitor, VecNormalize

from sb3_budget import EpisodeControlVecEnv, StaggeredResetVecEnv, Start, StateWrapper, ThreadVecEnv
from sb3_budget.states import Adapter, save_state
from tests.vec_env.slot_envs import make_venv


def pendulums(n_envs=3, vec_env_cls=DummyVecEnv, wrapper_class=None, **kwargs):
    base = make_vec_env("Pendulum-v1", n_envs, seed=0, vec_env_cls=vec_env_cls, wrapper_class=wrapper_class, **kwargs)
    return EpisodeControlVecEnv(base, seed=0)


def torque(n_envs, value=0.5):
    return np.full((n_envs, 1), value, dtype=np.float32)


@pytest.mark.parametrize(
    ("vec_env_cls", "wrapper_class"),
    [(DummyVecEnv, None), (DummyVecEnv, StateWrapper), (SubprocVecEnv, StateWrapper), (ThreadVecEnv, None)],
)
def test_slots_restored_from_one_state_go_on_alike(vec_env_cls, wrapper_class):
    venv = pendulums(4, vec_env_cls, wrapper_class)
    venv.reset()
    for _ in range(5):
        obs, *_ = venv.step(torque(4))
    (state,) = venv.get_states(2)
    np.testing.assert_array_equal(state.observation, obs[2])
    venv.set_start_sampler(lambda slot: Start("there", snapshot=state, reseed=False) if slot != 2 else None)
    donor = [venv.step(torque(4))[0][2].copy() for _ in range(3)]
    venv.request_stop([0, 1, 3])
    obs, _, dones, infos = venv.step(torque(4))
    assert dones.tolist() == [True, True, False, True]
    for slot in (0, 1, 3):
        np.testing.assert_array_equal(obs[slot], state.observation)
        assert infos[slot]["sb3_budget"]["reason"] == "stopped"
    for expected in donor:
        obs, rewards, *_ = venv.step(torque(4))
        for slot in (0, 1, 3):
            np.testing.assert_array_equal(obs[slot], expected)
    assert rewards[0] == rewards[1] == rewards[3]
    assert venv.ages.tolist() == [3, 3, 12, 3]
    venv.close()


@pytest.mark.parametrize("keep_time", [True, False])
def test_the_environments_time_limit_goes_on_or_begins_anew(keep_time):
    venv = pendulums(1)
    venv.reset()
    for _ in range(150):
        venv.step(torque(1))
    (state,) = venv.get_states([0])
    venv.set_start_sampler(lambda slot: Start("late", snapshot=state, keep_time=keep_time))
    venv.request_stop(0)
    venv.step(torque(1))
    for _ in range(300):
        _, _, dones, infos = venv.step(torque(1))
        if dones[0]:
            break
    end = infos[0]["sb3_budget"]
    assert (end["reason"], end["length"], end["start_id"]) == ("time_limit", 50 if keep_time else 200, "late")


def test_a_horizon_bounds_a_snapshot_too():
    venv = pendulums(1)
    venv.reset()
    (state,) = venv.get_states([0])
    venv.set_start_sampler(lambda slot: Start("short", snapshot=state, horizon=7))
    venv.reset()
    ends = [venv.step(torque(1))[3][0].get("sb3_budget") for _ in range(7)]
    assert ends[:6] == [None] * 6 and (ends[6]["reason"], ends[6]["length"]) == ("horizon", 7)


def test_noise_is_the_slots_own_unless_it_is_asked_to_be_that_of_the_state():
    def later(reseed):
        venv = EpisodeControlVecEnv(make_vec_env("FrozenLake-v1", 8, seed=0, env_kwargs={"is_slippery": True}), seed=0)
        venv.reset()
        (state,) = venv.get_states([0])
        venv.set_start_sampler(lambda slot: Start("same", snapshot=state, reseed=reseed))
        venv.reset()
        return [venv.step(np.full(8, 2))[0].tolist() for _ in range(2)]

    assert all(len(set(positions)) == 1 for positions in later(reseed=False))
    assert len(set(later(reseed=True)[1])) > 1
    assert later(reseed=True) == later(reseed=True)


def test_steps_that_states_cost_are_in_the_ledger(monkeypatch):
    monkeypatch.setattr("sb3_budget.states.exactness._CHECKED", {})
    pytest.importorskip("Box2D")
    venv = EpisodeControlVecEnv(make_vec_env("LunarLander-v3", 2, seed=0, wrapper_class=StateWrapper))
    venv.reset()
    for _ in range(4):
        venv.step(np.zeros(2, dtype=int))
    (state,) = venv.get_states([0])
    checked = venv.ledger.verification_steps
    # Twice 8 steps and 3 elsewhere; 4 + 8 played again to where 8 are repeated, and 4 to where it began.
    assert checked == state.steps == (2 * 8 + 3) + (4 + 8) + 8 + 4
    venv.set_start_sampler(lambda slot: Start("again", snapshot=state))
    venv.request_stop(1)
    obs, *_ = venv.step(np.zeros(2, dtype=int))
    np.testing.assert_array_equal(obs[1], state.observation)
    assert venv.ledger.verification_steps == checked + 4


def test_wrappers_above_see_an_ordinary_reset():
    control = EpisodeControlVecEnv(DummyVecEnv([lambda: gym.make("Pendulum-v1")] * 2), seed=0)
    venv = VecFrameStack(VecNormalize(VecMonitor(control)), 2)
    venv.reset()
    for _ in range(3):
        venv.step(torque(2))
    (state,) = control.get_states(0)
    control.set_start_sampler(lambda slot: Start("there", snapshot=state))
    control.request_stop(1)
    obs, _, _, infos = venv.step(torque(2))
    normalised = venv.venv.normalize_obs(state.observation)
    np.testing.assert_allclose(obs[1], np.concatenate([np.zeros(3), normalised]), rtol=1e-5)
    assert infos[1]["episode"]["l"] == 4


def test_ppo_trains_from_snapshots():
    control = pendulums(4)
    control.reset()
    states = control.get_states(range(4))
    rng = np.random.default_rng(0)
    control.set_start_sampler(lambda slot: Start(0, snapshot=states[rng.integers(4)], keep_time=False))
    model = PPO("MlpPolicy", VecNormalize(control), n_steps=64, batch_size=64, n_epochs=1, seed=0, device="cpu").learn(1024)
    assert model.num_timesteps == control.ledger.learning_steps == 1024


def test_states_survive_a_pickle_and_serve_another_vec_env():
    venv = pendulums(1)
    venv.reset()
    data = pickle.dumps(venv.get_states([0]))
    other = pendulums(2)
    (state,) = pickle.loads(data)
    other.set_start_sampler(lambda slot: Start("there", snapshot=state))
    obs = other.reset()
    np.testing.assert_array_equal(obs, np.stack([state.observation] * 2))


def test_misuse_is_refused():
    with pytest.raises(ValueError, match="has been reset"):
        pendulums().get_states([0])
    off = EpisodeControlVecEnv(make_venv(1), enabled=False)
    off.reset()
    with pytest.raises(ValueError, match="that is enabled"):
        off.get_states([0])
    venv = pendulums(2)
    venv.reset()
    with pytest.raises(ValueError, match=r"Slots \[2\] must lie in \[0, 2\)"):
        venv.get_states([2])
    state = venv.get_states([0])[0]
    with pytest.raises(ValueError, match="which is a whole state, and seed: give one of them"):
        venv.set_start_sampler(lambda slot: Start("two", seed=1, snapshot=state))
        venv.reset()
    venv.set_start_sampler(lambda slot: Start("no", snapshot=b"state"))
    with pytest.raises(ValueError, match="no State but a bytes"):
        venv.reset()
    blind = save_state(venv.venv.envs[0])
    venv.set_start_sampler(lambda slot: Start("blind", snapshot=blind))
    with pytest.raises(ValueError, match="holds no observation"):
        venv.reset()


def test_another_process_needs_a_wrapper():
    venv = pendulums(1, SubprocVecEnv)
    venv.reset()
    with pytest.raises(ValueError, match=r"SubprocVecEnv need a StateWrapper.*wrapper_class=StateWrapper"):
        venv.get_states([0])
    venv.close()


def test_a_state_of_another_env_is_refused_when_a_slot_begins_in_it():
    state = save_state(make_venv(1).envs[0], np.zeros(3))
    venv = StaggeredResetVecEnv(make_vec_env("Pendulum-v1", 2, seed=0))
    venv.set_start_sampler(lambda slot: Start("there", snapshot=state))
    with pytest.raises(ValueError, match=r"one of .*CounterEnv, not of .*PendulumEnv"):
        venv.reset()


class Walk(gym.Env):
    """Keeps its position where only an adapter finds it."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = gym.spaces.Discrete(2)

    def __init__(self):
        box = [0.0]
        self.read, self.write = (lambda: box[0]), (lambda value: box.__setitem__(0, value))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.write(0.0)
        return np.array([0.0]), {}

    def step(self, action):
        self.write(self.read() + 1.0 + float(action))
        return np.array([self.read()]), 0.0, False, False, {}


def save_walk(env):
    return env.read()


def restore_walk(env, payload):
    env.write(payload)


def test_a_worker_answers_with_an_error_and_lives():
    venv = EpisodeControlVecEnv(make_vec_env(Walk, 2, seed=0, vec_env_cls=SubprocVecEnv, wrapper_class=StateWrapper))
    venv.reset()
    with pytest.raises(
        ValueError, match=r"Walk cannot be restored exactly.*Slot 1 may have been moved by the check: call reset"
    ):
        venv.get_states([1])
    assert venv.reset().tolist() == [[0.0], [0.0]]
    venv.close()


def test_an_adapter_reaches_the_workers_with_the_wrapper():
    arguments = {"wrapper_class": StateWrapper, "wrapper_kwargs": {"adapter": Adapter("walk", save_walk, restore_walk)}}
    venv = EpisodeControlVecEnv(make_vec_env(Walk, 2, seed=0, vec_env_cls=SubprocVecEnv, **arguments))
    venv.reset()
    venv.step(np.array([1, 0]))
    (state,) = venv.get_states([0])
    assert state.adapter == "walk"
    venv.set_start_sampler(lambda slot: Start("two", snapshot=state))
    assert venv.reset().tolist() == [[2.0], [2.0]]
    assert venv.step(np.array([0, 1]))[0].tolist() == [[3.0], [4.0]]
    venv.close()


def scaled(env):
    return gym.wrappers.RescaleObservation(StateWrapper(env), np.float32(-1.0), np.float32(1.0))


def test_a_wrapper_around_the_one_that_saves_is_found_in_other_processes_too():
    venv = EpisodeControlVecEnv(make_vec_env("MountainCar-v0", 1, seed=0, vec_env_cls=SubprocVecEnv, wrapper_class=scaled))
    venv.reset()
    with pytest.raises(ValueError, match="must be the outermost wrapper"):
        venv.get_states([0])
    venv.close()


def test_monitor_reports_whole_episodes_only():
    venv = pendulums(1)
    venv.reset()
    for _ in range(150):
        venv.step(torque(1))
    (state,) = venv.get_states([0])
    starts = [Start("late", snapshot=state), None]
    venv.set_start_sampler(lambda slot: starts.pop(0) if starts else None)
    venv.request_stop(0)
    episodes = []
    for _ in range(1 + 50 + 200):
        _, _, dones, infos = venv.step(torque(1))
        if dones[0]:
            episodes.append((infos[0]["sb3_budget"]["start_id"], infos[0].get("episode", {}).get("l")))
    assert episodes == [(None, None), ("late", None), (None, 200)]
    assert venv.env_method("get_episode_lengths")[0] == [50, 200]


def test_noise_that_was_borrowed_is_given_back():
    venv = pendulums(4)
    venv.reset()
    (state,) = venv.get_states([0])
    venv.set_start_sampler(lambda slot: Start("same", snapshot=state, reseed=False))
    venv.reset()
    venv.set_start_sampler(None)
    later = [venv.reset() for _ in range(2)][-1]
    assert len(np.unique(later[:, 0])) == 4


def test_what_says_how_a_snapshot_goes_on_needs_one():
    venv = pendulums(1)
    for wrong in (Start("a", seed=1, reseed=False), Start("a", keep_time=False)):
        venv.set_start_sampler(lambda slot, wrong=wrong: wrong)
        with pytest.raises(ValueError, match="only say how a snapshot goes on, and no snapshot"):
            venv.reset()
