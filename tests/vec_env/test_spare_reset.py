"""Episodes come from copies that were reset beforehand, in an order that a seed decides."""

from __future__ import annotations

import threading

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import SubprocVecEnv

from sb3_budget import EpisodeControlVecEnv, SpareResetEnv, StaggeredResetVecEnv, Start


class Slow(gym.Env):
    """Notes who resets it; observes a random start, then that plus its age."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), dtype=np.float64)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, length: int = 4):
        self.length = length
        self.threads: list[str] = []
        self.seeds: list[int | None] = []
        self.closed = self.broken = False

    def reset(self, *, seed=None, options=None):
        if self.broken:
            raise RuntimeError("broken")
        super().reset(seed=seed)
        self.threads.append(threading.current_thread().name)
        self.seeds.append(seed)
        self.age, self.origin = 0, float((options or {}).get("origin", self.np_random.random()))
        return self._obs(), {"origin": self.origin}

    def _obs(self):
        return np.array([self.origin + 10 * self.age])

    def step(self, action):
        self.age += 1
        return self._obs(), 1.0, False, self.age == self.length, {}

    def close(self):
        self.closed = True


def copies(n_spare: int = 1) -> tuple[SpareResetEnv, list[Slow]]:
    made: list[Slow] = []

    def make() -> Slow:
        made.append(Slow())
        return made[-1]

    return SpareResetEnv(make, n_spare=n_spare), made


def test_the_next_episode_is_prepared_in_the_background():
    env, (first, spare) = copies()
    env.reset(seed=3)
    for _ in range(6):
        env.reset()
    env.close()
    assert len(first.threads) + len(spare.threads) == 8
    assert first.threads[0] == "MainThread"
    assert all(name.startswith("spare-reset") for name in first.threads[1:] + spare.threads)
    assert first.closed and spare.closed


def test_reset_returns_the_state_that_steps_go_on_from():
    env, made = copies(n_spare=2)
    env.reset(seed=0)
    for round_ in range(7):
        obs, info = env.reset()
        assert env.unwrapped is made[(round_ + 1) % 3]
        assert obs == [info["origin"]]
        obs, *_ = env.step(0)
        assert obs == [info["origin"] + 10]
    env.close()


def test_the_seed_of_the_first_reset_decides_all_later_episodes():
    def starts(seed: int) -> list[float]:
        env, _ = copies(n_spare=2)
        found = [env.reset(seed=seed)[0][0], *(env.reset()[0][0] for _ in range(5))]
        found += [env.reset(seed=seed + 1)[0][0], *(env.reset()[0][0] for _ in range(5))]
        env.close()
        return found

    assert starts(5) == starts(5)
    assert len(set(starts(5))) == 12
    assert set(starts(5)).isdisjoint(starts(7))


def test_a_later_seed_costs_no_reset_of_the_spares():
    env, (first, spare) = copies()
    env.reset(seed=0)
    for seed in (11, 0):
        env.reset(seed=seed)
    env.close()
    assert first.seeds == [0, 11, 0]
    assert len(spare.seeds) == 1 and spare.seeds[0] is not None


def test_a_later_seed_repeats_its_start_and_the_first_one_decides_what_follows():
    def starts(first_seed: int) -> list[float]:
        env, _ = copies()
        env.reset(seed=first_seed)
        found = [env.reset(seed=11)[0][0], env.reset()[0][0], env.reset(seed=11)[0][0]]
        env.close()
        return found

    one, other = starts(1), starts(2)
    assert one == starts(1)
    assert one[0] == one[2] == other[0] == other[2]
    assert len({one[0], one[1], other[1]}) == 3


@pytest.mark.parametrize("seed", [0, None])
def test_slots_that_start_from_the_same_seed_have_different_later_episodes(seed):
    venv = EpisodeControlVecEnv(make_vec_env(lambda: SpareResetEnv(Slow), n_envs=2, seed=seed))
    venv.set_start_sampler(lambda slot: Start(id="same", seed=11))
    obs = venv.reset()
    assert obs[0] == obs[1]
    venv.set_start_sampler(None)
    later = []
    for _ in range(16):
        obs, _, dones, _ = venv.step(np.zeros(2, dtype=int))
        later.extend(obs[dones].ravel())
    assert len(later) == len(set(later)) == 8
    venv.close()


def test_options_reach_the_present_copy_and_leave_the_spare_alone():
    env, (first, spare) = copies()
    env.reset(seed=0)
    obs, _ = env.reset(options={"origin": 0.5})
    assert obs == [0.5] and env.unwrapped is first
    assert len(spare.seeds) == 1
    env.close()


def test_without_a_seed_the_first_reset_needs_no_spare_that_is_ready():
    env, (first, spare) = copies()
    env.reset()
    assert env.unwrapped is spare and spare.seeds == [None]
    env.close()
    assert first.seeds == [None]


def test_an_error_of_a_reset_is_raised_by_the_reset_that_uses_it():
    env, (first, _) = copies()
    env.reset(seed=0)
    first.broken = True
    env.reset()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="broken"):
            env.reset()
    env.close()


@pytest.mark.parametrize("vec_env_cls", [None, SubprocVecEnv])
def test_under_staggered_resets_every_observation_fits_its_episode(vec_env_cls):
    venv = make_vec_env(lambda: SpareResetEnv(Slow), n_envs=3, seed=0, vec_env_cls=vec_env_cls)
    venv = StaggeredResetVecEnv(venv, horizon=4)
    obs = venv.reset()
    origins = obs.copy()
    for _ in range(12):
        before = venv.ages + 1
        obs, _, dones, infos = venv.step(np.zeros(3, dtype=int))
        for slot in range(3):
            last = infos[slot]["terminal_observation"] if dones[slot] else obs[slot]
            assert last == origins[slot] + 10 * before[slot]
        origins[dones] = obs[dones]
    assert len(np.unique(origins)) == 3
    venv.close()


def test_a_start_with_a_seed_is_that_of_the_env():
    venv = StaggeredResetVecEnv(make_vec_env(lambda: SpareResetEnv(Slow), n_envs=2, seed=0), horizon=4)
    venv.set_start_sampler(lambda slot: Start(id="same", seed=11))
    expected, _ = Slow().reset(seed=11)
    for _ in range(3):
        np.testing.assert_array_equal(venv.reset(), np.stack([expected, expected]))
    venv.close()


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="needs a function that makes an environment, not Slow"):
        SpareResetEnv(Slow())
    with pytest.raises(ValueError, match="n_spare=0 must be at least 1"):
        SpareResetEnv(Slow, n_spare=0)
    one = Slow()
    with pytest.raises(ValueError, match="returned the same environment twice"):
        SpareResetEnv(lambda: one)
    made = iter([gym.make("CartPole-v1"), gym.make("Pendulum-v1")])
    with pytest.raises(ValueError, match="different spaces"):
        SpareResetEnv(lambda: next(made))
    with pytest.raises(ValueError, match="Monitor must not be inside"):
        make_vec_env("CartPole-v1", n_envs=1, wrapper_class=lambda env: SpareResetEnv(lambda: env))
