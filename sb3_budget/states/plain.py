"""States of environments written in Python: their attributes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import gymnasium as gym
import numpy as np

from sb3_budget.states import pickling

#: How an environment was built, and where its files are.
BUILT = frozenset({"_ezpickle_args", "_ezpickle_kwargs", "render_mode", "tmp_xml_file_path"})
#: What draws the environments of these libraries: left alone while there is nothing, so that a restore closes no window of the
#: target. In others it is a window only if it is one of pygame, which stays with its owner whatever its name.
DRAWING = frozenset({"screen", "window", "window_surface", "clock", "viewer", "isopen"})
DRAWN_LIBRARIES = frozenset({"gymnasium", "gymnasium_robotics", "minigrid"})
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
        if name not in attributes and name not in _drawing(env):
            # It came into being after the state was saved.
            delattr(env, name)
    vars(env).update({name: value for name, value in attributes.items() if not pickling.is_window(vars(env).get(name))})


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
    drawing = _drawing(env)
    return {
        name: value
        for name, value in vars(env).items()
        if name not in skipped and not pickling.is_shared(value) and not (name in drawing and (value is None or value is True))
    }


def _drawing(env: Any) -> frozenset[str]:
    return DRAWING if type(env).__module__.partition(".")[0] in DRAWN_LIBRARIES else frozenset()
