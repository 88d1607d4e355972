"""Groups that do nothing are named, once."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from sb3_budget.algorithms.group_checks import MOST_AGE, ROLLOUTS, DriftingGroups, InertGroups


@pytest.mark.parametrize(
    ("coefficient", "peers", "message"),
    [
        (0.02, 3.0, "coefficient was 0.02: members share nothing"),
        (0.9, 0.1, "rows met 0.10 peers: members have drifted apart"),
    ],
)
def test_inert_groups_are_named_once(coefficient, peers, message):
    inert = InertGroups()
    for _ in range(ROLLOUTS - 1):
        inert.watch(coefficient, peers)
    with pytest.warns(UserWarning, match=message):
        inert.watch(coefficient, peers)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        inert.watch(coefficient, peers)


def test_rows_that_wait_too_long_are_named_once():
    drifting = DriftingGroups()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for age in (np.nan, 0.0, MOST_AGE):
            drifting.watch(age, 0.0)
        drifting.watch(MOST_AGE + 1, 2.0)
    with pytest.warns(UserWarning, match="members have drifted apart"):
        drifting.watch(MOST_AGE + 1, 0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drifting.watch(MOST_AGE + 1, 0.0)


def test_groups_that_explain_something_are_left_in_peace():
    inert = InertGroups()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3 * ROLLOUTS):
            inert.watch(0.5, 2.0)
