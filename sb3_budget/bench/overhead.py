"""What the parts cost: the sub-command ``overhead``. Every pair is measured alternately in one run."""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Callable
from time import perf_counter, process_time
from typing import Any

import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import configure
from stable_baselines3.common.vec_env import VecNormalize

from sb3_budget.algorithms.grpo import GRPO
from sb3_budget.bench.allocator_cost import describe_allocator, measure_allocator
from sb3_budget.bench.envs import make_envs
from sb3_budget.bench.pairs import compare, describe_pair
from sb3_budget.bench.settings import MASSIVE
from sb3_budget.buffers.selective_rollout_buffer import SelectiveRolloutBuffer
from sb3_budget.callbacks.selective_rollout_callback import SelectiveRolloutCallback
from sb3_budget.core.gates import QuantileGate
from sb3_budget.core.scores import RolloutView
from sb3_budget.vec_env.episode_control_vec_env import EpisodeControlVecEnv
from sb3_budget.vec_env.staggered_reset_vec_env import StaggeredResetVecEnv


class _Watching(QuantileGate):
    """The gate with all its work, without the stops: those cost resets of the env, which is not the gate's time."""

    def __call__(self, view: RolloutView) -> np.ndarray:
        return super().__call__(view) & False


def default_env() -> str:
    """
    :return: the env measured by default
    """
    return "HalfCheetah-v5" if importlib.util.find_spec("mujoco") else "Pendulum-v1"


def measure(env_id: str, n_envs: int, repetitions: int) -> dict[str, Any]:
    """
    :param env_id: id of the env
    :param n_envs: number of slots
    :param repetitions: pairs of measurements; steps are measured twenty times as often
    :return: medians in seconds and the median ratio of every pair, with and without the part
    """
    torch.set_num_threads(1)
    off, on = _collector(env_id, n_envs, None), _collector(env_id, n_envs, _Watching(0.4))
    return {
        "env": env_id,
        "n_envs": n_envs,
        "wrapper_step": compare(*_steppers(env_id, n_envs), 20 * repetitions),
        "gate_and_buffer_collect": compare(off, on, repetitions),
        "stops_collect": compare(off, _collector(env_id, n_envs, QuantileGate(0.4)), repetitions),
        "thinning_get": compare(*_readers(n_envs), repetitions),
        "group_update": compare(*_updaters(env_id, n_envs), repetitions),
        "grpo_iteration": compare(*_iterations(env_id, n_envs), repetitions),
        "allocator": measure_allocator(repetitions),
    }


def describe(measured: dict[str, Any]) -> str:
    """
    :param measured: what :func:`measure` returned
    :return: the same for people
    """
    labels = {
        "wrapper_step": "one step of all slots, with the wrapper",
        "gate_and_buffer_collect": "one rollout, with gate and buffer",
        "stops_collect": "the same, with the resets that stops cause",
        "thinning_get": "one epoch of minibatches, with thinning",
        "group_update": "advantages and update, GRPO against PPO",
        "grpo_iteration": "one rollout and update, GRPO against PPO",
    }
    lines = [f"{measured['env']}, {measured['n_envs']} slots: milliseconds without, with, ratio"]
    lines += [describe_pair(label, measured[key]) for key, label in labels.items()]
    return "\n".join([*lines, "", describe_allocator(measured["allocator"])])


def _steppers(env_id: str, n_envs: int) -> tuple[Callable[[], float], Callable[[], float]]:
    """Steps of the same envs, past the wrapper and through it. The wrapper's own resets are rare: no median shows them."""
    inner = make_envs(env_id, n_envs, seed=0)
    outer = StaggeredResetVecEnv(inner, seed=0)
    outer.reset()
    rng = np.random.default_rng(0)
    space = inner.action_space
    space.seed(0)
    actions = [np.array([space.sample() for _ in range(n_envs)]) for _ in range(16)]

    def stepper(venv: Any) -> Callable[[], float]:
        def step() -> float:
            chosen = actions[rng.integers(len(actions))]
            started = perf_counter()
            venv.step(chosen)
            return perf_counter() - started

        return step

    return stepper(inner), stepper(outer)


