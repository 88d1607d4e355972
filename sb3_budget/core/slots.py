"""Which slots are meant."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray


def check_slots(indices: int | Iterable[int], n_envs: int) -> NDArray[np.int64]:
    """
    :param indices: One slot or several, by index.
    :param n_envs: Number of slots.
    :return: The slots, shape (n,).
    :raises ValueError: if they are a boolean mask, not integers, or do not exist.
    """
    if isinstance(indices, np.ndarray):
        given = indices.ravel()
    else:
        given = np.asarray(list(indices) if isinstance(indices, Iterable) else [indices])
    kind = given.dtype.kind
    if kind == "b":
        raise ValueError("Slots are given by index, not by a boolean mask: use np.flatnonzero(mask)")
    if given.size and kind not in "iu":
        raise ValueError(f"Slots are integers, not {given.tolist()}")
    slots = given.astype(np.int64)
    if slots.size and (slots.min() < 0 or slots.max() >= n_envs):
        raise ValueError(f"Slots {slots.tolist()} must lie in [0, {n_envs})")
    return slots
