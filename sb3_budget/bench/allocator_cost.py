"""What the budget allocator costs: a part of the sub-command ``overhead``."""

from __future__ import annotations

import importlib.util
from typing import Any

from stable_baselines3 import PPO

from sb3_budget.bench import sparse
from sb3_budget.bench.envs import make_envs
from sb3_budget.callbacks.budget_allocator_callback import BudgetAllocatorCallback
from sb3_budget.vec_env.episode_control_vec_env import EpisodeControlVecEnv

#: Rollout length of the trainings that are measured.
N_STEPS = 128
#: Steps that are trained: most of the archive is filled in the first half.
TOTAL_STEPS = 16_384


def allocator_cost(n_envs: int = 8, total_steps: int = TOTAL_STEPS) -> dict[str, Any]:
    """
    :param n_envs: number of slots
    :param total_steps: steps of each training
    :return: for each env and priority the microseconds per step that the callback takes, and its share of the run's time; resets
        into saved states are the environment's time and not in it
    """
    sparse.register()
    env_ids = ["sb3_budget/FrozenLake16-v1", "sb3_budget/ScaledMountainCar-v0"]
    if importlib.util.find_spec("minigrid"):
        env_ids.append("sb3_budget/DoorKey6-v0")
    return {
        env_id: {priority: _cost(env_id, priority, n_envs, total_steps) for priority in ("novelty", "advantage", "contrast")}
        for env_id in env_ids
    }
