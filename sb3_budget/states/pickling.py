"""Pickles of attributes that name what must not be copied: spaces, lambdas and the environment itself."""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from functools import lru_cache
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils import EzPickle

#: Values that belong to an environment and not to its state: the target of a restore keeps its own.
SHARED_TYPES = (spaces.Space, EnvSpec, ModuleType, gym.Env)
SELF = ""
#: Values of these types hold no others, and belong to nobody: most of what is pickled. Asking for nothing else about them
#: halves the time that a small state takes.
ATOMS = frozenset({bool, int, float, complex, str, bytes, type(None)})
#: Others that never stay with their owner. What they hold may.
CONTAINERS = frozenset({tuple, list, dict, set, frozenset, np.ndarray})
PLAIN_TYPES = ATOMS | CONTAINERS


def dump(attributes: Mapping[str, Any], owner: Any) -> bytes:
    """
    :param attributes: What to save, by name.
    :param owner: The object that holds them; shared values and its own methods are named by their place in it.
    :return: The pickle.
    :raises ValueError: if something cannot be pickled, or would silently be built anew instead.
    """
    given = dict(attributes)
    if all(type(value) in ATOMS for value in given.values()):
        return pickle.dumps(given, protocol=pickle.HIGHEST_PROTOCOL)
    file = io.BytesIO()
    pickler = _Pickler(file, owner)
    try:
        pickler.dump(given)
    except (TypeError, AttributeError, RecursionError, pickle.PicklingError) as error:
        raise ValueError(f"{_culprit(attributes, owner)} cannot be saved: {error}") from error
    return file.getvalue()


def load(data: bytes, owner: Any) -> dict[str, Any]:
    """
    :param data: What :func:`dump` returned.
    :param owner: The object that is to hold them.
    :return: The attributes.
    :raises ValueError: if the pickle is damaged or names what the target lacks.
    """
    unpickler = _Unpickler(io.BytesIO(data))
    unpickler.owner = owner
    try:
        attributes: dict[str, Any] = unpickler.load()
    except (EOFError, pickle.UnpicklingError, KeyError, AttributeError, ImportError, IndexError) as error:
        raise ValueError(f"The saved state cannot be read: {type(error).__name__}: {error}") from error
    return attributes


def is_shared(value: Any) -> bool:
    """
    :param value: An attribute.
    :return: Whether it stays with its owner. Windows and clocks of pygame do, and functions without a name of their own.
    """
    if type(value) in PLAIN_TYPES:
        return False
    if isinstance(value, (FunctionType, BuiltinFunctionType)):
        return "<" in value.__qualname__ or getattr(value, "__self__", None) is not None
    return isinstance(value, SHARED_TYPES) or is_window(value)


def is_window(value: Any) -> bool:
    """
    :param value: An attribute.
    :return: Whether it is a window, clock or surface of pygame.
    """
    return _is_of_pygame(type(value))  # type: ignore[arg-type]  # mypy looks for __hash__ in its objects


@lru_cache
def _is_of_pygame(cls: type) -> bool:
    return cls.__module__.partition(".")[0] == "pygame"


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, owner: Any):
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self.owner = owner
        self.shared = {id(value): name for name, value in vars(owner).items() if is_shared(value)}

    def persistent_id(self, obj: Any) -> Any:
        if type(obj) in PLAIN_TYPES:
            return None
        name = SELF if obj is self.owner else self.shared.get(id(obj))
        if name is not None:
            return name
        if isinstance(obj, MethodType) and obj.__self__ is self.owner:
            return obj.__func__.__name__
        if isinstance(obj, (gym.Env, EzPickle)):
            # Its pickle is that of its constructor's arguments: a fresh one, and no error.
            raise pickle.PicklingError(f"a {type(obj).__name__} would be built anew")
        return None


class _Unpickler(pickle.Unpickler):
    owner: Any

    def persistent_load(self, pid: Any) -> Any:
        return self.owner if pid == SELF else getattr(self.owner, pid)


def _culprit(attributes: Mapping[str, Any], owner: Any) -> str:
    """The attribute that cannot be pickled."""
    for name, value in attributes.items():
        try:
            _Pickler(io.BytesIO(), owner).dump(value)
        except (TypeError, AttributeError, RecursionError, pickle.PicklingError):
            return f"The attribute {name!r} ({type(value).__name__})"
    return "The attributes together"
