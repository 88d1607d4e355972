"""Tasks that are registered for the benchmark under ``sb3_budget/``."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from sb3_budget.vec_env.hidden_context import HiddenContextWrapper

#: Id -> the env below, and what of it is hidden.
TASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "sb3_budget/HiddenOffsetPendulum-v1": ("Pendulum-v1", {"reward_offset": (-6.0, 6.0)}),
    "sb3_budget/HiddenPendulum-v1": ("Pendulum-v1", {"gravity": (0.5, 1.5), "mass": (0.5, 1.5), "length": (0.7, 1.3)}),
    "sb3_budget/HiddenOffsetHalfCheetah-v5": ("HalfCheetah-v5", {"reward_offset": (-3.0, 3.0)}),
    "sb3_budget/HiddenHalfCheetah-v5": (
        "HalfCheetah-v5",
        {"mass": (0.5, 1.5), "friction": (0.5, 1.5), "gravity": (0.7, 1.3), "reward_scale": (0.2, 2.0)},
    ),
    "sb3_budget/HiddenAnt-v5": (
        "Ant-v5",
        {"mass": (0.5, 1.5), "friction": (0.5, 1.5), "gravity": (0.7, 1.3), "reward_scale": (0.2, 2.0)},
    ),
}
#: Id -> what makes it, the module being imported when the first is made; its keyword arguments; and its time limit.
LAZY: dict[str, tuple[str, dict[str, Any], int]] = {
    "sb3_budget/MiniGridLevels-v0": ("sb3_budget.bench.levels:LevelsEnv", {}, 64),
    "sb3_budget/FrozenLake16-v1": ("sb3_budget.bench.sparse:frozen_lake_16", {}, 192),
    "sb3_budget/ScaledMountainCar-v0": ("sb3_budget.bench.sparse:scaled_mountain_car", {}, 200),
    "sb3_budget/DoorKey6-v0": ("sb3_budget.bench.sparse:door_key", {"size": 6}, 360),
    "sb3_budget/OneDoorKey5-v0": ("sb3_budget.bench.sparse:one_door_key", {"size": 5}, 250),
    "sb3_budget/KeyCorridor3-v0": ("sb3_budget.bench.sparse:key_corridor", {}, 270),
    "sb3_budget/DoorKey8-v0": ("sb3_budget.bench.sparse:door_key", {"size": 8}, 640),
}


def _maker(below: str, hidden: dict[str, Any]) -> Any:
    def make(**kwargs: Any) -> gym.Env:
        return HiddenContextWrapper(gym.make(below, **kwargs), **hidden)

    return make


def register() -> None:
    """Make the tasks known to Gymnasium, once."""
    for env_id, (below, hidden) in TASKS.items():
        if env_id not in gym.registry:
            # The env below has its own time limit, which is that of the task.
            gym.register(env_id, _maker(below, hidden), max_episode_steps=gym.spec(below).max_episode_steps)
    for env_id, (entry_point, kwargs, max_steps) in LAZY.items():
        if env_id not in gym.registry:
            gym.register(env_id, entry_point, max_episode_steps=max_steps, kwargs=kwargs)
