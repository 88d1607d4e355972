"""What is installed and what the machine has: the sub-command ``info``."""

from __future__ import annotations

import platform
from importlib import metadata

from sb3_budget.vec_env.thread_vec_env import available_cpus

PACKAGES = {
    "sb3-budget": "",
    "stable-baselines3": "",
    "gymnasium": "",
    "torch": "",
    "numpy": "",
    "sb3-contrib": "contrib",
    "mujoco": "mujoco",
    "ale-py": "atari",
    "minigrid": "minigrid",
    "matplotlib": "plots",
    "tensorboard": "tensorboard",
    "tqdm": "progress",
    "rl_zoo3": "zoo",
    "PyYAML": "zoo",
}
"""Distribution -> the extra of sb3-budget that brings it."""


def versions() -> dict[str, str | None]:
    """
    :return: version of Python and of every package that matters here, ``None`` where not installed
    """
    found: dict[str, str | None] = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def describe() -> str:
    """
    :return: versions, missing extras and the machine, for people
    """
    lines = [f"{'platform':20}{platform.platform()}", f"{'processor cores':20}{available_cpus()}"]
    for name, version in versions().items():
        missing = f"not installed: pip install 'sb3-budget[{PACKAGES[name]}]'" if PACKAGES.get(name) else "not installed"
        lines.append(f"{name:20}{version or missing}")
    return "\n".join(lines)
