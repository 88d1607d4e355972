"""From command-line arguments to runs, with every wrong argument refused before the first one starts."""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Collection

from gymnasium import spaces
from stable_baselines3 import DQN, PPO

from sb3_budget.bench import arms
from sb3_budget.bench.envs import find_spec, make_envs
from sb3_budget.bench.hyperparams import read_hyperparams
from sb3_budget.bench.run import Job
from sb3_budget.bench.settings import DQN_DEFAULTS, Settings, default_settings

DEFAULT_STEPS = 300_000
QUICK = {"env": ["HalfCheetah-v5"], "arms": "stock,full", "first_seed": 10, "seeds": 1, "steps": 240_000, "evals": 8}
"""What ``--quick`` stands for, unless given: the first seed of the published table, for as long as the gain needs to show."""
NEEDS = {
    "mujoco": ("mujoco", "MuJoCo"),
    "sb3_budget.bench.levels": ("minigrid", "MiniGrid"),
    "door_key": ("minigrid", "MiniGrid"),
    "key_corridor": ("minigrid", "MiniGrid"),
}
"""Part of an entry point -> the package that it imports, which is an extra of the same name, and its name for people."""


def jobs(arguments: argparse.Namespace) -> list[Job]:
    """
    :param arguments: of ``bench``
    :return: its runs, arm by arm within a seed, so that an interrupted benchmark compares what it can
    """
    if arguments.quick:
        for name, value in QUICK.items():
            if getattr(arguments, name) is None:
                setattr(arguments, name, value)
    names = [name.strip() for name in (arguments.arms or "stock,full").split(",") if name.strip()]
    env_ids = arguments.env or ["HalfCheetah-v5"]
    _check_names(names)
    for env_id in env_ids:
        check_env(env_id)
        _check_actions(env_id, names)
    if arguments.stochastic and any(arms.split(name)[0].replay is not None for name in names):
        raise ValueError("--stochastic is for arms with a policy to draw actions from, not for DQN")
    files = _arm_files(arguments.arm_hyperparams, names)
    first_seed, n_seeds = arguments.first_seed or 0, arguments.seeds or 5
    evaluated = {
        "evals": arguments.evals or 10,
        "eval_episodes": arguments.eval_episodes,
        "stochastic": arguments.stochastic,
    }
    planned = []
    for env_id in env_ids:
        chosen = {name: _settings(name, env_id, files.get(name, arguments.hyperparams), arguments) for name in names}
        for seed in range(first_seed, first_seed + n_seeds):
            for name, (settings, steps) in chosen.items():
                planned.append(Job(env_id, name, seed, settings, steps, **evaluated))
    return planned


def training_job(arguments: argparse.Namespace) -> Job:
    """
    :param arguments: of ``train``
    :return: its run
    """
    arms.split(arguments.arm)
    if arms.copied_arm(arguments.arm) is not None:
        raise ValueError(f"{arguments.arm} is a control that copies another run: it exists in bench only")
    check_env(arguments.env)
    _check_actions(arguments.env, [arguments.arm])
    settings, steps = _settings(arguments.arm, arguments.env, arguments.hyperparams, arguments)
    return Job(arguments.env, arguments.arm, arguments.seed, settings, steps)


def targets(texts: list[str], env_ids: Collection[str] | None) -> dict[str, float]:
    """
    :param texts: ``X`` for every env or ``ENV=X``
    :param env_ids: the envs there are, ``None`` if unknown
    :return: env id (or an empty string for every env) -> return
    """
    found = {}
    for text in texts:
        env_id, _, value = text.rpartition("=")
        if env_ids is not None and env_id and env_id not in env_ids:
            raise ValueError(f"--target-return {text}: {env_id} is not among the envs {', '.join(sorted(env_ids))}")
        try:
            found[env_id] = float(value)
        except ValueError:
            raise ValueError(f"--target-return {text}: {value!r} is no number") from None
    return found


def check_env(env_id: str) -> None:
    """
    :param env_id: refused if Gymnasium does not know it or a package it needs is missing
    """
    entry_point = str(find_spec(env_id).entry_point)
    for part, (package, name) in NEEDS.items():
        if part in entry_point and importlib.util.find_spec(package) is None:
            raise ValueError(f"{env_id} needs {name}: pip install 'sb3-budget[{package}]'")


def _check_actions(env_id: str, names: list[str]) -> None:
    if off_policy := [name for name in names if _is_dqn(name)]:
        venv = make_envs(env_id, 1)
        venv.close()
        if not isinstance(venv.action_space, spaces.Discrete):
            raise ValueError(
                f"the arm {off_policy[0]} trains DQN, which needs discrete actions: {env_id} has {venv.action_space}"
            )


def _is_dqn(name: str) -> bool:
    return arms.split(name)[0].replay is not None


def _check_names(names: list[str]) -> None:
    if len(set(names)) < len(names):
        raise ValueError(f"--arms {','.join(names)} names an arm twice; arm+label makes a second setting of one")
    for name in names:
        copied = arms.copied_arm(name)
        if copied is not None and copied not in names:
            raise ValueError(f"the arm {name} copies the stops of {copied}: add {copied} to --arms")


def _arm_files(texts: list[str], names: list[str]) -> dict[str, str]:
    files = {}
    for text in texts:
        name, equals, path = text.partition("=")
        if not equals or name not in names:
            raise ValueError(f"--arm-hyperparams {text} must be ARM=FILE with an arm of --arms ({', '.join(names)})")
        files[name] = path
    return files


def _settings(name: str, env_id: str, path: str | None, arguments: argparse.Namespace) -> tuple[Settings, int]:
    is_dqn = _is_dqn(name)
    if path is None:
        settings, steps = DQN_DEFAULTS if is_dqn else default_settings(env_id), None
    else:
        settings, steps = read_hyperparams(path, env_id, DQN if is_dqn else PPO)
    if arguments.n_envs is not None:
        settings = settings._replace(n_envs=arguments.n_envs)
    if is_dqn:
        if arguments.n_steps is not None:
            raise ValueError(f"--n-steps is a rollout's length, and the arm {name} has none: it trains DQN")
        return settings, arguments.steps or steps or DEFAULT_STEPS
    if arguments.n_steps is not None:
        settings = settings._replace(ppo={**settings.ppo, "n_steps": arguments.n_steps})
    group_size = arms.split(name)[0].group_size
    if group_size is not None and settings.n_envs % group_size:
        raise ValueError(
            f"the arm {name} has groups of {group_size}, which do not divide {settings.n_envs} envs: set --n-envs"
        )
    budget = arguments.steps or steps or DEFAULT_STEPS
    rollout = settings.n_envs * int(settings.ppo.get("n_steps", 2048))
    if budget < rollout:
        raise ValueError(f"a budget of {budget} steps is less than one rollout of {settings.n_envs} envs: {rollout} steps")
    return settings, budget
