"""What the package can do with an env: the sub-command ``check``."""

from __future__ import annotations

import copy
from collections import Counter
from time import perf_counter
from typing import Any

import gymnasium as gym
import numpy as np

from sb3_budget.bench.envs import make_envs
from sb3_budget.core.staggering import circular_dispersion
from sb3_budget.states import StateWrapper, find_adapter, self_check
from sb3_budget.vec_env.episode_control_vec_env import EpisodeControlVecEnv
from sb3_budget.vec_env.horizon import find_horizon

N_STEPS = 50
N_SLOTS = 8
LONGEST_WALK = 2000
TIMED = 20
#: Slots that reset together and are spread as far as this after a while need no stagger.
DISPERSED = 0.5
#: Nor do those of which more than this share of episodes ends before the time limit.
EARLY = 0.5


def check(env_id: str, env_kwargs: dict[str, Any]) -> dict[str, Any]:
    """
    :param env_id: id of the env
    :param env_kwargs: keyword arguments of the env
    :return: what was found, JSON-ready; ``ok`` is whether starts by seed and by snapshot both work
    """
    found: dict[str, Any] = {"env": env_id, **_seeding(env_id, env_kwargs), **_states(env_id, env_kwargs)}
    found.update(_slots(env_id, env_kwargs))
    found["ok"] = found["seeding"] and found["slots_reset_alone"] and found["exact"]
    return found


def describe(found: dict[str, Any]) -> str:
    """
    :param found: what :func:`check` returned
    :return: the same for people
    """
    yes = {True: "yes", False: "no"}
    rows = {
        "same seed, same start and same steps": yes[found["seeding"]],
        "another seed, another start": yes[found["starts_vary"]],
        "accepts reset options": yes[found["reset_options"]],
        "slots can be reset alone": yes[found["slots_reset_alone"]],
        "states are saved by": found["adapter"],
        "a restored state goes on exactly": yes[found["exact"]] + (f" ({found['reason']})" if found["reason"] else ""),
    }
    if found["exact"]:
        rows["size of a state"] = f"{found['state_bytes']:,} bytes"
        rows["to save, to restore"] = f"{found['save_us']:.0f}, {found['restore_us']:.0f} microseconds"
    if found["horizon"] is None:
        rows["length of an episode"] = "no time limit: give horizon= to StaggeredResetVecEnv"
    else:
        rows["length of an episode"] = f"{found['horizon']} steps"
        rows["episodes of random actions that end early"] = f"{found['early_ends']:.0%}"
        rows["spread of slots under random actions"] = f"{found['dispersion']:.2f} of 1"
        together = found["early_ends"] <= EARLY and found["dispersion"] < DISPERSED
        rows["staggered resets"] = "can help: slots stay in step" if together else "not needed: slots part by themselves"
    return "\n".join([found["env"], *(f"  {label:43}{text}" for label, text in rows.items())])


def _make(env_id: str, env_kwargs: dict[str, Any]) -> gym.Env:
    venv = make_envs(env_id, 1, env_kwargs=env_kwargs)
    env: gym.Env = venv.envs[0]  # type: ignore[attr-defined]  # a DummyVecEnv
    return StateWrapper(env)


def _actions(env: gym.Env, n: int) -> list[Any]:
    space = copy.deepcopy(env.action_space)
    space.seed(0)
    return [space.sample() for _ in range(n)]


def _seeding(env_id: str, env_kwargs: dict[str, Any]) -> dict[str, bool]:
    def course(seed: int) -> list[bytes]:
        env = _make(env_id, env_kwargs)
        seen = [_bytes(env.reset(seed=seed)[0])]
        for action in _actions(env, N_STEPS):
            observation, reward, terminated, truncated, _ = env.step(action)
            seen.append(_bytes(observation) + np.float64(reward).tobytes())
            if terminated or truncated:
                break
        env.close()
        return seen

    one, again, *others = (course(seed) for seed in (1, 1, 2, 3, 4))
    env = _make(env_id, env_kwargs)
    try:
        env.reset(seed=1, options={})
        accepts = True
    except TypeError:
        accepts = False
    env.close()
    return {"seeding": one == again, "starts_vary": any(other[0] != one[0] for other in others), "reset_options": accepts}


def _states(env_id: str, env_kwargs: dict[str, Any]) -> dict[str, Any]:
    env: Any = _make(env_id, env_kwargs)
    env.reset(seed=1)
    checked = self_check(env, n_steps=N_STEPS)
    found = {"adapter": find_adapter(env).name, "exact": checked.exact, "reason": checked.reason}
    if checked.exact:
        # The check has walked, but has put everything back: a state right after a reset is smaller than others.
        for action in _actions(env, N_STEPS):
            *_, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
        state = env.get_state()
        found["state_bytes"] = state.n_bytes
        found["save_us"] = _microseconds(env.get_state)
        found["restore_us"] = _microseconds(lambda: env.set_state(state))
    env.close()
    return found


def _slots(env_id: str, env_kwargs: dict[str, Any]) -> dict[str, Any]:
    venv = EpisodeControlVecEnv(make_envs(env_id, N_SLOTS, seed=1, env_kwargs=env_kwargs))
    venv.reset()
    space = venv.action_space
    space.seed(0)

    reasons: Counter[str] = Counter()

    def step() -> np.ndarray:
        _, _, dones, infos = venv.step(np.array([space.sample() for _ in range(N_SLOTS)]))
        reasons.update(infos[slot]["sb3_budget"]["reason"] for slot in np.flatnonzero(dones))
        return dones

    venv.request_stop(0)
    alone = bool(step()[0]) and venv.ages[0] == 0
    try:
        horizon: int | None = find_horizon(venv.venv, None)
    except ValueError:
        horizon = None
    found: dict[str, Any] = {"slots_reset_alone": bool(alone), "horizon": horizon, "dispersion": None, "early_ends": None}
    if horizon is not None:
        venv.reset()
        for _ in range(min(horizon + horizon // 2, LONGEST_WALK)):
            step()
        found["dispersion"] = circular_dispersion(venv.ages, horizon)
        found["early_ends"] = reasons["terminated"] / max(1, reasons["terminated"] + reasons["time_limit"])
    venv.close()
    return found


def _bytes(observation: Any) -> bytes:
    if isinstance(observation, dict):
        return b"".join(_bytes(observation[key]) for key in sorted(observation))
    if isinstance(observation, tuple):
        return b"".join(map(_bytes, observation))
    return observation.encode() if isinstance(observation, str) else np.asarray(observation).tobytes()


def _microseconds(call: Any) -> float:
    times = []
    for _ in range(TIMED):
        began = perf_counter()
        call()
        times.append(perf_counter() - began)
    return float(1e6 * np.median(times))
