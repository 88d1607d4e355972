"""An environment in which the observation is the age of the episode, and what the callbacks' tests do with it."""

from __future__ import annotations

from collections.abc import Callable

import gymnasium as gym
import numpy as np
import torch as th
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv

from sb3_budget.buffers.selective_rollout_buffer import SelectiveRolloutBuffer
from sb3_budget.callbacks.selective_rollout_callback import SelectiveRolloutCallback
from sb3_budget.vec_env.episode_control_vec_env import EpisodeControlVecEnv

GAMMA = 0.9


class Clock(gym.Env):
    """Observes its age, pays ``reward(age)`` for the step from there and terminates at ``length``."""

    observation_space = spaces.Box(0.0, 1000.0, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, length: int = 10**6, reward: Callable[[int], float] = lambda age: 1.0 + age):
        self.length, self.reward = length, reward

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.age = 0
        return np.zeros(1, dtype=np.float32), {}

    def step(self, action):
        reward = self.reward(self.age)
        self.age += 1
        return np.array([self.age], dtype=np.float32), reward, self.age >= self.length, False, {}


def clocks(n_envs=1, horizon=50, wrapper=EpisodeControlVecEnv, **kwargs):
    base = DummyVecEnv([lambda: TimeLimit(Clock(**kwargs), horizon) for _ in range(n_envs)])
    return base if wrapper is None else wrapper(base)


class Collector(PPO):
    """PPO that collects and, instead of training, moves all parameters by 0.01."""

    def train(self):
        self._n_updates += 1
        with th.no_grad():
            for parameter in self.policy.parameters():
                parameter.add_(0.01)


def collector(venv, n_steps=16, policy="MlpPolicy", **kwargs) -> Collector:
    given = {"rollout_buffer_class": SelectiveRolloutBuffer, "policy_kwargs": {"net_arch": [4]}, **kwargs}
    return Collector(
        policy, venv, n_steps=n_steps, batch_size=n_steps * venv.num_envs, gamma=GAMMA, device="cpu", seed=0, **given
    )


def eager(gate, **kwargs) -> SelectiveRolloutCallback:
    """A callback that looks at every step, from the first on, and audits nothing."""
    return SelectiveRolloutCallback(gate, **{"check_interval": 1, "grace": 0, "warmup": 0, "audit_fraction": 0.0, **kwargs})


class StopAt:
    """Stops slots at some ages, and keeps the views of these."""

    def __init__(self, *ages, slots=None):
        self.ages, self.slots = ages, slots
        self.views = []

    def __call__(self, view):
        stop = view.look & np.isin(view.lengths, self.ages)
        if self.slots is not None:
            stop &= np.isin(np.arange(len(stop)), self.slots)
        if stop.any():
            # The tracker's arrays go on changing.
            self.views.append(view._replace(returns=view.returns.copy(), lengths=view.lengths.copy()))
        return stop


def never(view):
    return np.zeros_like(view.look)


class Recorder(BaseCallback):
    """Keeps the ends of episodes, the marks and rewards of the rollouts, and what was logged."""

    def __init__(self):
        super().__init__()
        self.ends, self.stops, self.factors, self.rewards, self.logs = [], [], [], [], []

    def _on_step(self):
        self.ends += [(slot, info["sb3_budget"]) for slot, info in enumerate(self.locals["infos"]) if "sb3_budget" in info]
        return True

    def _on_rollout_end(self):
        buffer = self.model.rollout_buffer
        self.stops.append(getattr(buffer, "stops", np.zeros(0)).copy())
        self.factors.append(getattr(buffer, "factors", np.zeros(0)).copy())
        self.rewards.append(buffer.rewards.copy())
        self.logs.append(dict(self.model.logger.name_to_value))

    def reasons(self):
        return [(slot, end["reason"], end["length"]) for slot, end in self.ends]


def collect(callback, venv, n_rollouts=1, **kwargs):
    """:return: What happened, and the model."""
    recorder, model = Recorder(), collector(venv, **kwargs)
    model.learn(n_rollouts * model.n_steps * venv.num_envs, callback=[callback, recorder])
    return recorder, model


def value(policy, *ages) -> np.ndarray:
    with th.no_grad():
        return policy.predict_values(th.as_tensor(ages, dtype=th.float32)[:, None]).numpy().ravel()


def assert_same_parameters(first, second):
    for a, b in zip(first.policy.parameters(), second.policy.parameters(), strict=True):
        assert th.equal(a, b)
