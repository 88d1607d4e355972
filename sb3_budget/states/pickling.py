"""Pickles of attributes that name what must not be copied: spaces, functions and the environment itself."""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import gymnasium as gym
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils import EzPickle

#: Values that belong to an environment and not to its state: the target of a restore keeps its own.
SHARED_TYPES = (spaces.Space, EnvSpec, FunctionType, BuiltinFunctionType, MethodType, ModuleType, type, gym.Env)


def dump(attributes: Mapping[str, Any], owner: Mapping[str, Any]) -> bytes:
    """
    :param attributes: What to save, by name.
    :param owner: Everything that the attributes' object holds; shared values are named by their place in it.
    :return: The pickle.
    :raises ValueError: if something cannot be pickled, or would silently be built anew instead.
    """
    file = io.BytesIO()
    pickler = _Pickler(file, protocol=pickle.HIGHEST_PROTOCOL)
    pickler.shared = {id(value): name for name, value in owner.items() if is_shared(value)}
    try:
        pickler.dump(dict(attributes))
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        raise ValueError(f"{_culprit(attributes, pickler.shared)} cannot be saved: {error}") from error
    return file.getvalue()


def load(data: bytes, owner: Mapping[str, Any]) -> dict[str, Any]:
    """
    :param data: What :func:`dump` returned.
    :param owner: Everything that the target holds, by name.
    :return: The attributes.
    :raises ValueError: if the pickle is damaged or names what the target lacks.
    """
    unpickler = _Unpickler(io.BytesIO(data))
    unpickler.owner = owner
    try:
        attributes: dict[str, Any] = unpickler.load()
    except (EOFError, pickle.UnpicklingError, KeyError, AttributeError, ImportError) as error:
        raise ValueError(f"The saved state cannot be read: {type(error).__name__}: {error}") from error
    return attributes


def is_shared(value: Any) -> bool:
    """
    :param value: An attribute.
    :return: Whether it stays with its owner. Windows and clocks of pygame do.
    """
    return isinstance(value, SHARED_TYPES) or type(value).__module__.partition(".")[0] == "pygame"


class _Pickler(pickle.Pickler):
    shared: dict[int, str]

    def persistent_id(self, obj: Any) -> Any:
        name = self.shared.get(id(obj))
        if name is not None:
            return name
        if isinstance(obj, (gym.Env, EzPickle)):
            # Its pickle is that of its constructor's arguments: a fresh one, and no error.
            raise pickle.PicklingError(f"a {type(obj).__name__} would be built anew")
        return None


class _Unpickler(pickle.Unpickler):
    owner: Mapping[str, Any]

    def persistent_load(self, pid: Any) -> Any:
        return self.owner[pid]


def _culprit(attributes: Mapping[str, Any], shared: dict[int, str]) -> str:
    """The attribute that cannot be pickled."""
    for name, value in attributes.items():
        pickler = _Pickler(io.BytesIO(), protocol=pickle.HIGHEST_PROTOCOL)
        pickler.shared = shared
        try:
            pickler.dump(value)
        except (TypeError, AttributeError, pickle.PicklingError):
            return f"The attribute {name!r} ({type(value).__name__})"
    return "The attributes together"
