"""Transitions as columns: one array for each part and entry, whether or not observations are dictionaries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray


def entries(observations: Any) -> dict[str, NDArray[Any]]:
    """
    :param observations: An array of observations, or a dictionary of such.
    :return: Arrays by name. One that is not in a dictionary has the name "".
    """
    if isinstance(observations, dict):
        return dict(observations)
    return {"": observations}


def field(part: str, entry: str) -> str:
    """
    :param part: A part of a transition, such as its observations.
    :param entry: Name of an entry of it.
    :return: A name for both.
    """
    return f"{part}.{entry}" if entry else part


def columns_of(part: str, observations: Any) -> dict[str, NDArray[Any]]:
    """
    :param part: A part of a transition.
    :param observations: Its array, or dictionary of arrays.
    :return: The arrays by name, see :func:`field`.
    """
    return {field(part, entry): array for entry, array in entries(observations).items()}


def part_of(columns: Mapping[str, NDArray[Any]], part: str) -> Any:
    """
    :param columns: Arrays by name, see :func:`field`.
    :param part: A part of a transition.
    :return: Its array, or the dictionary of its arrays, as SB3 has them.
    """
    if part in columns:
        return columns[part]
    return {name.removeprefix(f"{part}."): column for name, column in columns.items() if name.startswith(f"{part}.")}
