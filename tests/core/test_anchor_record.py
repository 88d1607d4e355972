"""What steps show of archived states, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from sb3_budget.core.anchor_horizons import DoublingHorizon, parse_horizon, steps_of
from sb3_budget.core.anchor_record import AnchorRecord, credit, large_cuts, one_step_errors
from sb3_budget.core.anchors import Anchors


def anchors(cuts):
    nothing = np.full(len(cuts), np.nan)
    return Anchors(np.ones(len(cuts), int), np.zeros(len(cuts), int), *[nothing] * 5, cuts=np.array(cuts))


def test_values_go_to_their_rows_and_what_is_not_finite_to_none():
    record = AnchorRecord(4)
    credit(record.advantages, np.array([[0, 1], [-1, 1]]), np.array([[2.0, 1.0], [9.0, 3.0]]))
    credit(record.advantages, np.array([1, 2]), np.array([4.0, np.nan]))
    np.testing.assert_array_equal(record.advantages.values, [2, 3, np.nan, np.nan])


def test_a_row_that_changed_hands_is_unknown_again():
    record = AnchorRecord(3)
    for average in (record.advantages, record.td_errors, record.spread):
        credit(average, np.array([0, 1]), np.array([1.0, 2.0]))
    credit(record.progress, np.array([0, 1]), np.array([1.0, 2.0]))
    record.cuts[:2] = 5
    record.follow(np.array([0, 1]))
    for average in (record.advantages, record.td_errors, record.spread):
        np.testing.assert_array_equal(average.values, [1, np.nan, np.nan])
    np.testing.assert_array_equal(record.progress.values, [0, np.nan, np.nan])
    assert record.cuts.tolist() == [5, 0, 0]
    # What an earlier cell of row 1 has shown is not credited to the present one.
    assert record.present(np.array([1, 1, 0, -1]), np.array([0, 1, 0, 0])).tolist() == [-1, 1, 0, -1]


def test_one_step_errors_by_hand():
    rewards, values = np.array([[1.0], [2.0], [3.0]]), np.array([[10.0], [20.0], [30.0]])
    starts = np.array([[1.0], [0.0], [1.0]])
    # 1 + 0.5 * 20 - 10; after the end of the episode nothing is left: 2 - 20.
    np.testing.assert_array_equal(one_step_errors(rewards, values, starts, 0.5), [[1], [18], [np.nan]])


def test_an_episode_was_cut_while_there_was_much_to_be_learnt():
    advantages = np.array([[9.0, 0.0], [-1.0, 1.0], [5.0, 1.0], [1.0, -9.0]])
    starts = np.array([[1.0, 1.0], [1.0, 0.0], [0.0, 0.0], [1.0, 1.0]])
    # Mean size 27 / 8. Slot 0, steps 1 and 2: 3; slot 0, step 0: 9; slot 1, steps 0 to 2: 2/3; slot 1, step 3: 9.
    large = large_cuts(advantages, starts, np.array([2, 0, 2, 3]), np.array([0, 0, 1, 1]))
    assert large.tolist() == [False, True, False, True]


def test_horizons_double_and_stop_at_the_largest():
    assert DoublingHorizon(10, 70)(anchors([0, 1, 2, 3, 10_000])).tolist() == [10, 20, 40, 70, 70]
    assert parse_horizon("adaptive")(anchors([0, 1])).tolist() == [32, 64]
    assert parse_horizon(None) is None and parse_horizon(7) == 7
    assert steps_of(lambda known: known.visits * 2.4, anchors([0, 0])).tolist() == [2, 2]


def test_horizons_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="first=9 must be at least 1 step, and at most most=8"):
        DoublingHorizon(9, 8)
    with pytest.raises(ValueError, match="horizon='long' is not 'adaptive'"):
        parse_horizon("long")
    with pytest.raises(ValueError, match=r"at least 1 step for each of 2 anchors, got shape .2,. with a smallest of 0"):
        steps_of(lambda known: known.visits * 0, anchors([0, 0]))
    with pytest.raises(ValueError, match=r"for each of 2 anchors, got shape .3,."):
        steps_of(lambda known: np.ones(3), anchors([0, 0]))
