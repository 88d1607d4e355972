"""The length of a full episode."""

from __future__ import annotations

from stable_baselines3.common.vec_env import VecEnv


def find_horizon(venv: VecEnv, horizon: int | None) -> int:
    """
    :param venv: The base vectorised environment.
    :param horizon: The user's own value [steps], which wins.
    :return: Length of a full episode [steps], from the environments' ``TimeLimit`` or spec.
    :raises ValueError: if it is not positive, cannot be found, or the environments disagree.
    """
    if horizon is not None:
        if horizon < 1:
            raise ValueError(f"horizon={horizon} must be at least 1 step")
        return int(horizon)
    if venv.has_attr("_max_episode_steps"):
        found = set(venv.get_attr("_max_episode_steps"))
    else:
        specs = venv.get_attr("spec") if venv.has_attr("spec") else []
        found = {spec.max_episode_steps for spec in specs if spec is not None}
    found.discard(None)
    if len(found) > 1:
        raise ValueError(f"The environments have different episode lengths {sorted(found)}: pass horizon=")
    if not found:
        raise ValueError("The environments have no TimeLimit and no spec with max_episode_steps: pass horizon=")
    return int(found.pop())
