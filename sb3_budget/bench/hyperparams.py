"""Hyperparameter files in RL Zoo's YAML format."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from stable_baselines3 import PPO

from sb3_budget.bench.literals import literal
from sb3_budget.bench.settings import Settings, ppo_arguments

OUR_WRAPPER = "sb3_budget.StaggeredResetVecEnv"
OUR_GATE = "sb3_budget.SelectiveRolloutCallback"
OUR_ALLOCATOR = "sb3_budget.BudgetAllocatorCallback"
REFUSED = {
    "env_wrapper": "register the wrapped env under an id of its own instead",
    "frame_stack": "the benchmark stacks no frames",
    "replay_buffer_class": "the benchmark trains PPO only",
}
PPO_ARGUMENTS = frozenset(inspect.signature(PPO.__init__).parameters) - {
    "self", "policy", "env", "rollout_buffer_class", "rollout_buffer_kwargs", "stats_window_size", "tensorboard_log",
    "verbose", "seed", "device", "_init_setup_model",
}  # fmt: skip


def read_hyperparams(path: str, env_id: str) -> tuple[Settings, int | None]:
    """
    Hyperparameters of one env. As in RL Zoo, what the file leaves out has PPO's own default, and ``n_envs`` is 1.

    :param path: YAML file: env id -> hyperparameters
    :param env_id: the env to look up; ``default`` in the file serves every env without an entry
    :return: the settings, and ``n_timesteps`` if the file has it
    """
    try:
        import yaml
    except ImportError as error:
        raise ValueError("hyperparameter files need PyYAML: pip install 'sb3-budget[zoo]'") from error
    if not Path(path).is_file():
        raise ValueError(f"there is no hyperparameter file {path}")
    try:
        entries = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is no YAML: {error}") from error
    if not isinstance(entries, dict):
        raise ValueError(f"{path} must map env ids to hyperparameters")
    entry = entries.get(env_id, entries.get("default"))
    if not isinstance(entry, dict):
        raise ValueError(f"{path} has no entry for {env_id}, and none named default; it has {', '.join(map(str, entries))}")
    return _settings(entry, f"{path}, {env_id}")


def _settings(entry: dict[str, Any], where: str) -> tuple[Settings, int | None]:
    rest = dict(entry)
    for key, advice in REFUSED.items():
        if rest.pop(key, None):
            raise ValueError(f"{where}: {key} is not supported: {advice}")
    total = rest.pop("n_timesteps", None)
    n_envs = int(rest.pop("n_envs", 1))
    normalize = _mapping(rest.pop("normalize", False))
    env_kwargs = _mapping(rest.pop("env_kwargs", {}))
    (stagger,) = _our_arguments(rest.pop("vec_env_wrapper", None), [OUR_WRAPPER], where)
    selective, allocator = _our_arguments(rest.pop("callback", None), [OUR_GATE, OUR_ALLOCATOR], where)
    buffer = _mapping(rest.pop("rollout_buffer_kwargs", {}))
    if rest.get("policy", "MlpPolicy") == "MlpPolicy":
        rest.pop("policy", None)
    if unknown := sorted(set(rest) - PPO_ARGUMENTS):
        raise ValueError(f"{where}: unknown {', '.join(unknown)}; PPO takes {', '.join(sorted(PPO_ARGUMENTS))}")
    ppo = {key: _number(value) for key, value in rest.items()}
    ppo_arguments(ppo)
    steps = None if total is None else int(float(total))
    return Settings(n_envs, normalize, ppo, env_kwargs or {}, stagger, selective, buffer or {}, allocator), steps


def _number(value: Any) -> Any:
    """YAML 1.1 reads ``3e-4`` as a string."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value


def _mapping(value: Any) -> Any:
    return literal(value, {"dict": dict}) if isinstance(value, str) else value


def _our_arguments(value: Any, names: list[str], where: str) -> list[dict[str, Any]]:
    """Keyword arguments of each of some of our classes in RL Zoo's ``name`` or ``[{name: {...}}]``."""
    arguments: dict[str, dict[str, Any]] = {name: {} for name in names}
    for item in value if isinstance(value, list) else [value] if value else []:
        class_name, kwargs = next(iter(item.items())) if isinstance(item, dict) else (item, {})
        if class_name not in arguments:
            raise ValueError(f"{where}: {class_name} is not supported here, only {' and '.join(names)}")
        arguments[class_name].update(kwargs or {})
    return list(arguments.values())
