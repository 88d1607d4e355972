"""Groups that do nothing are named, once."""

from __future__ import annotations

import warnings

import pytest

from sb3_budget.algorithms.group_checks import ROLLOUTS, InertGroups


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


def test_groups_that_explain_something_are_left_in_peace():
    inert = InertGroups()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3 * ROLLOUTS):
            inert.watch(0.5, 2.0)
