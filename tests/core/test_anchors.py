"""Priorities of archived states, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from sb3_budget.core.anchors import Anchors, contrast_priority, named_signals, parse_priority, parts


def anchors(success=(0.5, 0.1, 1.0), progress_remaining=1.0):
    return Anchors(
        visits=np.array([10, 1, 3]),
        chosen=np.array([0, 2, 0]),
        advantages=np.array([0.5, np.nan, 2.0]),
        success=np.array(success),
        td_errors=np.array([3.0, 1.0, 2.0]),
        progress=np.array([np.nan, 0.1, 0.2]),
        spread=np.array([0.0, np.nan, np.nan]),
        cuts=np.array([0, 1, 9]),
        progress_remaining=progress_remaining,
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("uniform", [0, 0, 0]),
        ("novelty", [-10, -21, -3]),
        ("advantage", [0.5, np.nan, 2.0]),
        ("contrast", [0.25, 0.09, 0.0]),
        ("td", [3, 1, 2]),
        ("learning_progress", [np.nan, 0.1, 0.2]),
        ("critic_spread", [0, np.nan, np.nan]),
    ],
)
def test_priorities_by_hand(name, expected):
    np.testing.assert_allclose(parse_priority(name)(anchors()), expected)


def test_contrast_is_novelty_until_there_is_something_to_tell():
    np.testing.assert_array_equal(contrast_priority(anchors([np.nan] * 3)), [-10, -21, -3])


def test_ones_own_function_is_taken_as_it_is_and_unknown_names_are_refused():
    assert parse_priority(len) is len
    with pytest.raises(ValueError, match="priority='best' is not one of 'contrast', 'novelty', 'advantage', 'td'"):
        parse_priority("best")


def test_a_sum_is_of_ranks_and_what_a_signal_does_not_know_is_as_good_as_its_best():
    # Ranks in [-1, 1]: td 1, -1, 0; advantage -1, unknown, 1.
    np.testing.assert_allclose(parse_priority({"td": 2.0, "advantage": 0.5})(anchors()), [1.5, -1.5, 0.5])
    np.testing.assert_allclose(parse_priority({"critic_spread": 1.0, "td": 0.1})(anchors()), [0.1, 0.9, 1.0])
    # Units do not matter.
    scaled = anchors()._replace(td_errors=anchors().td_errors * 1e6)
    summed = parse_priority({"td": 2.0, "advantage": 0.5})
    np.testing.assert_array_equal(summed(scaled), summed(anchors()))


def test_weights_follow_the_progress_and_functions_are_signals_too():
    def near_a_door(known):
        return np.array([0.0, 0.0, 1.0])

    summed = parse_priority({"td": lambda remaining: remaining, near_a_door: lambda remaining: 1.0 - remaining})
    assert summed.weights_at(0.25) == {"td": 0.25, "near_a_door": 0.75}
    np.testing.assert_array_equal(summed(anchors()), [1, -1, 0])
    np.testing.assert_array_equal(summed(anchors(progress_remaining=0.0)), [-0.5, -0.5, 1.0])
    assert parts(summed) == [parse_priority("td"), near_a_door]
    assert parts(near_a_door) == [near_a_door]


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({}, "There must be a signal"),
        ({"td": -1.0}, "weights must be finite, not negative"),
        ({"td": lambda remaining: remaining}, r"not all 0, got {'td': 0.0} when 0.0 of the training remains"),
        ({"td": 1.0, "best": 1.0}, "priority='best' is not one of"),
        ({"td": 1.0, type("td", (), {"__call__": len, "__name__": "td"})(): 1.0}, "must have different names, got 'td', 'td'"),
    ],
)
def test_weights_that_make_no_sense_are_refused(weights, message):
    with pytest.raises(ValueError, match=message):
        parse_priority(weights)


def test_signals_are_named():
    assert named_signals(["td", len]) == {"td": parse_priority("td"), "len": len}
