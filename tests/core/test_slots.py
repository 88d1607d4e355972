"""Slots are given by index."""

import numpy as np
import pytest

from sb3_budget.core.slots import check_slots


@pytest.mark.parametrize("given", [2, np.int64(2), [2], (2,), np.array([2]), range(2, 3)])
def test_one_slot_in_any_form(given):
    slots = check_slots(given, 3)
    assert slots.tolist() == [2] and slots.dtype == np.int64


def test_no_slot_is_fine():
    assert check_slots([], 3).tolist() == []


@pytest.mark.parametrize(
    ("given", "message"),
    [(3, "must lie in"), (-1, "must lie in"), ([True, False], "boolean mask"), (0.5, "integers"), ([0, 1.0], "integers")],
)
def test_others_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        check_slots(given, 3)
