"""Weights fall towards a stop as they say, and leaving samples out puts them into effect without bias."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from sb3_budget.core import weights as core

ALPHA = 1e-4
EXAMPLES = settings(max_examples=50, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
WEIGHTS = npst.arrays(np.float32, st.integers(1, 60), elements=st.floats(0.0, 8.0, width=32))
SEEDS = st.integers(0, 2**32 - 1)


def plausible(count: int, n_draws: int, probability: float, n_tests: int = 1) -> bool:
    """Whether a binomial count is within its normal interval of level ALPHA, shared among several tests."""
    width = NormalDist().inv_cdf(1 - ALPHA / (2 * n_tests)) * np.sqrt(n_draws * probability * (1 - probability))
    return bool(abs(count - n_draws * probability) <= width)


@EXAMPLES
@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=60), least=st.integers(1, 100))
def test_minibatches_of_episodes_have_at_least_so_many_rows(sizes, least):
    batches = core.batches_of_at_least(sizes, least)
    rows = np.bincount(batches, weights=sizes)
    assert (np.diff(batches) >= 0).all() and set(np.diff(batches)) <= {0, 1} and batches[0] == 0
    assert rows.min() >= min(least, sum(sizes))
    # No larger than needed, but for the last, which takes what is left.
    last_sizes = [sizes[np.flatnonzero(batches == batch)[-1]] for batch in range(len(rows))]
    assert all(full - last < least for full, last in zip(rows[:-1], last_sizes, strict=False))


def thin(weights, rng: np.random.Generator) -> np.ndarray:
    return core.thin(core.inclusion_probabilities(weights), rng)


def column(n_steps: int, *rows: int) -> np.ndarray:
    """Marks of one environment, shape (n_steps, 1)."""
    marks = np.zeros((n_steps, 1), dtype=bool)
    marks[list(rows)] = True
    return marks


def test_tail_weights_grow_back_away_from_the_stop() -> None:
    weights = core.stop_weights(column(6, 3), column(6, 1, 4), 0.8, 0.5, early_weight=0.25, tail=True)
    decay = 0.4
    expected = [1, 1 - 0.75 * decay**2, 1 - 0.75 * decay, 0.25, 1, 1]
    np.testing.assert_allclose(weights[:, 0], expected, rtol=1e-6)
    assert weights.dtype == np.float32


def test_trajectory_weights_are_one_number_per_stopped_episode() -> None:
    weights = core.stop_weights(column(6, 3), column(6, 1, 4), 0.8, 0.5, early_weight=0.25, tail=False)
    assert weights[:, 0].tolist() == [1, 0.25, 0.25, 0.25, 1, 1]


def test_an_episode_from_the_rollout_before_counts_from_the_first_row() -> None:
    weights = core.stop_weights(column(4, 1), column(4, 2), 1.0, 1.0, early_weight=0.5, tail=True)
    assert weights[:, 0].tolist() == [0.5, 0.5, 1, 1]


def test_a_stop_at_the_last_row_needs_no_start_after_it() -> None:
    weights = core.stop_weights(column(4, 3), column(4, 2), 0.9, 0.9, early_weight=0.0, tail=False)
    assert weights[:, 0].tolist() == [1, 1, 0, 0]


def test_a_tiny_early_weight_is_kept() -> None:
    for tail in (True, False):
        weights = core.stop_weights(column(2, 1), column(2, 1), 0.9, 0.9, early_weight=1e-20, tail=tail)
        assert weights[1, 0] == np.float32(1e-20)


def test_several_stops_in_one_environment() -> None:
    weights = core.stop_weights(column(5, 1, 4), column(5, 0, 2, 4), 1.0, 1.0, early_weight=0.5, tail=True)
    assert weights[:, 0].tolist() == [0.5, 0.5, 1, 1, 0.5]


def test_float_starts_as_in_a_rollout_buffer_are_accepted() -> None:
    starts = column(4, 2).astype(np.float32)
    weights = core.stop_weights(column(4, 3), starts, 1.0, 1.0, early_weight=0.5, tail=True)
    assert weights[:, 0].tolist() == [1, 1, 0.5, 0.5]


def test_without_decay_only_the_last_row_is_touched() -> None:
    weights = core.stop_weights(column(4, 3), column(4, 0), 0.99, 0.0, early_weight=0.5, tail=True)
    assert weights[:, 0].tolist() == [1, 1, 1, 0.5]


@st.composite
def rollouts(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Stops and episode starts that agree: after a stop, the next row starts an episode."""
    shape = (draw(st.integers(1, 20)), draw(st.integers(1, 4)))
    stops = draw(npst.arrays(np.bool_, shape))
    starts = draw(npst.arrays(np.bool_, shape))
    starts[1:] |= stops[:-1]
    return stops, starts


