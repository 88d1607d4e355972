"""Keys: which observations share a cell, and that keys never drift."""

from __future__ import annotations

import pickle
from itertools import pairwise
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sb3_budget.core import cells as core
from sb3_budget.core.cells import ExactCells, FunctionCells, KMeansCells, ProjectedCells, QuantisedCells

EXAMPLES = settings(max_examples=50, deadline=None, derandomize=True)
#: A statistical test fails by chance with at most this probability, and its seed is fixed.
ALPHA = 1e-4

LEARNED = [QuantisedCells, ProjectedCells, lambda: KMeansCells(n_cells=8)]


def observations(seed: int, n: int = 200, shape: tuple[int, ...] = (4,)) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(5.0, 3.0, (n, *shape))


def frozen(cells, seen):
    cells.observe(seen)
    cells.freeze()
    return cells


# ---------------------------------------------------------------------- exact


@EXAMPLES
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=20))
def test_exact_keys_are_equal_where_observations_are(rows):
    keys = ExactCells().keys(np.array(rows, dtype=np.uint8))
    assert [keys.index(key) for key in keys] == [rows.index(row) for row in rows]


def test_exact_keys_of_discrete_observations_images_and_signed_zeros():
    assert len(set(ExactCells().keys(np.array([3, 5, 3])))) == 2
    images = np.zeros((3, 7, 7, 3), dtype=np.uint8)
    images[1, 6, 6, 2] = 1
    first, second, third = ExactCells().keys(images)
    assert first == third != second
    assert len(set(ExactCells().keys(np.array([[0.0], [-0.0]])))) == 1
    assert ExactCells().keys(np.zeros((0, 3))) == []


# ---------------------------------------------------------------------- quantised


def test_the_grid_counts_in_deviations_from_the_mean():
    cells = frozen(QuantisedCells(bins_per_std=2.0), [[-1.0], [1.0]])  # mean 0, standard deviation 1
    places = [0.0, 0.2, -0.2, 0.3, 0.7, 0.8, -0.3]
    keys = cells.keys(np.array(places)[:, None])
    assert keys[0] == keys[1] == keys[2]  # the mean lies in the middle of a cell half a deviation wide
    assert keys[3] == keys[4] != keys[0]
    assert len({keys[0], keys[3], keys[5], keys[6]}) == 4


def test_statistics_of_batches_are_those_of_the_whole():
    seen = observations(0)
    parts, whole = QuantisedCells(), QuantisedCells()
    for part in np.split(seen, [1, 17, 17, 90]):
        parts.observe(part)
    whole.observe(seen)
    parts.freeze()
    whole.freeze()
    np.testing.assert_allclose(parts.scaled(seen), (seen - seen.mean(axis=0)) / seen.std(axis=0))
    np.testing.assert_allclose(parts.scaled(seen), whole.scaled(seen))


def test_a_dimension_that_has_not_varied_is_measured_like_the_others():
    np.testing.assert_allclose(core.usable_scale(np.array([1.0, 0.0, 3.0])), [1, 2, 3])
    np.testing.assert_allclose(core.usable_scale(np.zeros(2)), 1)
    cells = frozen(QuantisedCells(), np.zeros((5, 2)))
    assert len(set(cells.keys([[0.0, 0.0], [0.1, 0.1], [1.0, 0.0]]))) == 2


def test_outliers_have_keys():
    cells = frozen(QuantisedCells(), [[0.0], [1.0]])
    assert len(set(cells.keys([[1e200], [1e300], [-1e300], [0.0]]))) == 3


# ---------------------------------------------------------------------- projected, k-means


def test_near_observations_share_a_projected_cell_more_often_than_distant_ones():
    seen = observations(1, n=400, shape=(8, 8, 3))
    cells = frozen(ProjectedCells(n_dims=4, bins=1.0), seen)
    keys = cells.keys(seen)
    near = cells.keys(seen + np.random.default_rng(2).normal(0.0, 0.01, seen.shape))
    same_near = np.mean([key == other for key, other in zip(keys, near, strict=True)])
    same_distant = np.mean([key == other for key, other in pairwise(keys)])
    assert same_near > 0.95 and same_distant < 0.2


def test_projected_keys_count_deviations_along_random_directions():
    seen = observations(10, n=300, shape=(5,))
    cells = frozen(ProjectedCells(n_dims=3, bins=4.0, seed=11), seen)
    directions = np.random.default_rng(11).normal(size=(5, 3)) / np.sqrt(5)
    places = np.rint(cells.scaled(seen) @ directions * 4.0).astype(np.int64)
    assert cells.keys(seen) == core.row_bytes(places)


def test_projected_keys_are_those_of_the_seed():
    seen = observations(3, shape=(50,))
    keys = frozen(ProjectedCells(seed=1), seen).keys(seen)
    assert frozen(ProjectedCells(seed=1), seen).keys(seen) == keys
    assert frozen(ProjectedCells(seed=2), seen).keys(seen) != keys


