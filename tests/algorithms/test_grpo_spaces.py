"""Every space and policy that PPO knows, with GRPO: learn, save, load, predict."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.env_util import make_vec_env

from sb3_budget import GRPO, SelectiveRolloutCallback
from tests.algorithms.test_grpo_whole_episodes import parameters

SMALL = {"n_steps": 8, "batch_size": 16, "n_epochs": 1, "seed": 0, "device": "cpu"}
SPACES = {
    "box": spaces.Box(-1.0, 1.0, (2,), np.float32),
    "discrete": spaces.Discrete(3),
    "multi_discrete": spaces.MultiDiscrete([2, 3]),
    "multi_binary": spaces.MultiBinary(3),
    "image": spaces.Box(0, 255, (36, 36, 1), np.uint8),
}
SPACES["dict"] = spaces.Dict({"a": SPACES["box"], "b": SPACES["discrete"], "c": SPACES["image"]})
SMALL_IMAGES = {"features_extractor_kwargs": {"features_dim": 8}}


class Drawn(gym.Env):
    """Observations are drawn from their space, the first one by the seed; actions pay their sum."""

    def __init__(self, observation, action):
        self.observation_space, self.action_space = SPACES[observation], SPACES[action]

    def _observe(self):
        self.observation_space.seed(int(self.np_random.integers(2**31)))
        return self.observation_space.sample()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._observe(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.steps += 1
        return self._observe(), float(np.sum(action)), self.steps == 5, False, {}


def envs(observation, action, n_envs=4):
    return make_vec_env(Drawn, n_envs, seed=0, env_kwargs={"observation": observation, "action": action})


CASES = [
    ("MlpPolicy", "box", "multi_binary", {}),
    ("MlpPolicy", "box", "multi_discrete", {}),
    ("MlpPolicy", "box", "box", {"use_sde": True}),
    ("MlpPolicy", "discrete", "discrete", {}),
    ("MlpPolicy", "multi_discrete", "discrete", {}),
    ("MlpPolicy", "multi_binary", "box", {}),
    ("CnnPolicy", "image", "discrete", {"policy_kwargs": SMALL_IMAGES}),
    ("MultiInputPolicy", "dict", "box", {}),
    ("EnsembleMlpPolicy", "box", "box", {}),
    ("EnsembleMlpPolicy", "box", "discrete", {}),
    ("EnsembleCnnPolicy", "image", "box", {"policy_kwargs": SMALL_IMAGES}),
    ("EnsembleMultiInputPolicy", "dict", "multi_discrete", {}),
]


@pytest.mark.parametrize("advantage", ["residual", "outcome"])
@pytest.mark.parametrize(("policy", "observation", "action", "options"), CASES)
def test_it_learns_is_saved_and_loaded_and_predicts(policy, observation, action, options, advantage, tmp_path):
    # A reference is a second policy of the kind.
    model = GRPO(policy, envs(observation, action), group_size=2, advantage=advantage, beta=0.1, **options, **SMALL)
    before = parameters(model)
    model.learn(64)
    assert np.isfinite(parameters(model)).all() and (parameters(model) != before).any()
    model.save(tmp_path / "model")
    loaded = GRPO.load(tmp_path / "model", env=envs(observation, action))
    observations = envs(observation, action).reset()
    expected, found = (each.predict(observations, deterministic=True)[0] for each in (model, loaded))
    np.testing.assert_array_equal(found, expected)
    loaded.learn(32, reset_num_timesteps=False)


@pytest.mark.parametrize("policy", ["MlpPolicy", "EnsembleMlpPolicy"])
def test_a_target_critic_completes_stopped_episodes(policy):
    def stop(view):
        return view.look & (np.arange(4) == 0)

    gate = SelectiveRolloutCallback(
        stop, check_interval=1, grace=2, warmup=0, audit_fraction=0.0, bootstrap="target", tau=0.5, horizon=5
    )
    model = GRPO(policy, envs("box", "box"), group_size=2, **SMALL).learn(128, callback=gate)
    assert gate.n_stops > 0 and gate.bootstrap.target_state() is not None
    assert np.isfinite(parameters(model)).all()
