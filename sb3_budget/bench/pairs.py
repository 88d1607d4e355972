"""Two ways to do the same, measured in alternation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


def compare(off: Callable[[], float], on: Callable[[], float], repetitions: int) -> dict[str, float]:
    """
    Alternate, each going first half of the time, after one unmeasured pair.

    :param off: runs without a part, and returns its seconds
    :param on: the same with it
    :param repetitions: pairs of measurements
    :return: medians in seconds, and the median ratio of every pair
    """
    off(), on()
    pairs = np.empty((repetitions, 2))
    for i in range(repetitions):
        order = ((0, off), (1, on)) if i % 2 == 0 else ((1, on), (0, off))
        for column, timed in order:
            pairs[i, column] = timed()
    middle = np.median(pairs, axis=0)
    return {"off": float(middle[0]), "on": float(middle[1]), "ratio": float(np.median(pairs[:, 1] / pairs[:, 0]))}


def describe_pair(label: str, pair: dict[str, float]) -> str:
    """
    :param label: what was measured
    :param pair: what :func:`compare` returned
    :return: a line of a table: milliseconds without, with, and the ratio
    """
    return f"{label:45}{1e3 * pair['off']:9.3f}{1e3 * pair['on']:9.3f}{pair['ratio']:8.3f}"
