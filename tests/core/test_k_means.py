"""Lloyd's algorithm ends where it cannot improve."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sb3_budget.core.k_means import lloyd, nearest

EXAMPLES = settings(max_examples=50, deadline=None, derandomize=True)


@EXAMPLES
@given(n_centres=st.integers(1, 6), seed=st.integers(0, 2**32 - 1))
def test_centres_are_the_means_of_the_points_nearest_to_them(n_centres, seed):
    rng = np.random.default_rng(seed)
    points = rng.normal(5.0, 3.0, (40, 2))
    centres = lloyd(points, n_centres, rng, max_rounds=1000)
    labels = nearest(points, centres)
    assert labels.tolist() == ((points[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1).tolist()
    for label in np.unique(labels):
        np.testing.assert_allclose(centres[label], points[labels == label].mean(axis=0))


def test_there_are_no_more_centres_than_distinct_points():
    rng = np.random.default_rng(0)
    assert lloyd(np.zeros((5, 3)), 4, rng).tolist() == [[0.0] * 3]
    assert sorted(lloyd(np.array([[1.0], [2.0], [1.0]]), 9, rng).ravel()) == [1.0, 2.0]


def test_the_first_of_several_nearest_centres_is_taken():
    assert nearest(np.array([[0.0], [3.0]]), np.array([[1.0], [-1.0], [1.0]])).tolist() == [0, 0]
