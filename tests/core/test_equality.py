"""Outcomes are equal if all their parts are."""

from __future__ import annotations

import numpy as np
import pytest

from sb3_budget.core.equality import equal


@pytest.mark.parametrize(
    "value",
    [
        1.5,
        True,
        "north",
        np.array([1.0, np.nan]),
        {"a": np.zeros(2), "b": ("x", 3)},
        [np.arange(3), {"c": np.nan}],
        np.zeros(0),
    ],
)
def test_what_is_equal(value):
    assert equal(value, value)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (1.5, 1.25),
        ("north", "south"),
        (np.zeros(2), np.zeros(3)),
        ({"a": 1}, {"b": 1}),
        ({"a": 1}, {"a": 1, "b": 1}),
        ((1, 2), (1,)),
        (np.array([np.nan, 1.0]), np.array([1.0, np.nan])),
    ],
)
def test_what_is_not(a, b):
    assert not equal(a, b)
    assert not equal(b, a)


def test_numbers_of_another_type_are_equal_after_a_cast_only():
    fine, coarse = {"a": np.array([0.1])}, {"a": np.array([0.1], dtype=np.float32)}
    assert not equal(fine, coarse)
    assert equal(fine, coarse, cast=True)
