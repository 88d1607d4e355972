"""Hand-made environments whose observations say which slot, episode and step they belong to."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit
from numpy.typing import NDArray
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv

WHERE = spaces.Box(0.0, 1000.0, (3,), np.float32)
#: One observation space of each kind that a VecEnv knows.
SPACES: dict[str, spaces.Space] = {
    "box": WHERE,
    "discrete": spaces.Discrete(1_000_000),
    "multi_discrete": spaces.MultiDiscrete([10, 100, 1000]),
    "multi_binary": spaces.MultiBinary(20),
    "dict": spaces.Dict({"where": WHERE, "image": spaces.Box(0, 255, (6, 6, 1), np.uint8)}),
    "tuple": spaces.Tuple((spaces.Discrete(1_000_000), WHERE)),
    "image": spaces.Box(0, 255, (6, 6, 1), np.uint8),
}


def encode(kind: str, slot: int, episode: int, step: int) -> Any:
    """The observation of a kind that stands for a step of a slot's episode."""
    where = np.array([slot, episode, step])
    code = 100_000 * slot + 1000 * episode + step
    image = np.zeros((6, 6, 1), dtype=np.uint8)
    image[0, :3, 0] = where
    observations = {
        "box": where.astype(np.float32),
        "discrete": code,
        "multi_discrete": where,
        "multi_binary": (code >> np.arange(20) & 1).astype(np.int8),
        "dict": {"where": where.astype(np.float32), "image": image},
        "tuple": (code, where.astype(np.float32)),
        "image": image,
    }
    return observations[kind]


class CounterEnv(gym.Env):
    """
    Counts its steps and episodes; the reward is ten times the slot plus the step.

    :param slot: Index of the slot.
    :param kind: Kind of the observations, a key of ``SPACES``.
    :param length: Steps after which an episode terminates. Never by default.
    :param integer_rewards: Whether rewards are Python integers.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}
    render_mode = "rgb_array"

    def __init__(self, slot: int = 0, kind: str = "box", length: int | None = None, integer_rewards: bool = False):
        self.slot, self.kind, self.length, self.integer_rewards = slot, kind, length, integer_rewards
        self.observation_space = SPACES[kind]
        self.action_space = spaces.Discrete(2)
        self.episode, self.steps = -1, 0
        self.seeds: list[int | None] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.episode += 1
        self.steps = (options or {}).get("step", 0)
        return self._observe(), {"episode_begun": self.episode}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        reward = 10 * self.slot + self.steps
        terminated = self.length is not None and self.steps >= self.length
        return self._observe(), reward if self.integer_rewards else float(reward), terminated, False, {}

    def render(self) -> NDArray[np.uint8]:
        return np.full((4, 4, 3), self.steps, dtype=np.uint8)

    def action_masks(self) -> NDArray[np.bool_]:
        return np.array([True, self.steps % 3 != 0])

    def _observe(self) -> Any:
        return encode(self.kind, self.slot, self.episode, self.steps)


class NoisyEnv(gym.Env):
    """Observes where its episode began and the present noise, both drawn from the environment's own generator."""

    observation_space = spaces.Box(0.0, 1.0, (2,), np.float64)
    action_space = spaces.Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float64], dict[str, Any]]:
        super().reset(seed=seed)
        self.start = self.np_random.random()
        return np.array([self.start, 0.0]), {}

    def step(self, action: int) -> tuple[NDArray[np.float64], float, bool, bool, dict[str, Any]]:
        return np.array([self.start, self.np_random.random()]), 0.0, False, False, {}


def make_slot(
    slot: int, make: Callable[..., gym.Env] = CounterEnv, time_limit: int | None = None, monitor: bool = False, **kwargs: Any
) -> gym.Env:
    env = make(slot, **kwargs) if make is CounterEnv else make(**kwargs)
    env = env if time_limit is None else TimeLimit(env, time_limit)
    return Monitor(env) if monitor else env


def make_venv(
    n_envs: int = 2, vec_env_cls: type[VecEnv] = DummyVecEnv, time_limits: list[int] | int | None = None, **kwargs: Any
) -> VecEnv:
    """
    :param n_envs: Number of slots.
    :param vec_env_cls: ``DummyVecEnv`` or ``SubprocVecEnv``.
    :param time_limits: Steps after which an episode is truncated, for all slots or for each.
    :param kwargs: Passed to :func:`make_slot`.
    :return: The base vectorised environment.
    """
    limits = time_limits if isinstance(time_limits, list) else [time_limits] * n_envs
    env_fns = [partial(make_slot, slot, time_limit=limits[slot], **kwargs) for slot in range(n_envs)]
    if vec_env_cls is SubprocVecEnv:
        return SubprocVecEnv(env_fns, start_method="fork")
    return vec_env_cls(env_fns)


def step(venv: VecEnv) -> Any:
    """One step with the same action in all slots."""
    return venv.step(np.zeros(venv.num_envs, dtype=np.int64))


def episode_ends(venv: VecEnv, n_steps: int) -> list[list[dict[str, Any]]]:
    """What ``info["sb3_budget"]`` said at each episode's end within some steps, by slot, in order."""
    ends: list[list[dict[str, Any]]] = [[] for _ in range(venv.num_envs)]
    for _ in range(n_steps):
        for slot, info in enumerate(step(venv)[3]):
            if "sb3_budget" in info:
                ends[slot].append(info["sb3_budget"])
    return ends


def assert_same(first: Any, second: Any) -> None:
    """Equal values, containers and shapes, all the way down."""
    if isinstance(first, dict):
        assert isinstance(second, dict) and first.keys() == second.keys()
        for key in first:
            assert_same(first[key], second[key])
    elif isinstance(first, (list, tuple)):
        assert isinstance(second, (list, tuple)) and len(first) == len(second)
        for one, other in zip(first, second, strict=True):
            assert_same(one, other)
    else:
        assert np.shape(first) == np.shape(second)
        np.testing.assert_array_equal(first, second)
