"""States of environments written in Python: their attributes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import gymnasium as gym
import numpy as np

from sb3_budget.states import pickling

#: How an environment was built, and where its files are.
BUILT = frozenset({"_ezpickle_args", "_ezpickle_kwargs", "render_mode", "tmp_xml_file_path"})
#: What draws it: left alone while there is nothing, so that a restore closes no window of the target.
DRAWING = frozenset({"screen", "window", "window_surface", "clock", "viewer", "isopen"})
#: Tables of Gymnasium's toy text that never change, and take milliseconds to copy.
TABLES = frozenset({"P", "initial_state_distrib"})
TOY_TEXT = "gymnasium.envs.toy_text"


def save(env: Any, left: Iterable[str] = ()) -> bytes:
    """
    :param env: The innermost environment.
    :param left: Names of further attributes that are not part of the state.
    :return: Its attributes, generator included, pickled.
    :raises ValueError: if one of them cannot be saved.
    """
    return pickling.dump(_attributes(env, left), env)


def restore(env: Any, payload: bytes, left: Iterable[str] = ()) -> None:
    """
    :param env: An environment of the same class.
    :param payload: What :func:`save` returned.
    :param left: As for :func:`save`.
    """
    attributes = pickling.load(payload, env)
    for name in _attributes(env, left):
        if name not in attributes and name not in DRAWING:
            # It came into being after the state was saved.
            delattr(env, name)
    vars(env).update(attributes)


def reseed(env: gym.Env, seed: int) -> None:
    """
    In place where that is possible, so that whoever keeps a reference to the generator draws from it too.

    :param env: The environment, restored.
    :param seed: Seed of its ``np_random``.
    """
    fresh = np.random.default_rng(seed)
    present = env.np_random
    if type(present.bit_generator) is type(fresh.bit_generator):
        present.bit_generator.state = fresh.bit_generator.state
    else:
        env.np_random = fresh


def _attributes(env: Any, left: Iterable[str]) -> dict[str, Any]:
    skipped = BUILT.union(left)
    if type(env).__module__.startswith(TOY_TEXT):
        skipped |= TABLES
    return {
        name: value
        for name, value in vars(env).items()
        if name not in skipped and not pickling.is_shared(value) and not (name in DRAWING and (value is None or value is True))
    }
