"""What the budget allocator costs: a part of the sub-command ``overhead``."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from time import process_time
from typing import Any

from stable_baselines3 import PPO

from sb3_budget.bench.envs import make_envs
from sb3_budget.callbacks.budget_allocator_callback import BudgetAllocatorCallback
from sb3_budget.states.state import State
from sb3_budget.vec_env.episode_control_vec_env import EpisodeControlVecEnv
from sb3_budget.vec_env.start import Start

ENVS = ("sb3_budget/FrozenLake16-v1", "sb3_budget/ScaledMountainCar-v0")
MINIGRID = "sb3_budget/DoorKey6-v0"
PRIORITIES = ("novelty", "advantage", "contrast")
#: Steps that are trained for each repetition that was asked for.
STEPS_PER_REPETITION = 100


class _TimedStates(EpisodeControlVecEnv):
    """Counts those that saving states takes."""

    cpu_seconds = 0.0

    def get_states(self, indices: int | Iterable[int]) -> list[State]:
        began = process_time()
        states = super().get_states(indices)
        self.cpu_seconds += process_time() - began
        return states


class _Timed(BudgetAllocatorCallback):
    """Counts seconds of the processor, which do not depend on what else the machine does."""

    cpu_seconds = 0.0

    def _on_step(self) -> bool:
        began = process_time()
        going_on = super()._on_step()
        self.cpu_seconds += process_time() - began
        return going_on

    def _draw(self, slot: int) -> Start | None:
        began = process_time()
        start = super()._draw(slot)
        self.cpu_seconds += process_time() - began
        return start


def measure_allocator(repetitions: int, n_envs: int = 8) -> dict[str, Any]:
    """
    :param repetitions: 100 steps are trained for each, after as many that are not measured
    :param n_envs: number of slots
    :return: per env and priority the processor seconds per step that the callback takes, those of them that saving states
        takes, and the share of all in the run's; restoring a state is a reset of the environment, and not in it
    """
    env_ids = [*ENVS, *([MINIGRID] if importlib.util.find_spec("minigrid") else [])]
    steps = STEPS_PER_REPETITION * repetitions
    return {env_id: {priority: _cost(env_id, priority, n_envs, steps) for priority in PRIORITIES} for env_id in env_ids}


def describe_allocator(measured: dict[str, Any]) -> str:
    """
    :param measured: what :func:`measure_allocator` returned
    :return: the same for people
    """
    lines = ["the budget allocator: microseconds per step (of them for saving states), share of the run"]
    for env_id, by_priority in measured.items():
        costs = "".join(
            f"  {name} {1e6 * cost['per_step']:.1f} ({1e6 * cost['saving']:.1f}), {cost['share']:.0%}"
            for name, cost in by_priority.items()
        )
        lines.append(f"{env_id:34}{costs}")
    return "\n".join(lines)


def _cost(env_id: str, priority: str, n_envs: int, steps: int) -> dict[str, float]:
    venv = _TimedStates(make_envs(env_id, n_envs, seed=0), seed=0)
    model = PPO("MlpPolicy", venv, n_steps=64, batch_size=64, learning_rate=1e-3, seed=0, device="cpu")
    allocator = _Timed(priority)
    # The warm-up, the self-check of states and most of the filling of the archive come before.
    model.learn(steps, callback=allocator)
    first, allocator.cpu_seconds, venv.cpu_seconds = model.num_timesteps, 0.0, 0.0
    began = process_time()
    model.learn(steps, callback=allocator, reset_num_timesteps=False)
    seconds = process_time() - began
    venv.close()
    trained = model.num_timesteps - first
    return {
        "per_step": allocator.cpu_seconds / trained,
        "saving": venv.cpu_seconds / trained,
        "share": allocator.cpu_seconds / seconds,
    }
