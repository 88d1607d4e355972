"""Many small things as few columns, for files: each on its own would cost more than what it holds."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sb3_budget.core.evidence import Evidence


def pack(table: Mapping[Hashable, Evidence]) -> dict[str, Any]:
    """
    :param table: Evidence by key.
    :return: The same as columns. Keys stay objects, so that a pickle has one of them once only, whoever else knows it.
    """
    known = list(table.values())
    ends = {None: -1, False: 0, True: 1}
    return {
        "keys": list(table),
        "first": _pack_bytes([one.first for one in known]),
        "dtype": _pack_equal([one.dtype for one in known]),
        "label": _pack_bytes([one.label for one in known]),
        "count": narrow(np.array([one.count for one in known], dtype=np.int64)),
        "terminated": np.array([ends[one.terminated] for one in known], dtype=np.int8),
        "moments": {row: one.moments for row, one in enumerate(known) if one.moments is not None},
    }


def unpack(columns: Mapping[str, Any]) -> Iterable[tuple[Hashable, Evidence]]:
    """
    :param columns: What :func:`pack` made.
    :return: Keys with their evidence, in the order in which they were.
    """
    n, moments = len(columns["keys"]), columns["moments"]
    parts = zip(
        _unpack_bytes(columns["first"], n),
        columns["dtype"] if isinstance(columns["dtype"], list) else [columns["dtype"]] * n,
        _unpack_bytes(columns["label"], n),
        columns["count"].tolist(),
        [(False, True, None)[end] for end in columns["terminated"].tolist()],
        strict=True,
    )
    for row, (key, part) in enumerate(zip(columns["keys"], parts, strict=True)):
        yield key, Evidence(*part, moments.get(row))


def narrow(numbers: NDArray[np.int64]) -> NDArray[Any]:
    """
    :param numbers: Natural numbers, shape (n,).
    :return: The same, of as few bytes as the largest needs.
    """
    return numbers.astype(np.min_scalar_type(int(numbers.max(initial=0))))


def _pack_bytes(pieces: list[bytes]) -> Any:
    """One piece after the other, if all are of one width."""
    return b"".join(pieces) if len(set(map(len, pieces))) == 1 else pieces


def _unpack_bytes(packed: Any, n: int) -> list[bytes]:
    if isinstance(packed, list):
        return packed
    width = len(packed) // n
    return [packed[i * width : (i + 1) * width] for i in range(n)]


def _pack_equal(things: list[Any]) -> Any:
    """One for all, if they are equal."""
    return things[0] if len(set(things)) == 1 else things
