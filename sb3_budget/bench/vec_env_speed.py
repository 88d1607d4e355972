"""How fast the kinds of ``VecEnv`` step: a part of the sub-command ``overhead``."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv

from sb3_budget.bench.envs import make_envs
from sb3_budget.vec_env.thread_vec_env import ThreadVecEnv, available_cpus

KINDS: dict[str, type[VecEnv]] = {"dummy": DummyVecEnv, "thread": ThreadVecEnv, "subproc": SubprocVecEnv}
MUJOCO = ("Ant-v5", "Humanoid-v5", "HalfCheetah-v5")
#: Steps before the first measurement, in which threads are tried.
WARMUP = 60
#: Steps in a row of one kind: each leaves the caches as it needs them.
BLOCK = 8


def measure_speed(n_envs: int, repetitions: int) -> dict[str, Any]:
    """
    :param n_envs: number of slots
    :param repetitions: blocks of steps of every kind, in turn
    :return: per env the median seconds of one step of all slots with every kind, and how many times as fast as each of
        the others threads are; ``ppo`` is the same of whole rollouts with training. EnvPool (Weng et al., 2022,
        https://arxiv.org/abs/2206.10558), a simulator of its own, takes part where it is installed
    """
    env_ids = [*(MUJOCO if importlib.util.find_spec("mujoco") else ()), "CartPole-v1"]
    envpool: dict[str, Callable[[str, int], Callable[[], float]]]
    envpool = {"envpool": _envpool_stepper} if importlib.util.find_spec("envpool") else {}
    speed: dict[str, Any] = {
        env_id: _race(env_id, n_envs, _stepper, repetitions, envpool if env_id in MUJOCO else {}) for env_id in env_ids
    }
    if env_ids[0] == "Ant-v5":
        speed["ppo, Ant-v5"] = _race("Ant-v5", n_envs, _learner, max(3, repetitions // 10), {})
    return {"n_envs": n_envs, "envs": speed}


def describe_speed(measured: dict[str, Any]) -> str:
    """
    :param measured: what :func:`measure_speed` returned
    :return: the same for people
    """
    rows = measured["envs"]
    kinds = [kind for kind in (*KINDS, "envpool") if any(kind in row for row in rows.values())]
    others = [kind for kind in kinds if kind != "thread"]
    lines = [
        f"{measured['n_envs']} slots: milliseconds with {', '.join(kinds)}; how many times as fast as {', '.join(others)} "
        "threads are"
    ]
    for name, row in rows.items():
        times = "".join(f"{1e3 * row[kind]:9.3f}" if kind in row else f"{'':9}" for kind in kinds)
        ratios = [row.get(f"thread_against_{kind}") for kind in others]
        lines.append(f"{name:20}{times}" + "".join(f"{'':8}" if ratio is None else f"{ratio:8.2f}" for ratio in ratios))
    return "\n".join(lines)


def _race(
    env_id: str,
    n_envs: int,
    make_runner: Callable[[VecEnv], Callable[[], float]],
    repetitions: int,
    others: dict[str, Callable[[str, int], Callable[[], float]]],
) -> dict[str, float]:
    venvs = {kind: make_envs(env_id, n_envs, seed=0, vec_env_cls=cls) for kind, cls in KINDS.items()}
    try:
        runners = {kind: make_runner(venv) for kind, venv in venvs.items()}
        runners |= {kind: make(env_id, n_envs) for kind, make in others.items()}
        times = np.array([[run() for run in runners.values()] for _ in range(repetitions)]).T
    finally:
        for venv in venvs.values():
            venv.close()
    rows = dict(zip(runners, times, strict=True))
    return {
        **{kind: float(np.median(values)) for kind, values in rows.items()},
        **{
            f"thread_against_{kind}": float(np.median(values / rows["thread"]))
            for kind, values in rows.items()
            if kind != "thread"
        },
    }


def _stepper(venv: VecEnv) -> Callable[[], float]:
    venv.reset()
    return _steps(venv.step, venv.action_space, venv.num_envs)


def _envpool_stepper(env_id: str, n_envs: int) -> Callable[[], float]:
    pool = importlib.import_module("envpool").make(
        env_id, env_type="gymnasium", num_envs=n_envs, num_threads=min(n_envs, available_cpus()), seed=0
    )
    pool.reset()
    return _steps(pool.step, pool.action_space, n_envs)


def _steps(step: Callable[[Any], Any], action_space: spaces.Space, n_envs: int) -> Callable[[], float]:
    action_space.seed(0)
    actions = [np.array([action_space.sample() for _ in range(n_envs)]) for _ in range(BLOCK)]

    def steps() -> float:
        began = perf_counter()
        for chosen in actions:
            step(chosen)
        return (perf_counter() - began) / BLOCK

    for _ in range(WARMUP // BLOCK + 1):
        steps()
    return steps


def _learner(venv: VecEnv) -> Callable[[], float]:
    n_steps = 64
    model = PPO("MlpPolicy", venv, n_steps=n_steps, batch_size=n_steps * venv.num_envs // 4, n_epochs=4, seed=0, device="cpu")
    model.learn(n_steps * venv.num_envs)

    def learn() -> float:
        began = perf_counter()
        model.learn(n_steps * venv.num_envs, reset_num_timesteps=False)
        return perf_counter() - began

    return learn
