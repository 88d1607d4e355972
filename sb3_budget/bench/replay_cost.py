"""What a pool beside the replay buffer costs: a part of the sub-command ``overhead``."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from time import process_time
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import DQN
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

from sb3_budget.bench.envs import make_envs
from sb3_budget.bench.pairs import compare, describe_pair
from sb3_budget.buffers.zero_variance_replay_buffer import ZeroVarianceReplayBuffer

#: As DQN is used mostly.
BATCH, TRAIN_FREQ = 32, 4
#: Steps of a task that are fed to a buffer again and again.
RECORDED = 64


class Images(gym.Env[np.ndarray, np.int64]):
    """Images of Atari's size on a ring, of which an action skips up to three."""

    observation_space = spaces.Box(0, 255, (4, 84, 84), np.uint8)
    action_space = spaces.Discrete(4)

    def __init__(self) -> None:
        self._images = np.random.default_rng(0).integers(256, size=(16, 4, 84, 84)).astype(np.uint8)
        self._place = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._place = 0
        return self._images[0], {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        last = self._place
        self._place = (last + 1 + int(action)) % len(self._images)
        return self._images[self._place], float(self._place < last), self._place == 0, False, {}


def measure_replay(repetitions: int) -> dict[str, Any]:
    """
    :param repetitions: pairs of measurements; a tenth of it for DQN
    :return: medians in seconds of the processor and the median ratio of every pair, with Stable-Baselines3's buffer and with
        ours: ``buffer`` of the buffer alone, for one step, with its share of a batch; ``dqn`` of whole training, for one step
    """
    torch.set_num_threads(1)
    few = max(1, repetitions // 10)
    return {
        "buffer": {name: compare(*_feeders(name), repetitions) for name in ("FrozenLake-v1", "CartPole-v1", "images")},
        "dqn": {
            "FrozenLake-v1": compare(*_learners("FrozenLake-v1", 512), few),
            "CliffWalking-v1": compare(*_learners("CliffWalking-v1", 512), few),
            "images": compare(*_learners("images", 32), few),
        },
    }


def describe_replay(measured: dict[str, Any]) -> str:
    """
    :param measured: what :func:`measure_replay` returned
    :return: the same for people
    """
    lines = ["replay buffers, one step: milliseconds with stock, with a pool, ratio"]
    for part, label in (("buffer", "add, and a share of sample"), ("dqn", "training of DQN")):
        lines += [describe_pair(f"{label}, {name}", pair) for name, pair in measured[part].items()]
    return "\n".join(lines)


def _make(name: str) -> VecEnv:
    if name == "images":
        return DummyVecEnv([Images])
    return make_envs(name, 1, seed=0, env_kwargs={"is_slippery": False} if name == "FrozenLake-v1" else None)


def _size(name: str) -> int:
    return 2_000 if name == "images" else 20_000


def _feeders(name: str) -> tuple[Callable[[], float], Callable[[], float]]:
    """The same steps for both buffers, as often as it takes to know all of them."""
    venv = _make(name)
    steps = _record(venv)

    def feeder(buffer: ReplayBuffer) -> Callable[[], float]:
        endless = cycle(steps)

        def feed(n_steps: int = RECORDED) -> float:
            started = process_time()
            for i in range(n_steps):
                buffer.add(*next(endless))
                if i % TRAIN_FREQ == TRAIN_FREQ - 1:
                    buffer.sample(BATCH)
            return (process_time() - started) / n_steps

        feed(10 * RECORDED)  # until all of them are pooled
        return feed

    spaces_of = (venv.observation_space, venv.action_space)
    stock = ReplayBuffer(_size(name), *spaces_of, device="cpu")
    ours = ZeroVarianceReplayBuffer(_size(name), *spaces_of, device="cpu", start_after=0, seed=0)
    return feeder(stock), feeder(ours)


def _record(venv: VecEnv) -> list[tuple[Any, ...]]:
    """What a random policy sees, as Stable-Baselines3 would store it."""
    venv.action_space.seed(0)
    seen: list[tuple[Any, ...]] = []
    latest = venv.reset()
    for _ in range(RECORDED):
        actions = np.array([venv.action_space.sample()])
        following, rewards, dones, infos = venv.step(actions)
        ends = np.array(
            [info["terminal_observation"] if done else row for row, done, info in zip(following, dones, infos, strict=True)]
        )
        seen.append((latest, ends, actions, rewards, dones, infos))
        latest = following
    return seen


def _learners(name: str, n_steps: int) -> tuple[Callable[[], float], Callable[[], float]]:
    def learner(**own: Any) -> Callable[[], float]:
        model = DQN(
            "CnnPolicy" if name == "images" else "MlpPolicy",
            _make(name),
            buffer_size=_size(name),
            learning_starts=100,
            batch_size=BATCH,
            train_freq=TRAIN_FREQ,
            seed=0,
            device="cpu",
            **own,
        )

        def learn(more: int = n_steps) -> float:
            started = process_time()
            model.learn(more, reset_num_timesteps=False)
            return (process_time() - started) / more

        learn(4 * n_steps)  # until the pool gives its share
        return learn

    own = {"replay_buffer_class": ZeroVarianceReplayBuffer, "replay_buffer_kwargs": {"start_after": 100, "seed": 0}}
    return learner(), learner(**own)
