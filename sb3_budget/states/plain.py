"""States of environments written in Python: their attributes."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from sb3_budget.states import pickling

#: How an environment was built or is drawn, and tables that never change. They stay as they are in the target.
CONSTANT = frozenset(
    {
        "_ezpickle_args",
        "_ezpickle_kwargs",
        "render_mode",
        "screen",
        "window",
        "window_surface",
        "clock",
        "viewer",
        "isopen",
        "tmp_xml_file_path",
        "P",
        "initial_state_distrib",
    }
)


def save(env: Any, left: frozenset[str] = frozenset()) -> bytes:
    """
    :param env: The innermost environment.
    :param left: Names of further attributes that are not part of the state.
    :return: Its attributes, generator included, pickled.
    :raises ValueError: if one of them cannot be saved.
    """
    owner = vars(env)
    attributes = {
        name: value
        for name, value in owner.items()
        if name not in CONSTANT and name not in left and not pickling.is_shared(value)
    }
    return pickling.dump(attributes, {**owner, "": env})


def restore(env: Any, payload: bytes) -> None:
    """
    :param env: An environment of the same class.
    :param payload: What :func:`save` returned.
    """
    vars(env).update(pickling.load(payload, {**vars(env), "": env}))


def reseed(env: gym.Env, seed: int) -> None:
    """
    :param env: The environment, restored.
    :param seed: Seed of its new ``np_random``.
    """
    env.np_random = np.random.default_rng(seed)
