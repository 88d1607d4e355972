"""Evaluation during training, and what a run's episodes and budget looked like."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import KVWriter
from stable_baselines3.common.vec_env import VecEnv, unwrap_vec_wrapper

from sb3_budget.core.ledger import Ledger
from sb3_budget.vec_env.episode_control_vec_env import EpisodeControlVecEnv


def evaluate(model: BaseAlgorithm, venv: VecEnv, seed: int, deterministic: bool = True) -> np.ndarray:
    """
    One episode per slot of a bare env, its observations normalised by the training statistics.

    :param model: the model
    :param venv: evaluation env, without any wrapper of ours and without ``VecNormalize``
    :param seed: seed of the starts: the same ones at every evaluation
    :param deterministic: whether the policy takes its likeliest action; otherwise actions are drawn, by the same seed
    :return: undiscounted raw returns (n_envs,)
    """
    # What evaluations draw must not change what training draws.
    with torch.random.fork_rng(devices=[], enabled=not deterministic):
        if not deterministic:
            torch.default_generator.manual_seed(seed)
        return _play(model, venv, seed, deterministic)


def _play(model: BaseAlgorithm, venv: VecEnv, seed: int, deterministic: bool) -> np.ndarray:
    normalizer = model.get_vec_normalize_env()
    venv.seed(seed)
    observations: Any = venv.reset()
    returns = np.zeros(venv.num_envs)
    running = np.ones(venv.num_envs, dtype=bool)
    while running.any():
        if normalizer is not None:
            observations = normalizer.normalize_obs(observations)
        actions, _ = model.predict(observations, deterministic=deterministic)
        observations, rewards, dones, _ = venv.step(actions)
        returns[running] += rewards[running]
        running &= ~dones
    return returns


class _Listener(KVWriter):
    """
    Passes on what a logger writes.

    :param keep: is given the values by key
    """

    def __init__(self, keep: Callable[[dict[str, Any]], None]):
        self.keep = keep

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        self.keep(key_values)

    def close(self) -> None:
        """Nothing is open."""


class Recorder(BaseCallback):
    """
    Evaluates between two rollouts and stops training when the ledger, not ``num_timesteps``, has reached the budget.

    :param eval_env: bare evaluation env
    :param total_steps: budget in simulator steps
    :param n_evals: evaluations at equal distances, besides the one before training
    :param warmup: share of the budget whose episodes do not enter :attr:`mean_length`
    :param seed: seed of the evaluations
    :param progress: called with the number of new simulator steps after every rollout
    :param deterministic: whether evaluations take the likeliest actions
    """

    def __init__(
        self,
        eval_env: VecEnv,
        total_steps: int,
        n_evals: int,
        warmup: float,
        seed: int,
        progress: Callable[[int], None],
        deterministic: bool = True,
    ) -> None:
        super().__init__()
        self.eval_env = eval_env
        self.total_steps = total_steps
        self.n_evals = n_evals
        self.warmup_steps = warmup * total_steps
        self.seed = seed
        self.progress = progress
        self.deterministic = deterministic
        self.points: list[list[float]] = []
        self.reasons: Counter[str] = Counter()
        self.late_lengths: list[int] = []
        self.last_log: dict[str, float] = {}
        self._reported = 0
        self._next_evaluation = 0.0
        self._over = False
        self._paused = 0.0
        self._cpu_paused = 0.0

    @property
    def ledger(self) -> Ledger:
        """The wrapper's ledger; without one, SB3's own count."""
        control = unwrap_vec_wrapper(self.training_env, EpisodeControlVecEnv)
        if control is not None:
            return control.ledger
        # Every slot begins once, and once more at every end.
        return Ledger(learning_steps=self.num_timesteps, resets=self.training_env.num_envs + sum(self.reasons.values()))

    @property
    def mean_length(self) -> float | None:
        """Mean length of the episodes that ended after the warm-up."""
        return float(np.mean(self.late_lengths)) if self.late_lengths else None

    @property
    def seconds(self) -> float:
        """Seconds of training, without the evaluations."""
        return time.perf_counter() - self._started - self._paused

    @property
    def cpu_seconds(self) -> float:
        """Processor seconds of training, without the evaluations."""
        return time.process_time() - self._cpu_started - self._cpu_paused

    def _on_training_start(self) -> None:
        self._started = time.perf_counter()
        self._cpu_started = time.process_time()
        # What an algorithm records after its rollout is gone when the next one begins.
        self.logger.output_formats.append(_Listener(self._keep))

    def _on_rollout_start(self) -> None:
        steps = self.ledger.total_steps
        self.progress(steps - self._reported)
        self._reported = steps
        if steps >= self._next_evaluation:
            self._evaluate()
            self._next_evaluation = (steps * self.n_evals // self.total_steps + 1) * self.total_steps / self.n_evals
        self._over = steps >= self.total_steps

    def _on_step(self) -> bool:
        for slot in np.flatnonzero(self.locals["dones"]):
            info = self.locals["infos"][slot]
            ours = info.get("sb3_budget")
            if ours is not None:
                reason, length = ours["reason"], ours["length"]
            else:
                reason = "time_limit" if info.get("TimeLimit.truncated") else "terminated"
                length = info["episode"]["l"]
            self.reasons[reason] += 1
            if self.num_timesteps > self.warmup_steps:
                self.late_lengths.append(int(length))
        return not self._over

    def _on_rollout_end(self) -> None:
        self._keep(self.logger.name_to_value)

    def _keep(self, values: dict[str, Any]) -> None:
        ours = {key: float(value) for key, value in values.items() if key.startswith("budget/") and np.ndim(value) == 0}
        self.last_log.update({key: value for key, value in ours.items() if np.isfinite(value)})

    def _on_training_end(self) -> None:
        if not self._over:
            self._evaluate()
            self.progress(self.ledger.total_steps - self._reported)

    def _evaluate(self) -> None:
        seconds, cpu_seconds = self.seconds, self.cpu_seconds
        returns = evaluate(self.model, self.eval_env, self.seed, self.deterministic)
        steps = self.ledger.total_steps
        self.points.append([steps, seconds, cpu_seconds, float(returns.mean()), float(returns.std())])
        self._paused += self.seconds - seconds
        self._cpu_paused += self.cpu_seconds - cpu_seconds
