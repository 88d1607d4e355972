"""Multipliers follow what steps have earned; regions are clusters, and are told what became of the steps spent on them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sb3_budget.core.anchors import Anchors
from sb3_budget.core.region_roi import RegionRoi, RoiTracker

EXAMPLES = settings(max_examples=50, deadline=None, derandomize=True)
NAN = float("nan")
NOTHING = np.zeros(0, dtype=np.int64)


def anchors(observations):
    n = len(observations)
    unknown, none = np.full(n, NAN), np.zeros(n, dtype=np.int64)
    return Anchors(none, none, unknown, unknown, unknown, unknown, unknown, none, observations)


def test_multipliers_by_hand():
    tracker = RoiTracker(2, rate=0.5, least=0.01, most=100.0)
    tracker.update([10, 10], [0.0, 0.0], [1.0, 1.0])
    assert np.isnan(tracker.roi).all() and tracker.multipliers.tolist() == [1.0, 1.0]
    # Gains 3 and 1 are 1.5 and 0.5 of their mean size; falls 0 and 2 are 0 and 2.
    tracker.update([10, 10], [3.0, 1.0], [1.0, -1.0])
    np.testing.assert_allclose(tracker.roi, [1.5, 2.5])
    np.testing.assert_allclose(tracker.multipliers, np.exp([-0.5, 0.5]))
    # No falls; gains 1 and -1; the first spent three times as many steps, 30 and 10 with mean 20.
    tracker.update([30, 10], [4.0, 0.0], [1.0, -1.0])
    np.testing.assert_allclose(tracker.roi, [(1.5 + 2 / 3) / 2, (2.5 - 2) / 2])


def test_a_region_without_steps_or_measurements_keeps_its_average():
    tracker = RoiTracker(3)
    tracker.update([10, 10, 0], [0.0, 0.0, NAN], [NAN] * 3)
    tracker.update([10, 10, 0], [1.0, 3.0, NAN], [NAN] * 3)
    np.testing.assert_allclose(tracker.roi, [0.5, 1.5, NAN])
    tracker.update([10, 0, 0], [NAN, 9.0, NAN], [NAN] * 3)
    np.testing.assert_allclose(tracker.roi, [0.5, 1.5, NAN])
    assert tracker.multipliers[2] == 1.0
    # A gain is measured against the latest known return.
    tracker.update([10, 10, 10], [2.0, 9.0, 0.0], [NAN] * 3)
    np.testing.assert_allclose(tracker.roi, [0.5 + 0.3 * 1.5, 1.5 - 0.3 * 1.5, NAN])


@EXAMPLES
@given(
    periods=st.lists(
        st.lists(st.tuples(st.integers(0, 100), st.floats(-10, 10), st.floats(0, 10)), min_size=3, max_size=3), max_size=8
    )
)
def test_multipliers_stay_within_bounds_and_units_do_not_matter(periods):
    tracker, other = RoiTracker(3), RoiTracker(3)
    for period in periods:
        steps, returns, variances = (np.array(column) for column in zip(*period, strict=True))
        tracker.update(steps, returns, variances)
        other.update(16 * steps, 1024.0 * returns, variances / 64.0)
        assert (tracker.multipliers >= 0.5 - 1e-12).all() and (tracker.multipliers <= 2.0 + 1e-12).all()
        np.testing.assert_allclose(other.multipliers, tracker.multipliers)


def test_regions_that_earn_the_same_are_left_alone():
    tracker = RoiTracker(2)
    for value in range(5):
        tracker.update([7, 7], [value, value], [1.0, 1.0])
        np.testing.assert_allclose(tracker.multipliers, 1.0)


def test_a_region_that_earns_less_ends_at_the_bound():
    tracker = RoiTracker(2)
    for period in range(20):
        tracker.update([10, 10], [float(period), 0.0], [0.0, 0.0])
    np.testing.assert_allclose(tracker.multipliers, [2.0, 0.5])


def test_misuse_of_the_tracker_is_told():
    with pytest.raises(ValueError, match=r"least=1\.5 and most=2\.0 must enclose 1"):
        RoiTracker(1, least=1.5)
    with pytest.raises(ValueError, match=r"rate=2 must lie in"):
        RoiTracker(1, rate=2)
    with pytest.raises(ValueError, match=r"must have the shape \(2,\) of the regions"):
        RoiTracker(2).update([1], [1], [1])


# ---------------------------------------------------------------------- regions


def test_regions_are_clusters_in_units_of_deviations():
    # Two clusters in the first dimension; the second has larger numbers and says nothing.
    rng = np.random.default_rng(0)
    left = np.column_stack([rng.normal(0.0, 0.001, 20), rng.normal(0.0, 1000.0, 20)])
    seen = list(np.concatenate([left, left + np.array([1.0, 0.0])]))
    roi = RegionRoi(2)
    np.testing.assert_array_equal(roi(anchors(seen)), 1.0)
    first, second = roi._region_of[:20], roi._region_of[20:]
    assert len(set(first)) == len(set(second)) == 1 and first[0] != second[0]


def test_chances_follow_what_the_regions_bring():
    roi = RegionRoi(2, regions=lambda known: np.arange(4) % 2, period=10)
    known = anchors([0, 1, 2, 3])
    roi(known)
    for gain in range(12):
        # Region 0 (rows 0 and 2) gains, region 1 stays; row -1 is of a cell that has changed hands.
        roi.record(
            10, np.array([0, 1, 2, -1]), np.array([3, 6, 3, 50]), np.array([gain, 1.0, gain, 99.0]), NOTHING, np.zeros(0)
        )
    np.testing.assert_allclose(roi(known), [2.0, 0.5, 2.0, 0.5])


def test_errors_of_the_critic_count_where_steps_were_taken():
    roi = RegionRoi(2, regions=lambda known: np.arange(2), period=10, least=0.01, most=100.0)
    roi(anchors([0, 1]))
    for errors in ([4.0, 4.0, 1.0, 7.0], [1.0, 3.0, 1.0, 7.0]):
        roi.record(10, np.array([0, 1]), np.array([5, 5]), np.zeros(2), np.array([0, 0, 1, -1]), np.array(errors))
    # A fall of 2 and one of 0, in their mean size.
    np.testing.assert_allclose(roi.tracker.roi, [2.0, 0.0])


def test_a_period_adds_up_rollouts():
    roi = RegionRoi(2, regions=lambda known: np.arange(2), period=30, rate=1.0)
    roi(anchors([0, 1]))
    for value in (0.0, 1.0, 2.0, 4.0, 5.0, 6.0):
        roi.record(10, np.array([0, 1]), np.array([5, 5]), np.array([value, 0.0]), NOTHING, np.zeros(0))
    # Means of 1 and 5; the other region gains nothing.
    np.testing.assert_allclose(roi.tracker.roi, [2.0, 0.0])


def test_clusters_and_averages_begin_anew_when_the_archive_has_doubled():
    roi = RegionRoi(2, period=1)
    seen = list(np.arange(10.0)[:, None])
    roi(anchors(seen))
    for value in (0.0, 1.0):
        roi.record(1, np.array([0, 9]), np.array([1, 1]), np.array([value, 0.0]), NOTHING, np.zeros(0))
    assert set(roi(anchors([*seen, np.array([10.0])]))) != {1.0}
    np.testing.assert_array_equal(roi(anchors(list(np.arange(20.0)[:, None]))), 1.0)


def test_rows_that_are_newer_than_the_regions_are_left_out():
    roi = RegionRoi(2, period=1)
    roi.record(1, np.array([0]), np.array([1]), np.array([1.0]), np.array([0]), np.array([1.0]))
    assert np.isnan(roi.tracker.roi).all()


def test_misuse_of_regions_is_told():
    with pytest.raises(ValueError, match="n_regions=1 must be at least 2"):
        RegionRoi(1)
    with pytest.raises(ValueError, match="period=0 must be at least 1 step"):
        RegionRoi(period=0)
    with pytest.raises(ValueError, match=r"least=0\.0 and most=2\.0 must enclose 1"):
        RegionRoi(least=0.0)
    for wrong in ([0, 2], [0], [0.0, 1.0], [-1, 0]):
        with pytest.raises(ValueError, match="a whole number from 0 to 1 for each of 2 anchors"):
            RegionRoi(2, regions=lambda known, wrong=wrong: wrong)(anchors([0, 1]))
    with pytest.raises(ValueError, match="cannot cluster observations that have parts"):
        RegionRoi()(anchors([{"a": np.zeros(2)}]))