def stop_weights_by_loop(stops: np.ndarray, starts: np.ndarray, decay: float, early_weight: float, tail: bool) -> np.ndarray:
    """The definition, walked backwards row by row."""
    weights = np.ones(stops.shape)
    for slot in range(stops.shape[1]):
        distance: int | None = None
        for row in reversed(range(stops.shape[0])):
            if stops[row, slot]:
                distance = 0
            if distance is not None:
                weights[row, slot] = 1 - (1 - early_weight) * decay**distance if tail else early_weight
                distance += 1
            if starts[row, slot]:
                distance = None
    return weights


@EXAMPLES
@given(rollout=rollouts(), lam=st.floats(0.0, 1.0), early_weight=st.floats(0.0, 1.0), tail=st.booleans())
def test_weights_agree_with_a_row_by_row_loop(
    rollout: tuple[np.ndarray, np.ndarray], lam: float, early_weight: float, tail: bool
) -> None:
    weights = core.stop_weights(*rollout, 0.9, lam, early_weight, tail)
    expected = stop_weights_by_loop(*rollout, 0.9 * lam, early_weight, tail)
    np.testing.assert_allclose(weights, expected, rtol=1e-5, atol=1e-6)
    assert np.all((weights >= early_weight * (1 - 1e-6)) & (weights <= 1.0))


@EXAMPLES
@given(rollout=rollouts(), tail=st.booleans())
def test_an_early_weight_of_one_is_no_weight(rollout: tuple[np.ndarray, np.ndarray], tail: bool) -> None:
    assert np.all(core.stop_weights(*rollout, 0.99, 0.95, 1.0, tail) == 1.0)


@EXAMPLES
@given(weights=WEIGHTS, seed=SEEDS)
def test_thinning_keeps_the_expected_number(weights: np.ndarray, seed: int) -> None:
    kept = np.sort(thin(weights, np.random.default_rng(seed)))
    assert kept.dtype == np.int64
    assert np.all(np.diff(kept) > 0)
    if weights.any():
        probabilities = weights.astype(np.float64) / weights.max()
        assert abs(kept.size - probabilities.sum()) < 1 + 1e-9
        assert set(np.flatnonzero(probabilities == 1.0)) <= set(kept)
        assert not set(np.flatnonzero(probabilities == 0.0)) & set(kept)
        assert kept.size > 0
    else:
        assert kept.tolist() == list(range(weights.size))


@EXAMPLES
@given(weights=WEIGHTS, seed=SEEDS, power=st.integers(-20, 20))
def test_thinning_looks_at_ratios_only(weights: np.ndarray, seed: int, power: int) -> None:
    # Powers of two, by which scaling is exact; in double precision, where nothing underflows.
    scaled = weights.astype(np.float64) * 2.0**power
    kept = thin(weights, np.random.default_rng(seed))
    np.testing.assert_array_equal(thin(scaled, np.random.default_rng(seed)), kept)


def test_every_inclusion_probability_is_exact() -> None:
    weights = np.array([0.05, 0.5, 1.0, 0.3, 0.9, 0.0, 0.25, 0.25, 0.7, 1.0])
    rng = np.random.default_rng(8)
    n_draws = 4000
    kept = np.bincount(np.concatenate([thin(weights, rng) for _ in range(n_draws)]), minlength=weights.size)
    for count, weight in zip(kept, weights, strict=True):
        assert plausible(count, n_draws, weight, weights.size)


def test_neighbours_are_kept_together_no_more_often_than_others() -> None:
    # Half of six equal samples (and one of full weight): every pair has the probability 1/2 * 2/5.
    weights = np.array([0.5] * 6 + [1.0])
    rng = np.random.default_rng(9)
    n_draws = 4000
    together = np.zeros((6, 6), dtype=int)
    for _ in range(n_draws):
        mask = np.isin(np.arange(6), thin(weights, rng))
        together += np.outer(mask, mask)
    pairs = [(i, j) for i in range(6) for j in range(i)]
    for pair in pairs:
        assert plausible(together[pair], n_draws, 0.2, len(pairs))


def test_mean_over_kept_samples_estimates_the_weighted_mean() -> None:
    data = np.random.default_rng(10)
    values, weights = data.normal(size=200), np.where(data.random(200) < 0.3, 0.25, 1.0)
    rng = np.random.default_rng(11)
    sums = np.array([values[thin(weights, rng)].sum() for _ in range(1000)])
    error = sums.mean() - np.sum(weights * values)
    assert abs(error) <= NormalDist().inv_cdf(1 - ALPHA / 2) * sums.std(ddof=1) / np.sqrt(sums.size)


