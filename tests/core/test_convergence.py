"""Distances within a group, by hand and by property."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from sb3_budget.core import convergence as core

EXAMPLES = settings(max_examples=50, deadline=None, derandomize=True)
#: Actions of 2 to 5 members over 1 to 7 steps.
DISCRETE = st.tuples(st.integers(2, 5), st.integers(1, 7)).flatmap(
    lambda shape: npst.arrays(np.int64, shape, elements=st.integers(0, 2))
)


def levenshtein(a, b):
    """The textbook's table."""
    table = {(i, 0): i for i in range(len(a) + 1)} | {(0, j): j for j in range(len(b) + 1)}
    for i, j in itertools.product(range(1, len(a) + 1), range(1, len(b) + 1)):
        change = table[i - 1, j - 1] + (a[i - 1] != b[j - 1])
        table[i, j] = min(change, table[i - 1, j] + 1, table[i, j - 1] + 1)
    return table[len(a), len(b)]


# ---------------------------------------------------------------------- discrete actions


def test_edit_distances_by_hand():
    assert core.edit_distance([[1, 2, 3, 4], [1, 2, 3, 4]]) == 0.0
    assert core.edit_distance([[0, 0, 0], [1, 1, 1]]) == 1.0
    # One step late: an insertion at the front and a deletion at the end, where a comparison step by step finds 4.
    assert core.edit_distance([[1, 2, 3, 4], [0, 1, 2, 3]]) == 0.5
    # Pairs at 0, 1/2 and 1/2.
    assert core.edit_distance([[1, 1], [1, 1], [1, 0]]) == pytest.approx(1 / 3)


@EXAMPLES
@given(DISCRETE)
def test_edit_distance_is_that_of_the_textbook(actions):
    pairs = [levenshtein(a, b) for a, b in itertools.combinations(actions.tolist(), 2)]
    assert core.edit_distance(actions) == pytest.approx(np.mean(pairs) / actions.shape[1])


@EXAMPLES
@given(DISCRETE, st.randoms(use_true_random=False))
def test_edit_distance_does_not_depend_on_who_is_who(actions, random):
    order = random.sample(range(len(actions)), len(actions))
    names = random.sample(range(10), 3)
    distance = core.edit_distance(actions)
    assert 0.0 <= distance <= 1.0
    assert core.edit_distance(actions[order]) == pytest.approx(distance)
    assert core.edit_distance(np.array(names)[actions]) == distance


def test_actions_of_several_parts_are_equal_if_all_parts_are():
    assert core.edit_distance([[[0, 1], [2, 2]], [[0, 1], [2, 3]]]) == 0.5


# ---------------------------------------------------------------------- continuous actions


def test_gaussian_distance_by_hand():
    # (3 - 1)^2 / (1 + 1) = 2 and (0 - 0)^2 / (4 + 4) = 0, less the floor of 1.
    assert core.gaussian_distance([[[3.0, 0.0]], [[1.0, 0.0]]], [[[1.0, 2.0]], [[1.0, 2.0]]]) == 0.0
    assert core.gaussian_distance([[[5.0]], [[1.0]]], [[[1.0]], [[1.0]]]) == 7.0


def test_noise_alone_is_no_distance_and_means_are():
    rng = np.random.default_rng(0)
    std = np.broadcast_to([0.1, 1.0, 10.0], (8, 4000, 3))
    noise = std * rng.normal(size=std.shape)
    # 4000 steps of 3 dimensions: the standard error is about 0.01.
    assert core.gaussian_distance(noise, std) == pytest.approx(0.0, abs=0.05)
    shifted = noise + std * np.where(np.arange(8) < 4, 0.0, 2.0)[:, None, None]
    # 16 of 28 pairs are 2 sigma apart: (2 sigma)^2 / (2 sigma^2) = 2.
    assert core.gaussian_distance(shifted, std) == pytest.approx(2.0 * 16 / 28, abs=0.1)


@EXAMPLES
@given(st.integers(2, 5), st.integers(0, 2**32 - 1), st.sampled_from([0.25, 2.0, 8.0]))
def test_gaussian_distance_knows_neither_units_nor_names(n_members, seed, unit):
    rng = np.random.default_rng(seed)
    actions, stds = rng.normal(size=(n_members, 3, 2)), rng.uniform(0.1, 2.0, (n_members, 3, 2))
    order = rng.permutation(n_members)
    distance = core.gaussian_distance(actions, stds)
    assert distance >= -1.0
    assert core.gaussian_distance(actions[order], stds[order]) == pytest.approx(distance)
    assert core.gaussian_distance(unit * actions + 3.0, unit * stds) == pytest.approx(distance)


# ---------------------------------------------------------------------- returns


def test_the_spread_of_returns_is_relative_to_the_scale():
    assert core.return_spread([1.0, 3.0], 2.0) == 0.5
    assert core.return_spread([3.0, 3.0], 0.0) == core.return_spread([0.1, 0.1, 0.1], 1.0) == 0.0
    assert core.return_spread([1.0, 3.0], 0.0) == np.inf


@EXAMPLES
@given(npst.arrays(np.float64, st.integers(2, 8), elements=st.integers(-100, 100).map(float)), st.integers(-100, 100))
def test_a_constant_and_an_order_change_no_spread(scores, shift):
    spread = core.return_spread(scores, 2.0)
    assert core.return_spread(scores[::-1] + shift, 2.0) == pytest.approx(spread)


def test_one_member_is_at_no_distance_from_anyone():
    assert np.isnan(core.edit_distance([[1, 2]]))
    assert np.isnan(core.gaussian_distance(np.zeros((1, 2, 1)), np.ones((1, 2, 1))))
    assert np.isnan(core.return_spread([1.0], 1.0))


def test_misfits_are_refused():
    with pytest.raises(ValueError, match=r"shape \(2, 1, 1\), their standard deviations \(2, 1, 2\)"):
        core.gaussian_distance(np.zeros((2, 1, 1)), np.ones((2, 1, 2)))
    with pytest.raises(ValueError, match="without noise"):
        core.gaussian_distance(np.zeros((2, 1, 1)), np.zeros((2, 1, 1)))
