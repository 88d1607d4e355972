"""What many states have in common: kept once in a process, however many states hold it."""

from __future__ import annotations

import io
import pickle
import zlib
from functools import lru_cache
from typing import Any
from weakref import WeakValueDictionary

#: So many of the latest are known even while no state holds them.
RECENT = 64


class Shared:
    """
    Bytes that do not change, made by :func:`share`. Equal ones are one object; one that arrives from another process or
    a file becomes the one that is here already. A state that is pickled takes them with it.

    :param packed: The bytes, compressed.
    """

    __slots__ = ("__weakref__", "packed")

    def __init__(self, packed: bytes):
        self.packed = packed

    def __reduce__(self) -> tuple[Any, ...]:
        return _the_one, (self.packed,)


_ALIVE: WeakValueDictionary[bytes, Shared] = WeakValueDictionary()


@lru_cache(RECENT)
def share(data: bytes) -> Shared:
    """
    :param data: Some bytes.
    :return: The one object that stands for them.
    """
    return _the_one(zlib.compress(data))


@lru_cache(RECENT)
def unshare(shared: Shared) -> bytes:
    """
    :param shared: What :func:`share` returned, here or in another process.
    :return: The bytes.
    """
    return zlib.decompress(shared.packed)


def dump(payload: Any) -> tuple[bytes, tuple[Shared, ...]]:
    """
    :param payload: What an adapter saved.
    :return: Its pickle without the :class:`Shared` in it, and those.
    """
    file = io.BytesIO()
    pickler = _Pickler(file, protocol=pickle.HIGHEST_PROTOCOL)
    pickler.shared = []
    pickler.dump(payload)
    return file.getvalue(), tuple(pickler.shared)


def load(data: bytes, shared: tuple[Shared, ...]) -> Any:
    """
    :param data: The pickle.
    :param shared: What belongs into it.
    :return: What an adapter saved.
    """
    unpickler = _Unpickler(io.BytesIO(data))
    unpickler.shared = shared
    return unpickler.load()


def _the_one(packed: bytes) -> Shared:
    return _ALIVE.setdefault(packed, Shared(packed))


class _Pickler(pickle.Pickler):
    shared: list[Shared]

    def persistent_id(self, obj: Any) -> Any:
        if type(obj) is not Shared:
            return None
        self.shared.append(obj)
        return len(self.shared) - 1


class _Unpickler(pickle.Unpickler):
    shared: tuple[Shared, ...]

    def persistent_load(self, pid: Any) -> Any:
        return self.shared[pid]