def _collector(env_id: str, n_envs: int, gate: QuantileGate | None) -> Callable[[], float]:
    """Rollouts of PPO on staggered envs, alone or with a gate and our buffer."""
    venv = VecNormalize(StaggeredResetVecEnv(make_envs(env_id, n_envs, seed=0), seed=0))
    selective: dict[str, Any] = {} if gate is None else {"rollout_buffer_class": SelectiveRolloutBuffer}
    model = PPO("MlpPolicy", venv, seed=0, device="cpu", **{**MASSIVE, "batch_size": n_envs * 16}, **selective)
    chosen: list[BaseCallback] = [] if gate is None else [SelectiveRolloutCallback(gate, warmup=0, seed=0)]
    _, callback = model._setup_learn(10**9, chosen)
    callback.on_training_start({}, {})

    def collect() -> float:
        started = perf_counter()
        model.collect_rollouts(venv, callback, model.rollout_buffer, model.n_steps)
        return perf_counter() - started

    return collect


def _grouped(env_id: str, n_envs: int) -> list[tuple[PPO, VecNormalize, BaseCallback]]:
    """PPO, and GRPO on groups of 4, about to train."""
    prepared = []
    for grouped in (False, True):
        inner = make_envs(env_id, n_envs, seed=0)
        venv = VecNormalize(EpisodeControlVecEnv(inner, seed=0) if grouped else inner)
        own: dict[str, Any] = {"group_size": 4 if n_envs % 4 == 0 else 1} if grouped else {}
        model = (GRPO if grouped else PPO)(
            "MlpPolicy", venv, seed=0, device="cpu", **{**MASSIVE, "batch_size": 4 * n_envs}, **own
        )
        _, callback = model._setup_learn(10**9, None)
        callback.on_training_start({}, {})
        model._logger = configure(format_strings=[])
        prepared.append((model, venv, callback))
    return prepared


def _updaters(env_id: str, n_envs: int) -> tuple[Callable[[], float], Callable[[], float]]:
    """What follows a rollout: advantages, and all epochs of the update."""

    def updater(model: PPO, venv: VecNormalize, callback: BaseCallback) -> Callable[[], float]:
        def update() -> float:
            buffer = model.rollout_buffer
            model.collect_rollouts(venv, callback, buffer, model.n_steps)
            started = perf_counter()
            buffer.compute_returns_and_advantage(torch.zeros(n_envs), np.zeros(n_envs))
            model.train()
            return perf_counter() - started

        return update

    off, on = _grouped(env_id, n_envs)
    return updater(*off), updater(*on)


def _iterations(env_id: str, n_envs: int) -> tuple[Callable[[], float], Callable[[], float]]:
    """Whole iterations, in seconds of the processor."""

    def iterator(model: PPO, venv: VecNormalize, callback: BaseCallback) -> Callable[[], float]:
        def iterate() -> float:
            started = process_time()
            model.collect_rollouts(venv, callback, model.rollout_buffer, model.n_steps)
            model.train()
            return process_time() - started

        return iterate

    off, on = _grouped(env_id, n_envs)
    return iterator(*off), iterator(*on)


def _readers(n_envs: int, n_steps: int = 16, n_epochs: int = 4) -> tuple[Callable[[], float], Callable[[], float]]:
    """All epochs of minibatches of one rollout in which a twentieth of the rows ends a stopped episode."""
    model = PPO("MlpPolicy", make_envs("Pendulum-v1", n_envs, seed=0), n_steps=n_steps, batch_size=n_envs, device="cpu")
    buffer = SelectiveRolloutBuffer(
        n_steps, model.observation_space, model.action_space, "cpu", 0.95, 0.99, n_envs, early_weight=0.5, seed=0
    )
    model.rollout_buffer = buffer
    _, callback = model._setup_learn(10**9, None)
    model.collect_rollouts(model.env, callback, buffer, n_steps)  # type: ignore[arg-type]  # the model has an env
    even = copy.deepcopy(buffer)
    buffer.stops |= np.random.default_rng(0).random(buffer.stops.shape) < 0.05
    buffer.compute_returns_and_advantage(torch.zeros(n_envs), np.zeros(n_envs))

    def reader(filled: SelectiveRolloutBuffer) -> Callable[[], float]:
        def read() -> float:
            fresh = copy.deepcopy(filled)
            started = perf_counter()
            for _ in range(n_epochs):
                for _ in fresh.get(4 * n_envs):
                    pass
            return perf_counter() - started

        return read

    return reader(even), reader(buffer)
