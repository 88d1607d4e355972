"""The off-policy arms of the benchmark: what each adds to stock DQN."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from stable_baselines3 import DQN
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv

from sb3_budget.bench.settings import Settings, algorithm_arguments
from sb3_budget.buffers.zero_variance_replay_buffer import ZeroVarianceReplayBuffer
from sb3_budget.callbacks.zero_variance_callback import ZeroVarianceCallback
from sb3_budget.core.evidence import digest


class DistinctReplayBuffer(ZeroVarianceReplayBuffer):
    """
    Control: its pool holds each distinct transition that was stored, and nothing is known of their determinism. What is left
    of a zero-variance pool's effect is that rare transitions come as often as frequent ones.

    Two transitions are one if state, action, reward, next state and end are the same to the bit. Otherwise as
    :class:`~sb3_budget.ZeroVarianceReplayBuffer`.
    """

    def add(
        self,
        obs: Any,
        next_obs: Any,
        action: NDArray[Any],
        reward: NDArray[Any],
        done: NDArray[Any],
        infos: list[dict[str, Any]],
    ) -> None:
        row = self.pos
        ReplayBuffer.add(self, obs, next_obs, action, reward, done, infos)
        self.n_added += self.n_envs
        columns = self._columns()
        for slot, info in enumerate(infos):
            transition = {name: column[row, slot] for name, column in columns.items()}
            # What was cut is left out, as from the pool that this is a control of.
            if not info.get("TimeLimit.truncated", False):
                self.pool.put(
                    digest(b"".join(np.asarray(part).tobytes() for part in transition.values())), transition, self.n_added
                )


def build(kind: str, venv: VecEnv, settings: Settings, seed: int) -> tuple[DQN, list[BaseCallback]]:
    """
    :param kind: ``"stock"``, ``"pool"``, ``"distinct"``, ``"graph"``, or ``"explore"`` for a graph with optimism
    :param venv: the training env
    :param settings: hyperparameters
    :param seed: seed of the model and of the draws from a pool
    :return: the untrained model and its callbacks
    """
    arguments = algorithm_arguments(settings.dqn)
    buffer_kwargs = arguments.pop("replay_buffer_kwargs", {})
    callbacks: list[BaseCallback] = []
    if kind != "stock":
        chosen = DistinctReplayBuffer if kind == "distinct" else ZeroVarianceReplayBuffer
        arguments |= {"replay_buffer_class": chosen, "replay_buffer_kwargs": {"seed": seed, **buffer_kwargs}}
        callbacks = [_callback(kind, settings.replay)]
    return DQN(arguments.pop("policy", "MlpPolicy"), venv, seed=seed, device="cpu", **arguments), callbacks


def _callback(kind: str, written: dict[str, Any]) -> ZeroVarianceCallback:
    kwargs = dict(written)
    optimism = kwargs.pop("optimism", 0.0)
    if kind == "explore":
        kwargs["optimism"] = optimism
    return ZeroVarianceCallback("graph" if kind in ("graph", "explore") else "none", **kwargs)
