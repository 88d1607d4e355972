"""Whether two outcomes of an environment are equal: observations, rewards, marks of an end."""

from __future__ import annotations

from typing import Any

import numpy as np


def equal(a: Any, b: Any, cast: bool = False) -> bool:
    """
    :param a: Numbers, text or an array, or such in dictionaries, tuples and lists.
    :param b: The same.
    :param cast: Whether ``a`` is compared after a conversion to the type of ``b``.
    :return: Whether they are equal. NaN is equal to NaN.
    """
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key], cast) for key in a)
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(equal(one, other, cast) for one, other in zip(a, b, strict=True))
    one, other = np.asarray(a), np.asarray(b)
    if cast:
        one = one.astype(other.dtype)
    return np.array_equal(one, other, equal_nan=one.dtype.kind in "fc" and other.dtype.kind in "fc")
