"""Hyperparameters of a benchmark run: plain data, the same for every arm unless an arm is given its own."""

from __future__ import annotations

from typing import Any, NamedTuple

from stable_baselines3.common.utils import LinearSchedule
from torch import nn

from sb3_budget.bench.literals import literal


class Settings(NamedTuple):
    """
    What a run is trained with, as JSON-ready data.

    :param n_envs: number of slots
    :param normalize: ``False``, or the keyword arguments of ``VecNormalize``
    :param ppo: keyword arguments of ``PPO``; schedules as ``lin_0.0003``, ``policy_kwargs`` also as a string
    :param env_kwargs: keyword arguments of the env
    :param stagger: keyword arguments of ``StaggeredResetVecEnv`` where an arm uses it
    :param selective: keyword arguments of ``SelectiveRolloutCallback`` where an arm uses it
    :param buffer: keyword arguments of ``SelectiveRolloutBuffer`` where an arm uses it
    :param allocator: keyword arguments of ``BudgetAllocatorCallback`` where an arm uses it
    :param dqn: keyword arguments of ``DQN``, for the arms that train one, with its ``replay_buffer_kwargs``
    :param replay: keyword arguments of ``ZeroVarianceCallback`` where an arm uses it
    """

    n_envs: int
    normalize: bool | dict[str, Any]
    ppo: dict[str, Any]
    env_kwargs: dict[str, Any]
    stagger: dict[str, Any]
    selective: dict[str, Any]
    buffer: dict[str, Any]
    allocator: dict[str, Any]
    dqn: dict[str, Any] = {}
    replay: dict[str, Any] = {}


MASSIVE: dict[str, Any] = {
    "n_steps": 16,
    "batch_size": 256,
    "n_epochs": 4,
    "learning_rate": 3e-4,
    "gamma": 0.99,
    "gae_lambda": 0.95,
}
"""Many slots and short rollouts: the regime in which resets in step hurt most."""

PENDULUMS: dict[str, Any] = {"n_steps": 32, "batch_size": 512, "learning_rate": 1.5e-3, "gamma": 0.9, "n_epochs": 8}
"""For pendulums with a hidden context."""

PER_ENV: dict[str, dict[str, Any]] = {
    "Pendulum-v1": {"learning_rate": 1e-3, "gamma": 0.9, "n_epochs": 10},
    "Hopper-v5": {"learning_rate": 1e-3, "gamma": 0.999, "gae_lambda": 0.98},
    "Ant-v5": {"policy_kwargs": "dict(log_std_init=-1)"},
    "Swimmer-v5": {"n_steps": 64, "n_epochs": 10, "learning_rate": 1e-3, "gamma": 0.9999, "gae_lambda": 0.98},
    "sb3_budget/HiddenOffsetPendulum-v1": PENDULUMS,
    "sb3_budget/HiddenPendulum-v1": PENDULUMS,
}
"""What differs where PPO does not learn with :data:`MASSIVE`."""

ENV_KWARGS: dict[str, dict[str, Any]] = {"Ant-v5": {"include_cfrc_ext_in_observation": False}}
"""Arguments of envs that PPO does not learn as they are: of Ant's 105 numbers 78 are contact forces."""


DQN_DEFAULTS = Settings(1, False, {}, {}, {}, {}, {}, {})
"""SB3's own, on one slot: those of DQN depend on the task, so that a file is the rule."""


def default_settings(env_id: str) -> Settings:
    """
    :param env_id: id of the env
    :return: the benchmark's own hyperparameters of PPO for it
    """
    return Settings(64, True, {**MASSIVE, **PER_ENV.get(env_id, {})}, ENV_KWARGS.get(env_id, {}), {}, {}, {}, {})


def algorithm_arguments(written: dict[str, Any]) -> dict[str, Any]:
    """
    :param written: :attr:`Settings.ppo` or :attr:`Settings.dqn`
    :return: the same with schedules and ``policy_kwargs`` made into objects
    """
    arguments = {key: _schedule(value) for key, value in written.items()}
    if isinstance(arguments.get("policy_kwargs"), str):
        arguments["policy_kwargs"] = literal(arguments["policy_kwargs"], {"dict": dict, "nn": nn})
    return arguments


def _schedule(value: Any) -> Any:
    if isinstance(value, str) and value.startswith("lin_"):
        return LinearSchedule(float(value.removeprefix("lin_")), 0.0, 1.0)
    return value
