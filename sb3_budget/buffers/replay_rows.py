"""Batches of replay data, put together."""

from __future__ import annotations

from typing import Any

import numpy as np
from stable_baselines3.common.type_aliases import DictReplayBufferSamples, ReplayBufferSamples

Samples = ReplayBufferSamples | DictReplayBufferSamples


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
