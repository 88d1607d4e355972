"""Rows of replay data: observations by entry, whether or not they are dictionaries, and batches put together."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.type_aliases import DictReplayBufferSamples, ReplayBufferSamples

Samples = ReplayBufferSamples | DictReplayBufferSamples


def entries(observations: Any, row: Any = slice(None)) -> dict[str, NDArray[Any]]:
    """
    :param observations: An array of observations, or a dictionary of such.
    :param row: What to take of each.
    :return: Arrays by name. One that is not in a dictionary has the name "".
    """
    if isinstance(observations, dict):
        return {name: entry[row] for name, entry in observations.items()}
    return {"": observations[row]}


def field(part: str, entry: str) -> str:
    """
    :param part: A part of a transition, such as its observations.
    :param entry: Name of an entry of it.
    :return: A name for both.
    """
    return f"{part}.{entry}" if entry else part


def part_of(columns: dict[str, NDArray[Any]], part: str) -> Any:
    """
    :param columns: Arrays by name, see :func:`field`.
    :param part: A part of a transition.
    :return: Its array, or the dictionary of its arrays, as SB3 has them.
    """
    if part in columns:
        return columns[part]
    return {name.removeprefix(f"{part}."): column for name, column in columns.items() if name.startswith(f"{part}.")}


def join(first: Samples, second: Samples) -> Samples:
    """
    :param first: A batch of arrays.
    :param second: Another one of the same kind.
    :return: Rows of the first, then of the second: arrays of their own.
    """

    def joined(a: Any, b: Any) -> Any:
        if isinstance(a, dict):
            return {name: joined(a[name], b[name]) for name in a}
        return None if a is None else np.concatenate((a, b))

    return type(first)(*map(joined, first, second))
