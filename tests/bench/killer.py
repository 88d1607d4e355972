"""An environment that takes its process along when it is seeded with 1."""

from __future__ import annotations

import multiprocessing
import os

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class Killer(gym.Env):
    observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed == 1 and multiprocessing.parent_process() is not None:
            os._exit(9)
        return np.zeros(1, dtype=np.float32), {}

    def step(self, action):
        return np.zeros(1, dtype=np.float32), 0.0, False, False, {}


gym.register("Killer-v0", Killer, max_episode_steps=8)
