"""Offsets cover the horizon as they say, and the measures of phase tell covered from uncovered."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from sb3_budget.core import staggering

ALPHA = 1e-4
EXAMPLES = settings(max_examples=50, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
SIZES = st.integers(1, 300)


def plausible(count: int, n_draws: int, probability: float, n_tests: int = 1) -> bool:
    """Whether a binomial count is within its normal interval of level ALPHA, shared among several tests."""
    width = NormalDist().inv_cdf(1 - ALPHA / (2 * n_tests)) * np.sqrt(n_draws * probability * (1 - probability))
    return bool(abs(count - n_draws * probability) <= width)


def test_even_offsets_are_equally_spaced() -> None:
    assert staggering.even_offsets(4, 200).tolist() == [0, 50, 100, 150]
    assert staggering.even_offsets(3, 10).tolist() == [0, 3, 6]


@EXAMPLES
@given(n_envs=SIZES, horizon=SIZES)
def test_even_offsets_differ_by_at_most_one_step_in_their_spacing(n_envs: int, horizon: int) -> None:
    offsets = staggering.even_offsets(n_envs, horizon)
    gaps = np.diff(np.append(offsets, horizon))
    assert offsets[0] == 0
    assert set(gaps.tolist()) <= {horizon // n_envs, -(-horizon // n_envs)}


def test_block_offsets_deal_the_blocks_in_turn() -> None:
    assert staggering.block_offsets(5, 100, 2).tolist() == [0, 50, 0, 50, 0]


def test_block_offsets_follow_weights_by_largest_remainder() -> None:
    # Quotas 3.5, 1.75, 1.75: the whole parts leave two slots, which go to the two blocks with remainder 0.75.
    assert staggering.block_offsets(7, 90, 3, [2, 1, 1]).tolist() == [0, 30, 60, 0, 30, 60, 0]
    assert staggering.block_offsets(4, 90, 3, [1, 0, 1]).tolist() == [0, 60, 0, 60]


@EXAMPLES
@given(n_envs=SIZES, horizon=SIZES, blocks=SIZES, weight=st.sampled_from([0.1, 1.0 / 3.0, 1.0, 7.0, 1e300]))
def test_equal_block_weights_change_nothing(n_envs: int, horizon: int, blocks: int, weight: float) -> None:
    assume(blocks <= horizon)
    weighted = staggering.block_offsets(n_envs, horizon, blocks, np.full(blocks, weight))
    np.testing.assert_array_equal(weighted, staggering.block_offsets(n_envs, horizon, blocks))


@EXAMPLES
@given(horizon=st.integers(30, 200), n_envs=SIZES, weights=st.lists(st.floats(0.0, 10.0), min_size=1, max_size=30))
def test_weighted_blocks_get_their_quota_to_within_one_slot(horizon: int, n_envs: int, weights: list[float]) -> None:
    assume(max(weights) > 1e-3 and n_envs >= len(weights))
    offsets = staggering.block_offsets(n_envs, horizon, len(weights), weights)
    counts = staggering.phase_histogram(offsets, horizon, len(weights))
    quotas = n_envs * np.array(weights) / np.sum(weights)
    assert counts.sum() == n_envs
    assert np.all(np.abs(counts - quotas) < 1 + 1e-6)


def test_fewer_slots_than_blocks_get_even_offsets() -> None:
    even = staggering.even_offsets(3, 100).tolist()
    assert staggering.block_offsets(3, 100, 10).tolist() == even
    assert staggering.block_offsets(3, 100, 10, np.arange(10)).tolist() == even


@EXAMPLES
@given(n_envs=SIZES, horizon=SIZES, blocks=SIZES)
def test_block_offsets_cover_every_block_that_they_can(n_envs: int, horizon: int, blocks: int) -> None:
    assume(blocks <= min(n_envs, horizon))
    counts = staggering.phase_histogram(staggering.block_offsets(n_envs, horizon, blocks), horizon, blocks)
    assert staggering.phase_coverage(counts) == 1.0
    assert counts.max() - counts.min() <= 1


def test_random_offsets_are_uniform_and_repeatable() -> None:
    horizon = 20
    offsets = staggering.random_offsets(10_000, horizon, np.random.default_rng(3))
    assert offsets.min() == 0 and offsets.max() == horizon - 1
    counts = np.bincount(offsets, minlength=horizon)
    assert all(plausible(count, offsets.size, 1 / horizon, horizon) for count in counts)
    np.testing.assert_array_equal(offsets, staggering.random_offsets(10_000, horizon, np.random.default_rng(3)))


@EXAMPLES
@given(n_envs=SIZES, fraction=st.floats(0.0, 1.0), seed=st.integers(0, 2**32 - 1))
def test_mix_random_changes_no_more_than_its_share(n_envs: int, fraction: float, seed: int) -> None:
    horizon = 50
    offsets = np.full(n_envs, horizon, dtype=np.int64)  # out of the range of random ones, which thus can be told
    mixed = staggering.mix_random(offsets, horizon, fraction, np.random.default_rng(seed))
    assert np.count_nonzero(mixed < horizon) == round(fraction * n_envs)
    assert np.all(offsets == horizon)


def test_mix_random_picks_every_slot_equally_often() -> None:
    rng = np.random.default_rng(4)
    picked = np.sum([staggering.mix_random(np.full(10, 99), 9, 0.3, rng) < 9 for _ in range(2000)], axis=0)
    assert all(plausible(count, 2000, 0.3, 10) for count in picked)


@EXAMPLES
@given(n_envs=st.integers(1, 40), world_size=st.integers(1, 8), horizon=SIZES)
def test_ranks_together_hold_the_global_offsets_once(n_envs: int, world_size: int, horizon: int) -> None:
    shares = []
    for rank in range(world_size):
        global_n, start = staggering.rank_slice(n_envs, rank, world_size)
        shares.append(staggering.even_offsets(global_n, horizon)[start::world_size])
    assert all(share.size == n_envs for share in shares)
    np.testing.assert_array_equal(np.stack(shares, axis=1).ravel(), staggering.even_offsets(n_envs * world_size, horizon))


def test_one_process_keeps_all_slots() -> None:
    assert staggering.rank_slice(8, 0, 1) == (8, 0)


@pytest.mark.parametrize(
    ("horizon", "n_steps", "multiplier", "expected"),
    [(200, 20, 1, 10), (201, 20, 1, 11), (200, 20, 4, 40), (10, 2, 4, 10), (16, 2048, 1, 1), (1, 1, 3, 1)],
)
def test_n_blocks(horizon: int, n_steps: int, multiplier: int, expected: int) -> None:
    assert staggering.n_blocks(horizon, n_steps, multiplier) == expected


def test_suggested_rollouts_are_a_tenth_to_a_fifth_of_the_horizon() -> None:
    assert staggering.suggest_n_steps(1000) == (100, 200)
    assert staggering.suggest_n_steps(3) == (1, 1)


@EXAMPLES
@given(horizon=SIZES, blocks=SIZES)
def test_histogram_of_all_ages_has_the_block_lengths(horizon: int, blocks: int) -> None:
    assume(blocks <= horizon)
    starts = np.append(np.arange(blocks) * horizon // blocks, horizon)
    counts = staggering.phase_histogram(np.arange(horizon), horizon, blocks)
    np.testing.assert_array_equal(counts, np.diff(starts))


def test_histogram_clips_ages_and_takes_any_shape() -> None:
    assert staggering.phase_histogram([[-5, 0], [99, 100]], 100, 4).tolist() == [2, 0, 0, 2]
    assert staggering.phase_blocks([[-5, 0], [99, 100]], 100, 4).tolist() == [[0, 0], [3, 3]]
    assert staggering.phase_blocks([12, 13, 25, 26], 40, 3).tolist() == [0, 1, 1, 2]
    assert staggering.phase_histogram([], 100, 4).tolist() == [0, 0, 0, 0]


def test_coverage_and_entropy_of_known_counts() -> None:
    assert staggering.phase_coverage([3, 0, 1, 0]) == 0.5
    assert staggering.phase_entropy([2, 2, 0, 0]) == pytest.approx(0.5)
    assert staggering.phase_entropy([5, 5, 5, 5]) == pytest.approx(1.0)


def test_entropy_of_degenerate_counts() -> None:
    assert staggering.phase_entropy([0, 0, 0]) == 0.0
    assert staggering.phase_entropy([0, 7, 0]) == 0.0
    assert staggering.phase_entropy([7]) == 1.0
    assert staggering.phase_entropy([0]) == 0.0


@EXAMPLES
@given(counts=st.lists(st.integers(0, 1000), min_size=1, max_size=40))
def test_measures_of_counts_stay_in_the_unit_interval(counts: list[int]) -> None:
    assert 0.0 <= staggering.phase_entropy(counts) <= 1.0
    assert 0.0 <= staggering.phase_coverage(counts) <= 1.0


def test_dispersion_of_known_phases() -> None:
    assert staggering.circular_dispersion([30, 30, 30], 100) == pytest.approx(0.0)
    assert staggering.circular_dispersion([0, 50], 100) == pytest.approx(1.0)
    assert staggering.circular_dispersion([0, 25], 100) == pytest.approx(1.0 - np.sqrt(0.5))
    assert staggering.circular_dispersion([], 100) == 0.0


@EXAMPLES
@given(ages=st.lists(st.integers(0, 99), min_size=1, max_size=30), shift=st.integers(0, 99))
def test_dispersion_does_not_depend_on_the_common_phase(ages: list[int], shift: int) -> None:
    shifted = (np.array(ages) + shift) % 100
    dispersion = staggering.circular_dispersion(ages, 100)
    assert 0.0 <= dispersion <= 1.0
    assert staggering.circular_dispersion(shifted, 100) == pytest.approx(dispersion, abs=1e-9)


def test_bad_input_is_refused_with_the_numbers() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="n_envs must be at least 1, got 0"):
        staggering.even_offsets(0, 10)
    with pytest.raises(ValueError, match="horizon must be at least 1, got -2"):
        staggering.random_offsets(4, -2, rng)
    with pytest.raises(ValueError, match="n_blocks must be between 1 and horizon=10, got 11"):
        staggering.block_offsets(20, 10, 11)
    with pytest.raises(ValueError, match=r"shape \(3,\), one per block, got \(2,\)"):
        staggering.block_offsets(20, 10, 3, [1, 2])
    with pytest.raises(ValueError, match=r"not all 0, got \[0\.0, 0\.0\]"):
        staggering.block_offsets(20, 10, 2, [0, 0])
    with pytest.raises(ValueError, match=r"not negative and not all 0, got \[1\.0, -1\.0\]"):
        staggering.block_offsets(1, 10, 2, [1, -1])
    with pytest.raises(ValueError, match=r"random_fraction must be in \[0, 1\], got 1\.5"):
        staggering.mix_random([0, 1], 10, 1.5, rng)
    with pytest.raises(ValueError, match=r"rank must be in \[0, world_size=2\), got 2"):
        staggering.rank_slice(4, 2, 2)
    with pytest.raises(ValueError, match="n_steps must be at least 1, got 0"):
        staggering.n_blocks(100, 0)
    with pytest.raises(ValueError, match="horizon must be at least 1, got 0"):
        staggering.suggest_n_steps(0)
    with pytest.raises(ValueError, match="n_blocks must be between 1 and horizon=4, got 0"):
        staggering.phase_histogram([1], 4, 0)
    with pytest.raises(ValueError, match=r"at least one block, got \(0,\)"):
        staggering.phase_coverage([])
    with pytest.raises(ValueError, match=r"not negative, got -1\.0"):
        staggering.phase_entropy([1, -1])
    with pytest.raises(ValueError, match="horizon must be at least 1, got 0"):
        staggering.circular_dispersion([1], 0)
