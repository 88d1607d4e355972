"""Priorities of archived states, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from sb3_budget.core.anchors import Anchors, contrast_priority, parse_priority


def anchors(success=(0.5, 0.1, 1.0)):
    return Anchors(np.array([10, 1, 3]), np.array([0, 2, 0]), np.array([0.5, np.nan, 2.0]), np.array(success))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("uniform", [0, 0, 0]),
        ("novelty", [-10, -21, -3]),
        ("advantage", [0.5, np.nan, 2.0]),
        ("contrast", [0.25, 0.09, 0.0]),
    ],
)
def test_priorities_by_hand(name, expected):
    np.testing.assert_allclose(parse_priority(name)(anchors()), expected)


def test_contrast_is_novelty_until_there_is_something_to_tell():
    np.testing.assert_array_equal(contrast_priority(anchors([np.nan] * 3)), [-10, -21, -3])


def test_ones_own_function_is_taken_as_it_is_and_unknown_names_are_refused():
    assert parse_priority(len) is len
    with pytest.raises(ValueError, match="priority='best' is not one of 'contrast', 'novelty', 'advantage', 'uniform'"):
        parse_priority("best")