def test_equal_or_no_weights_keep_everything() -> None:
    rng = np.random.default_rng(12)
    for weights in (np.ones(5), np.full(5, 0.2), np.zeros(5)):
        assert sorted(thin(weights, rng).tolist()) == [0, 1, 2, 3, 4]
    assert thin([], rng).tolist() == []
    assert thin([0.0, 1e-300], rng).tolist() == [1]


def test_thinning_repeats_with_the_seed() -> None:
    weights = np.linspace(0.0, 1.0, 100)
    first = thin(weights, np.random.default_rng(13))
    np.testing.assert_array_equal(first, thin(weights, np.random.default_rng(13)))


@EXAMPLES
@given(n=st.integers(1, 300), batch_size=st.integers(1, 80), seed=SEEDS)
def test_chunks_are_a_partition_in_order_of_nearly_equal_sizes(n: int, batch_size: int, seed: int) -> None:
    indices = np.random.default_rng(seed).permutation(n)
    batches = core.chunks(indices, batch_size)
    sizes = [batch.size for batch in batches]
    np.testing.assert_array_equal(np.concatenate(batches), indices)
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= min(n, batch_size)
    assert min(sizes) > 1 or n == 1


def test_chunk_sizes() -> None:
    assert [batch.size for batch in core.chunks(np.arange(1024), 256)] == [256] * 4
    assert [batch.size for batch in core.chunks(np.arange(513), 256)] == [256, 257]
    assert [batch.size for batch in core.chunks(np.arange(100), 256)] == [100]
    assert [batch.size for batch in core.chunks(np.arange(5), 1)] == [2, 3]
    assert [batch.size for batch in core.chunks([7], 64)] == [1]


def test_effective_sample_size_of_known_weights() -> None:
    assert core.effective_sample_size(np.full(8, 0.3)) == pytest.approx(8.0)
    assert core.effective_sample_size([1.0, 0.0, 0.0]) == pytest.approx(1.0)
    assert core.effective_sample_size([[1.0, 0.5]]) == pytest.approx(2.25 / 1.25)
    assert core.effective_sample_size(np.full(4, 1e-300)) == pytest.approx(4.0)
    assert core.effective_sample_size(np.zeros(3)) == 0.0
    assert core.effective_sample_size([]) == 0.0


@EXAMPLES
@given(weights=WEIGHTS)
def test_effective_sample_size_is_at_most_the_number_of_weights(weights: np.ndarray) -> None:
    size = core.effective_sample_size(weights)
    assert size == 0.0 or 1.0 - 1e-9 <= size <= np.count_nonzero(weights) * (1 + 1e-9)


def test_bad_input_is_refused_with_the_numbers() -> None:
    rng = np.random.default_rng(0)
    stops = column(3, 1)
    with pytest.raises(ValueError, match=r"early_weight must be in \[0, 1\], got 1\.5"):
        core.stop_weights(stops, stops, 0.9, 0.9, 1.5, tail=True)
    with pytest.raises(ValueError, match=r"gae_lambda must be in \[0, 1\], got -0\.1"):
        core.stop_weights(stops, stops, 0.9, -0.1, 0.5, tail=True)
    with pytest.raises(ValueError, match=r"gamma must be in \[0, 1\], got nan"):
        core.stop_weights(stops, stops, float("nan"), 0.9, 0.5, tail=True)
    with pytest.raises(ValueError, match=r"got \(3, 1\) and \(4, 1\)"):
        core.stop_weights(stops, column(4), 0.9, 0.9, 0.5, tail=True)
    with pytest.raises(ValueError, match=r"got \(3,\) and \(3,\)"):
        core.stop_weights(stops[:, 0], stops[:, 0], 0.9, 0.9, 0.5, tail=True)
    with pytest.raises(ValueError, match=r"weights must have the shape \(n,\), got \(2, 2\)"):
        thin(np.ones((2, 2)), rng)
    for bad in (-1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match=rf"finite and not negative, got values from .*{bad}"):
            thin([1.0, bad], rng)
        with pytest.raises(ValueError, match=rf"finite and not negative, got values from .*{bad}"):
            core.effective_sample_size([1.0, bad])
    with pytest.raises(ValueError, match=r"at least one index, got \(0,\)"):
        core.chunks([], 4)
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        core.chunks([1, 2], 0)
