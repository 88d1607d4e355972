"""The threshold to cut groups at, by hand, by property, and as groups come."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sb3_budget.core import calibration as core

EXAMPLES = settings(max_examples=50, deadline=None, derandomize=True)

#: Of Zhai & Wang (2026): groups cut at each threshold, and those of them with zero variance.
TABLE = {0.05: (9, 9), 0.08: (14, 13), 0.10: (20, 16), 0.12: (21, 17), 0.14: (24, 18)}


def groups_of_the_table():
    distances, hits, before = [], [], (0, 0)
    for threshold, (cut, true) in TABLE.items():
        n, n_true = cut - before[0], true - before[1]
        distances += [threshold - 0.01] * n
        hits += [True] * n_true + [False] * (n - n_true)
        before = (cut, true)
    # The rest of the 100 groups, 39 of which have zero variance.
    return np.array(distances + [0.5] * 76), np.array(hits + [True] * 21 + [False] * 55)


@pytest.mark.parametrize(
    ("floor", "threshold"), [(0.8, 0.11), (0.81, 0.07), (0.9, 0.07), (1.0, 0.04), (0.75, 0.13), (0.3, 0.5)]
)
def test_the_threshold_of_the_paper(floor, threshold):
    assert core.calibrate_threshold(*groups_of_the_table(), floor) == pytest.approx(threshold)


def test_without_a_group_that_was_right_nothing_is_cut():
    assert core.calibrate_threshold([], [], 0.8) is None
    assert core.calibrate_threshold([0.1, 0.2], [False, False], 0.8) is None
    assert core.calibrate_threshold([np.inf], [True], 0.8) is None


def test_groups_at_one_distance_are_cut_together():
    assert core.calibrate_threshold([0.1, 0.2, 0.2], [True, True, False], 0.8) == 0.1


def test_a_group_may_stand_for_several():
    distances, hits = [0.1, 0.2], [True, False]
    assert core.calibrate_threshold(distances, hits, 0.8) == 0.1
    assert core.calibrate_threshold(distances, hits, 0.8, [4.0, 1.0]) == 0.2


@EXAMPLES
@given(st.lists(st.tuples(st.integers(0, 9), st.booleans(), st.integers(1, 5)), max_size=40), st.integers(0, 10), st.randoms())
def test_the_threshold_keeps_the_floor_and_no_larger_one_does(groups, tenths, random):
    floor = tenths / 10

    def precision(threshold):
        cut = [(hit, weight) for far, hit, weight in groups if far <= threshold]
        return sum(weight for hit, weight in cut if hit) / sum(weight for _, weight in cut)

    random.shuffle(groups)
    columns = zip(*groups, strict=True) if groups else ([], [], [])
    distances, hits, weights = columns
    threshold = core.calibrate_threshold(distances, hits, floor, weights)
    good = [far for far, _, _ in groups if precision(far) >= floor - 1e-9]
    assert threshold == (max(good) if good else None)


def test_lengths_that_differ_are_refused():
    with pytest.raises(ValueError, match="do not belong together"):
        core.calibrate_threshold([0.1], [True, False], 0.8)


# ---------------------------------------------------------------------- as groups come


def test_nothing_is_cut_before_enough_groups_were_seen():
    calibration = core.Calibration(None, 0.8, 3, 0.1)
    for n in range(3):
        assert not calibration.cuts(0.0) and len(calibration) == n
        calibration.note(0.2, True, 1.0)
    assert calibration.threshold == 0.2 and calibration.cuts(0.2) and not calibration.cuts(0.21)
    assert not calibration.cuts(np.nan) and not calibration.cuts(np.inf)


@pytest.mark.parametrize("threshold", [None, 0.3])
def test_nothing_is_cut_where_groups_hardly_ever_have_zero_variance(threshold):
    calibration = core.Calibration(threshold, 0.8, 1, 0.3)
    calibration.note(0.1, True, 1.0)
    for _ in range(2):
        assert calibration.cuts(0.1)
        calibration.note(0.4, False, 1.0)
    calibration.note(np.inf, False, 1.0)
    assert calibration.zero_variance == 0.25 and not calibration.cuts(0.1)
    # An audited group stands for those that were cut.
    calibration.note(0.1, True, 10.0)
    assert calibration.zero_variance == 11 / 14 and calibration.cuts(0.1)


def test_a_fixed_threshold_stays():
    calibration = core.Calibration(0.3, 0.8, 0, 0.0)
    assert calibration.cuts(0.3)
    for _ in range(5):
        calibration.note(0.1, False, 1.0)
    assert calibration.threshold == 0.3 and calibration.cuts(0.2)


def test_the_latest_groups_count():
    calibration = core.Calibration(None, 0.8, 10, 0.0)
    for hit in (True, False):
        for _ in range(core.RECORDS):
            calibration.note(0.1 if hit else np.inf, hit, 1.0)
        assert len(calibration) == core.RECORDS
    assert calibration.threshold is None and calibration.zero_variance == 0.0 and np.isnan(calibration.median_distance)
