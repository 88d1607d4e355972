"""A random walk with a known value function, many at once, and a policy that looks its values up."""

from __future__ import annotations

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.vec_env import VecEnv

N_STATES, START, GAMMA = 11, 5, 0.95
INTERIOR = np.arange(1, N_STATES - 1)
#: Rewards by the state that a step leads to: the walk to the left is expensive.
REWARDS = 0.1 * (np.arange(N_STATES) - 4.0)

#: Chances of a step from one interior state to another; what is missing from a row sum of 1 ends the walk.
TRANSITIONS = 0.5 * (np.eye(len(INTERIOR), k=1) + np.eye(len(INTERIOR), k=-1))
VALUES = np.zeros(N_STATES)
VALUES[INTERIOR] = np.linalg.solve(
    np.eye(len(INTERIOR)) - GAMMA * TRANSITIONS, 0.5 * (REWARDS[INTERIOR - 1] + REWARDS[INTERIOR + 1])
)


def occupancy(n_steps: int) -> np.ndarray:
    """:return: Chance that an undisturbed walk is in each interior state at each step [n_steps, len(INTERIOR)]."""
    rows = [np.eye(len(INTERIOR))[START - 1]]
    for _ in range(n_steps - 1):
        rows.append(rows[-1] @ TRANSITIONS)
    return np.array(rows)


class RandomWalks(VecEnv):
    """Walks that go left or right by a coin, whatever the action, until they leave the interior states."""

    def __init__(self, n_envs: int, seed: int):
        self.states, self.rng, self.slots = np.full(n_envs, START), np.random.default_rng(seed), np.arange(n_envs)
        super().__init__(n_envs, spaces.Box(0, np.inf, (2,)), spaces.Discrete(2))

    def _observe(self):
        return np.stack([self.states, self.slots], axis=1).astype(np.float32)

    def reset(self):
        self.states[:] = START
        return self._observe()

    def step_async(self, actions):
        pass

    def step_wait(self):
        self.states += self.rng.choice([-1, 1], size=self.num_envs)
        rewards, dones = REWARDS[self.states].astype(np.float32), ~np.isin(self.states, INTERIOR)
        infos = [{} for _ in range(self.num_envs)]
        terminal = self._observe()
        for slot in np.flatnonzero(dones):
            infos[slot] = {"terminal_observation": terminal[slot], "TimeLimit.truncated": False}
        self.states[dones] = START
        return self._observe(), rewards, dones, infos

    def env_method(self, method_name, *args, indices=None, **kwargs):
        assert method_name == "reset"
        self.states[list(indices)] = START
        return [(obs, {}) for obs in self._observe()[list(indices)]]

    def get_attr(self, attr_name, indices=None):
        return [None for _ in self._get_indices(indices)]

    def set_attr(self, attr_name, value, indices=None):
        raise NotImplementedError

    def env_is_wrapped(self, wrapper_class, indices=None):
        return [False for _ in self._get_indices(indices)]

    def close(self):
        pass


class TablePolicy(ActorCriticPolicy):
    """
    Acts at will and looks values up: the true ones, off by an error per slot where it judges (``judge_errors``) and where
    it completes a return (``bootstrap_errors``).
    """

    judge_errors: np.ndarray | float = 0.0
    bootstrap_errors: np.ndarray | float = 0.0
    last_value_heads: th.Tensor | None = None

    def forward(self, obs, deterministic=False):
        values = self._look_up(obs, self.judge_errors)
        self.last_value_heads = th.cat([values - 0.1, values + 0.1], dim=1).T
        return th.zeros(len(obs), dtype=th.long), values, th.zeros(len(obs))

    def predict_values(self, obs):
        return self._look_up(obs, self.bootstrap_errors)

    @staticmethod
    def _look_up(obs, errors):
        states, slots = obs.numpy().astype(int).T
        errors = errors[slots] if isinstance(errors, np.ndarray) else errors
        return th.as_tensor(VALUES[states] + errors, dtype=th.float32)[:, None]


class Walker(PPO):
    """PPO that collects and does not train."""

    def train(self):
        pass
