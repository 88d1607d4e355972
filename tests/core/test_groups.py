"""Group-relative advantages, by hand and by property."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sb3_budget.core import groups as core

EXAMPLES = settings(max_examples=50, deadline=None, derandomize=True)


@st.composite
def rows(draw):
    """Values with group, episode and time, few enough of each to have peers."""
    n = draw(st.integers(1, 60))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return rng.normal(size=n), rng.integers(0, 3, n), rng.integers(0, 2, n), rng.integers(0, 4, n)


def peers_by_loop(values, *keys):
    means, counts = np.zeros(len(values)), np.zeros(len(values), dtype=int)
    for i in range(len(values)):
        others = [values[j] for j in range(len(values)) if j != i and all(key[j] == key[i] for key in keys)]
        counts[i] = len(others)
        means[i] = np.mean(others) if others else 0.0
    return means, counts


@EXAMPLES
@given(rows())
def test_peers_are_the_others_at_the_same_step_of_the_same_episode(given_rows):
    peers = core.leave_one_out(*given_rows)
    means, counts = peers_by_loop(*given_rows)
    np.testing.assert_allclose(peers.means, means, atol=1e-12)
    np.testing.assert_array_equal(peers.counts, counts)


@EXAMPLES
@given(rows(), st.integers(0, 59), st.floats(-100, 100))
def test_ones_own_value_does_not_enter_what_it_is_compared_with(given_rows, row, other):
    values, *keys = given_rows
    row %= len(values)
    changed = values.copy()
    changed[row] = other
    before, after = core.leave_one_out(values, *keys).means[row], core.leave_one_out(changed, *keys).means[row]
    assert after == pytest.approx(before, abs=1e-10)


def test_two_groups_of_unequal_lengths_by_hand():
    # Group 0: two members, one of which ends after two steps; group 1: the second member is an episode ahead.
    values = np.array([[1.0, 3.0, 10.0, 20.0], [2.0, 4.0, 30.0, 40.0], [5.0, 7.0, 50.0, 60.0]])
    group = np.broadcast_to([0, 0, 1, 1], (3, 4))
    episodes = np.array([[0, 0, 0, 0], [0, 0, 0, 1], [0, 1, 0, 1]])
    times = np.array([[0, 0, 0, 0], [1, 1, 1, 0], [2, 0, 2, 1]])
    peers = core.leave_one_out(values, group, episodes, times)
    np.testing.assert_array_equal(peers.counts, [[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 0, 0]])
    np.testing.assert_array_equal(peers.means, [[3, 1, 20, 10], [4, 2, 0, 0], [0, 0, 0, 0]])
    # Products and squares over the rows with peers.
    coefficient = (2 * (1 * 3 + 2 * 4 + 10 * 20)) / (1 + 9 + 4 + 16 + 100 + 400)
    residual = core.residual_advantages(values, group, episodes, times)
    assert residual.coefficient == pytest.approx(coefficient)
    np.testing.assert_allclose(residual.advantages, values - coefficient * peers.means)
    assert residual.mean_peers == 6 / 12


def test_an_offset_of_the_group_and_step_is_taken_off_whole():
    rng = np.random.default_rng(0)
    noise = 1e-6 * rng.normal(size=(50, 8))
    offsets = np.repeat(10.0 * rng.normal(size=(50, 2)), 4, axis=1)
    group = np.broadcast_to(np.arange(8) // 4, (50, 8))
    time = np.broadcast_to(np.arange(50)[:, None], (50, 8))
    residual = core.residual_advantages(offsets + noise, group, np.zeros((50, 8), int), time)
    assert residual.coefficient == pytest.approx(1.0, abs=1e-6)
    np.testing.assert_allclose(residual.advantages, 0.0, atol=1e-4)


def test_where_peers_explain_nothing_or_the_opposite_nothing_is_taken_off():
    opposite = np.array([1.0, -1.0])
    residual = core.residual_advantages(opposite, [0, 0], [0, 0], [0, 0])
    assert residual.coefficient == 0.0
    np.testing.assert_array_equal(residual.advantages, opposite)
    alone = core.residual_advantages([1.0, 2.0], [0, 1], [0, 0], [0, 0])
    assert (alone.coefficient, alone.mean_peers) == (0.0, 0.0)
    assert core.residual_advantages([0.0, 0.0], [0, 0], [0, 0], [0, 0]).coefficient == 0.0
    assert core.residual_advantages([], [], [], []).mean_peers == 0.0


@EXAMPLES
@given(rows())
def test_the_coefficient_is_a_share_and_reduces_the_squares(given_rows):
    residual = core.residual_advantages(*given_rows)
    assert 0.0 <= residual.coefficient <= 1.0
    has_peers = core.leave_one_out(*given_rows).counts > 0
    assert (residual.advantages[has_peers] ** 2).sum() <= (given_rows[0][has_peers] ** 2).sum() + 1e-9


@EXAMPLES
@given(rows())
def test_within_groups_the_mean_is_zero_and_differences_stay(given_rows):
    values, group, *_ = given_rows
    centred = core.centred_within_groups(values, group)
    for number in np.unique(group):
        members = group == number
        assert centred[members].mean() == pytest.approx(0.0, abs=1e-9)
        np.testing.assert_allclose(np.diff(centred[members]), np.diff(values[members]), atol=1e-9)


def test_equal_members_are_zero_exactly():
    np.testing.assert_array_equal(core.centred_within_groups(np.full(6, 0.1), np.zeros(6, int)), np.zeros(6))


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match=r"must have the shape \(2,\) of the values"):
        core.leave_one_out([1.0, 2.0], [0], [0, 0], [0, 0])
    with pytest.raises(ValueError, match=r"shape \(2,\) of the advantages, got \(1,\)"):
        core.centred_within_groups([1.0, 2.0], [0])


def test_returns_are_equal_by_equality_or_by_a_tolerance():
    assert core.equal_returns([2.0, 2.0], 0.0, 1.0) and core.equal_returns([5.0], 0.0, 0.0)
    assert not core.equal_returns([2.0, 2.0 + 1e-12], 0.0, 1.0)
    assert core.equal_returns([2.0, 2.4], 0.05, 10.0) and not core.equal_returns([2.0, 2.6], 0.05, 10.0)
    assert not core.equal_returns([2.0, np.nan], 1e9, 1.0)