def test_k_means_finds_separate_clusters():
    middles = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0], [10.0, 10.0]])
    labels = np.repeat(np.arange(4), 50)
    seen = middles[labels] + np.random.default_rng(4).normal(0.0, 0.5, (200, 2))
    keys = np.array(frozen(KMeansCells(n_cells=4), seen).keys(seen))
    assert len(np.unique(keys)) == 4
    assert all(len(np.unique(keys[labels == label])) == 1 for label in range(4))


def test_there_are_no_more_centres_than_distinct_points():
    cells = frozen(KMeansCells(n_cells=10), [[0.0], [1.0], [0.0], [1.0]])
    assert len(cells.centres) == 2


def test_every_observation_has_the_same_chance_to_be_in_the_sample():
    n, size, runs = 40, 10, 2000
    counts = np.zeros(n)
    for seed in range(runs):
        cells = KMeansCells(sample_size=size, seed=seed)
        for part in np.split(np.arange(n, dtype=np.float64)[:, None], [7, 25]):
            cells.observe(part)
        assert cells._sample.shape == (size, 1)
        counts[cells._sample.astype(np.int64).ravel()] += 1
    p = size / n
    widest = np.abs(counts - runs * p).max() / np.sqrt(runs * p * (1 - p))
    assert widest < NormalDist().inv_cdf(1 - ALPHA / (2 * n))


# ---------------------------------------------------------------------- all


@pytest.mark.parametrize("make", LEARNED)
@EXAMPLES
@given(seed=st.integers(0, 2**32 - 1))
def test_a_key_depends_on_the_observation_alone(make, seed):
    seen = observations(seed, n=50)
    cells = frozen(make(), seen)
    keys = cells.keys(seen)
    cells.freeze()
    assert [cells.keys(row[None])[0] for row in seen] == keys
    assert all(hash(key) is not None for key in keys)


@pytest.mark.parametrize("make", LEARNED)
def test_cells_that_were_saved_give_the_same_keys(make):
    cells = frozen(make(), observations(8))
    assert pickle.loads(pickle.dumps(cells)).keys(observations(9)) == cells.keys(observations(9))


@pytest.mark.parametrize("make", LEARNED)
def test_statistics_are_frozen_before_the_first_key(make):
    cells = make()
    with pytest.raises(ValueError, match=r"observed nothing: call observe\(\) before freeze"):
        cells.freeze()
    cells.observe(observations(6))
    with pytest.raises(ValueError, match=r"call freeze\(\) before the first key"):
        cells.keys(observations(6))
    cells.freeze()
    with pytest.raises(ValueError, match="its keys must not drift"):
        cells.observe(observations(7))
    assert cells.keys(np.zeros((0, 4))) == []
    for broken in (np.nan, np.inf):
        with pytest.raises(ValueError, match="observations must be finite"):
            cells.keys([[broken] * 4])


def test_a_function_of_the_users_is_cells():
    cells = frozen(FunctionCells(lambda seen: [int(row[0]) for row in seen]), np.zeros((1, 2)))
    assert cells.keys([[1.5, 9.0], [2.0, 9.0]]) == [1, 2]


def test_a_users_function_must_return_a_key_for_each_observation():
    cells = FunctionCells(lambda seen: ["one"])
    assert cells.keys({"place": np.zeros((1, 2))}) == ["one"]
    for observations in (np.zeros((2, 3)), {"place": np.zeros((2, 3)), "flag": np.zeros((2, 1))}):
        with pytest.raises(ValueError, match="a key for each of 2 observations, got 1"):
            cells.keys(observations)


def test_default_cells_by_kind_of_observation():
    assert isinstance(core.default_cells((), np.int64, True), ExactCells)
    assert isinstance(core.default_cells((7, 7, 3), np.uint8, False), ExactCells)
    assert isinstance(core.default_cells((2,), np.float32, False), QuantisedCells)
    assert isinstance(core.default_cells((6,), np.float32, False), QuantisedCells)
    assert isinstance(core.default_cells((7,), np.float32, False), ProjectedCells)
    assert isinstance(core.default_cells((84, 84, 4), np.uint8, False), ProjectedCells)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: QuantisedCells(bins_per_std=0), "bins_per_std"),
        (lambda: ProjectedCells(n_dims=0), "n_dims"),
        (lambda: ProjectedCells(bins=-1), "bins"),
        (lambda: KMeansCells(n_cells=0), "n_cells"),
        (lambda: KMeansCells(sample_size=0), "sample_size"),
    ],
)
def test_arguments_are_checked(make, name):
    with pytest.raises(ValueError, match=f"{name} must be positive"):
        make()
