"""Lengths of episodes follow where the rewards vary."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from sb3_budget import (
    AdaptiveHorizonCallback,
    AdaptiveHorizons,
    SelectiveRolloutCallback,
    StaggeredResetCallback,
    StaggeredResetVecEnv,
    Start,
)

SMALL = {"n_steps": 16, "batch_size": 64, "n_epochs": 1, "seed": 0, "device": "cpu", "policy_kwargs": {"net_arch": [4]}}
HORIZON = 20


class Noise(gym.Env):
    """Rewards vary in the first five steps, or in the last one alone."""

    observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, late: bool):
        self.late = late

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, dtype=np.float32), {}

    def step(self, action):
        self.steps += 1
        varies = self.steps == HORIZON if self.late else self.steps <= 5
        reward = self.np_random.normal() if varies else 0.0
        return np.array([self.steps / HORIZON], dtype=np.float32), reward, False, self.steps == HORIZON, {}


def train(late, **kwargs):
    horizons = AdaptiveHorizons(HORIZON, gamma=0.99)
    venv = StaggeredResetVecEnv(DummyVecEnv([lambda: Noise(late)] * 8), horizon=HORIZON, horizon_budget=horizons)
    model = PPO("MlpPolicy", venv, **SMALL)
    model.learn(4096, callback=[AdaptiveHorizonCallback(horizons, replan_every=512), *kwargs.get("callbacks", [])])
    return horizons, model


def test_steps_go_where_rewards_vary():
    early, model = train(late=False)
    assert early.survival[:5].min() > 0.9 and early.survival[6:].max() < 0.2
    assert model.logger.name_to_value["budget/planned_length"] < 10
    late, _ = train(late=True)
    np.testing.assert_allclose(late.survival, 1.0)


@pytest.mark.filterwarnings("ignore:The gate takes")
def test_episodes_that_a_gate_has_stopped_are_not_recorded():
    def stop(view):
        return view.look

    gate = SelectiveRolloutCallback(stop, check_interval=3, grace=3, warmup=0, audit_fraction=0.0, min_active=0)
    horizons, _ = train(late=False, callbacks=[gate])
    assert gate.n_stops > 100
    # Only first episodes that ended before a stop could be served, two steps after the first look.
    assert all(np.isnan(row[5:]).all() for row in horizons._recorded)


def test_of_episodes_beyond_the_horizon_the_steps_within_it_are_recorded():
    horizons = AdaptiveHorizons(12, gamma=0.99)
    # The environment's own limit is 20 steps, and no episode is drawn to be shorter than 12.
    venv = StaggeredResetVecEnv(DummyVecEnv([lambda: Noise(False)] * 4), horizon=12, horizon_budget=horizons)
    PPO("MlpPolicy", venv, **SMALL).learn(512, AdaptiveHorizonCallback(horizons, replan_every=10**6))
    # The first episodes of three slots were cut by staggering, at 9, 6 and 3 steps.
    assert [int((~np.isnan(row)).sum()) for row in horizons._recorded][:5] == [3, 6, 9, 12, 12]


def test_another_discount_factor_than_the_models_is_said():
    horizons = AdaptiveHorizons(HORIZON, gamma=0.5)
    venv = StaggeredResetVecEnv(DummyVecEnv([lambda: Noise(True)] * 2), horizon=HORIZON, horizon_budget=horizons)
    with pytest.warns(UserWarning, match=r"gamma=0\.5, the model with gamma=0\.99"):
        PPO("MlpPolicy", venv, **{**SMALL, "batch_size": 32}).learn(32, callback=AdaptiveHorizonCallback(horizons))


@pytest.mark.filterwarnings("ignore:Staggered resets cannot help")
def test_episodes_that_began_in_a_saved_state_are_not_recorded():
    horizons, model = train(late=True)
    venv, before = model.get_env(), [*map(id, horizons._recorded)]
    for _ in range(5):
        venv.step(np.zeros(8, dtype=np.int64))
    state = venv.get_states(0)[0]
    venv.set_start_sampler(lambda slot: Start("later", snapshot=state))
    callback = AdaptiveHorizonCallback(horizons, replan_every=10**6)
    model.learn(16 * 8 * 10, callback=callback, reset_num_timesteps=True)
    assert [*map(id, horizons._recorded)] == before


def test_misuse_is_refused():
    with pytest.raises(ValueError, match="replan_every=0 must be at least 1 step"):
        AdaptiveHorizonCallback(AdaptiveHorizons(10), replan_every=0)
    venv = StaggeredResetVecEnv(DummyVecEnv([lambda: Noise(True)] * 2), horizon=HORIZON)
    with pytest.raises(ValueError, match="with the same object"):
        PPO("MlpPolicy", venv, **{**SMALL, "batch_size": 32}).learn(32, AdaptiveHorizonCallback(AdaptiveHorizons(HORIZON)))
    horizons = AdaptiveHorizons(HORIZON)
    base = DummyVecEnv([lambda: Noise(True)] * 2)
    venv = StaggeredResetVecEnv(base, horizon=HORIZON, horizon_budget=horizons, enabled=False)
    model = PPO("MlpPolicy", venv, **{**SMALL, "batch_size": 32})
    with pytest.raises(ValueError, match=r"enabled=False.* list that callback first"):
        model.learn(32, AdaptiveHorizonCallback(horizons))
    model.learn(32, [StaggeredResetCallback(), AdaptiveHorizonCallback(horizons)])


def test_a_scale_of_rewards_that_changes_is_no_variance():
    class Cost(Noise):
        def step(self, action):
            observation, _, *rest = super().step(action)
            return observation, -1.0, *rest

    horizons = AdaptiveHorizons(HORIZON, gamma=0.99)
    venv = StaggeredResetVecEnv(DummyVecEnv([lambda: Cost(True)] * 8), horizon=HORIZON, horizon_budget=horizons)
    PPO("MlpPolicy", VecNormalize(venv), **SMALL).learn(2048, AdaptiveHorizonCallback(horizons, replan_every=512))
    np.testing.assert_array_equal(horizons.survival, 1.0)
    assert all((row[~np.isnan(row)] == -1.0).all() for row in horizons._recorded)
