"""Hyperparameter files in RL Zoo's YAML format."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from stable_baselines3 import DQN, PPO

from sb3_budget.bench.literals import literal
from sb3_budget.bench.settings import Settings, algorithm_arguments

OUR_WRAPPER = "sb3_budget.StaggeredResetVecEnv"
OUR_GATE = "sb3_budget.SelectiveRolloutCallback"
OUR_SWITCH = "sb3_budget.StaggeredResetCallback"
"""Switches the wrapper of the training environment on in RL Zoo. Here the arm does."""
OUR_ALLOCATOR = "sb3_budget.BudgetAllocatorCallback"
OUR_REPLAY = "sb3_budget.ZeroVarianceCallback"
REFUSED = {
    "env_wrapper": "register the wrapped env under an id of its own instead",
    "frame_stack": "the benchmark stacks no frames",
    "replay_buffer_class": "the arm chooses it",
}
NOT_IN_FILES = {
    "self", "policy", "env", "rollout_buffer_class", "rollout_buffer_kwargs", "replay_buffer_class", "stats_window_size",
    "tensorboard_log", "verbose", "seed", "device", "_init_setup_model",
}  # fmt: skip
"""Arguments of the algorithms that an entry has under another name or not at all."""


def read_hyperparams(path: str, env_id: str, algorithm: type[PPO] | type[DQN] = PPO) -> tuple[Settings, int | None]:
    """
    Hyperparameters of one env. As in RL Zoo, a file is for one algorithm, what it leaves out has the algorithm's own default,
    and ``n_envs`` is 1.

    :param path: YAML file: env id -> hyperparameters
    :param env_id: the env to look up; ``default`` in the file serves every env without an entry
    :param algorithm: what the file is for
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
    return _settings(entry, algorithm, f"{path}, {env_id}")


def _settings(entry: dict[str, Any], algorithm: type[PPO] | type[DQN], where: str) -> tuple[Settings, int | None]:
    rest = dict(entry)
    for key, advice in REFUSED.items():
        if rest.pop(key, None):
            raise ValueError(f"{where}: {key} is not supported: {advice}")
    total = rest.pop("n_timesteps", None)
    n_envs = int(rest.pop("n_envs", 1))
    normalize = _mapping(rest.pop("normalize", False))
    env_kwargs = _mapping(rest.pop("env_kwargs", {}))
    (stagger,) = _our_arguments(rest.pop("vec_env_wrapper", None), [OUR_WRAPPER], where)
    ours = [OUR_GATE, OUR_ALLOCATOR, OUR_REPLAY, OUR_SWITCH]
    selective, allocator, replay, switch = _our_arguments(rest.pop("callback", None), ours, where)
    if switch:
        raise ValueError(f"{where}: {OUR_SWITCH} is not supported here with arguments, {', '.join(switch)}")
    buffer = _mapping(rest.pop("rollout_buffer_kwargs", {}))
    if rest.get("policy", "MlpPolicy") == "MlpPolicy":
        rest.pop("policy", None)
    known = set(inspect.signature(algorithm.__init__).parameters) - NOT_IN_FILES
    if unknown := sorted(set(rest) - known):
        raise ValueError(f"{where}: unknown {', '.join(unknown)}; {algorithm.__name__} takes {', '.join(sorted(known))}")
    written = {key: _number(value) for key, value in rest.items()}
    algorithm_arguments(written)
    settings = Settings(n_envs, normalize, written, env_kwargs or {}, stagger, selective, buffer or {}, allocator)
    if algorithm is DQN:
        written["replay_buffer_kwargs"] = _mapping(written.get("replay_buffer_kwargs") or {})
        settings = settings._replace(ppo={}, dqn=written, replay=replay)
    return settings, None if total is None else int(float(total))


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
