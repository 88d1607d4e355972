"""A context that only the seed of a start knows."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from sb3_budget import HiddenContextWrapper
from sb3_budget.bench import tasks
from sb3_budget.states import restore_state, save_state


def test_equal_seeds_have_equal_contexts_and_others_do_not():
    env = HiddenContextWrapper(gym.make("Pendulum-v1"), reward_offset=(-6.0, 6.0))
    contexts = []
    for seed in (1, 1, 2):
        env.reset(seed=seed)
        contexts.append(env.offset)
    assert contexts[0] == contexts[1] != contexts[2]
    env.reset()
    assert env.offset not in contexts


def test_the_reward_is_scaled_and_shifted_and_the_observation_is_not():
    plain, env = gym.make("Pendulum-v1"), HiddenContextWrapper(gym.make("Pendulum-v1"), (1.0, 1.0), (3.0, 3.0))
    np.testing.assert_array_equal(plain.reset(seed=0)[0], env.reset(seed=0)[0])
    action = np.array([0.5], dtype=np.float32)
    observation, reward, *_ = plain.step(action)
    shown, changed, *_ = env.step(action)
    np.testing.assert_array_equal(observation, shown)
    assert changed == 3.0 * float(reward) + 1.0


def test_factors_are_of_the_defaults_and_do_not_pile_up():
    env = HiddenContextWrapper(gym.make("Pendulum-v1"), gravity=(2.0, 2.0), mass=(0.5, 0.5), length=(1.5, 1.5))
    for _ in range(3):
        env.reset()
        assert (env.unwrapped.g, env.unwrapped.m, env.unwrapped.l) == (20.0, 0.5, 1.5)


def test_the_dynamics_of_mujoco_change():
    pytest.importorskip("mujoco")
    plain = gym.make("HalfCheetah-v5").unwrapped.model
    env = HiddenContextWrapper(gym.make("HalfCheetah-v5"), mass=(2.0, 2.0), friction=(0.5, 0.5), gravity=(0.1, 0.1))
    for _ in range(2):
        env.reset(seed=0)
        np.testing.assert_allclose(env.unwrapped.model.body_mass, 2.0 * plain.body_mass)
        np.testing.assert_allclose(env.unwrapped.model.body_inertia, 2.0 * plain.body_inertia)
        np.testing.assert_allclose(env.unwrapped.model.geom_friction, 0.5 * plain.geom_friction)
        np.testing.assert_allclose(env.unwrapped.model.opt.gravity, 0.1 * plain.opt.gravity)


@pytest.mark.parametrize("name", ["HalfCheetah-v5", "Ant-v5"])
def test_registered_tasks_draw_dynamics_and_scale_by_the_seed_of_a_start(name):
    pytest.importorskip("mujoco")
    tasks.register()
    env, plain = gym.make(f"sb3_budget/Hidden{name}"), gym.make(name).unwrapped.model
    assert env.spec.max_episode_steps == 1000

    def drawn(**kwargs):
        env.reset(**kwargs)
        model = env.unwrapped.model
        ratios = [model.body_mass[1:] / plain.body_mass[1:], model.geom_friction / plain.geom_friction]
        ratios.append(model.opt.gravity[2:] / plain.opt.gravity[2:])
        # One factor for all bodies, geoms and so on.
        assert all(np.ptp(ratio) < 1e-9 for ratio in ratios)
        return [*(float(ratio.flat[0]) for ratio in ratios), env.get_wrapper_attr("scale")]

    contexts = np.array([drawn(seed=seed) for seed in range(20)])
    assert (contexts >= [0.5, 0.5, 0.7, 0.2]).all() and (contexts <= [1.5, 1.5, 1.3, 2.0]).all()
    assert all(len(set(column)) == 20 for column in contexts.T.tolist())
    assert drawn(seed=3) == contexts[3].tolist() and drawn() not in contexts.tolist()
    assert np.isfinite(env.step(env.action_space.sample())[1])


def test_the_first_observation_tells_nothing_of_the_last_context():
    pytest.importorskip("mujoco")
    first, later = (HiddenContextWrapper(gym.make("Humanoid-v5"), mass=(0.5, 1.5)) for _ in range(2))
    later.reset(seed=5)
    np.testing.assert_array_equal(first.reset(seed=1)[0], later.reset(seed=1)[0])


@pytest.mark.parametrize("env_id", ["Pendulum-v1", "HalfCheetah-v5"])
def test_the_context_is_part_of_a_saved_state(env_id):
    envs = [HiddenContextWrapper(gym.make(env_id), (-1.0, 1.0), gravity=(0.5, 1.5), mass=(0.5, 1.5)) for _ in range(2)]
    for seed, env in enumerate(envs):
        env.reset(seed=seed)
    restore_state(envs[1], save_state(envs[0]))
    action = np.full(envs[0].action_space.shape, 0.3, dtype=np.float32)
    for _ in range(5):
        (observation, reward, *_), (other, same, *_) = (env.step(action) for env in envs)
        np.testing.assert_array_equal(observation, other)
        assert reward == same


def test_bad_input_is_refused():
    env = gym.make("Pendulum-v1")
    with pytest.raises(ValueError, match=r"range of mass \(2.0, 1.0\) is upside down"):
        HiddenContextWrapper(env, mass=(2.0, 1.0))
    with pytest.raises(ValueError, match="PendulumEnv has no friction that could be varied"):
        HiddenContextWrapper(env, friction=(0.5, 1.0))
    with pytest.raises(ValueError, match="CartPoleEnv has no mass that could be varied"):
        HiddenContextWrapper(gym.make("CartPole-v1"), mass=(0.5, 1.0))
