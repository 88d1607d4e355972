"""What lies below a threshold, whatever the units and the zero of the scores; caps and rates that are kept."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from sb3_budget.core import gate_rules as core

EXAMPLES = settings(max_examples=25, deadline=None, derandomize=True)
#: Integers in floating point: sums and shifts of them are exact.
EXACT = npst.arrays(np.float64, st.integers(1, 40), elements=st.integers(-1000, 1000).map(float))
QUANTILES = st.floats(0.0, 1.0)


@EXAMPLES
@given(EXACT, EXACT, QUANTILES)
def test_quantile_is_that_of_numpy(scores, peers, quantile):
    # numpy takes the smallest peer for a quantile of 0, and below that one there is no peer.
    expected = scores < np.quantile(peers, quantile, method="inverted_cdf") if quantile > 0.0 else np.zeros(len(scores), bool)
    np.testing.assert_array_equal(core.below_quantile(scores, peers, quantile), expected)


@EXAMPLES
@given(EXACT, EXACT, st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.integers(-1000, 1000))
def test_quantile_and_deviations_ignore_a_shift_of_all_scores(scores, peers, share, shift):
    below = core.below_quantile(scores + 0.125, peers, share)
    np.testing.assert_array_equal(below, core.below_quantile(scores + 0.125 + shift, peers + shift, share))
    if peers.std() > 0.0:  # 0.3141 keeps scores off the threshold, where rounding decides
        below = core.below_deviations(scores + 0.3141, peers, share)
        np.testing.assert_array_equal(below, core.below_deviations(scores + 0.3141 + shift, peers + shift, share))


@EXAMPLES
@given(EXACT, QUANTILES)
def test_no_more_than_the_quantile_of_the_peers_lies_below_it(peers, quantile):
    assert core.below_quantile(peers, peers, quantile).sum() <= np.ceil(quantile * (len(peers) - 1))


def test_where_all_peers_are_equal_none_is_below():
    scores = np.full(5, -3.0)
    for below in (core.below_quantile, core.below_deviations):
        assert not below(scores, scores, 0.9).any()
    assert not core.below_ratio(scores, scores, 0.5).any()


def test_ratio_on_positive_returns_is_a_share_of_the_mean():
    below = core.below_ratio(np.array([4.9, 5.0, 20.0]), np.array([8.0, 12.0]), 0.5)
    assert below.tolist() == [True, False, False]


def test_ratio_on_negative_returns_lies_below_the_mean():
    # Half of the mean -10 would be -5 and stop all that are average; the threshold is -15.
    below = core.below_ratio(np.array([-15.1, -15.0, -10.0, -5.0]), np.array([-8.0, -12.0]), 0.5)
    assert below.tolist() == [True, False, False, False]


@EXAMPLES
@given(EXACT, QUANTILES)
def test_ratio_never_stops_what_reaches_the_mean(peers, ratio):
    assert not core.below_ratio(np.array([peers.mean(), peers.max()]), peers, ratio).any()


@EXAMPLES
@given(npst.arrays(np.bool_, 12), npst.arrays(np.float64, 12, elements=st.integers(-3, 3).map(float)), st.integers(-2, 14))
def test_caps_are_kept_and_the_lowest_go_first(stop, scores, cap):
    limited = core.limit_stops(stop, scores, cap, np.random.default_rng(0))
    assert limited.sum() == min(stop.sum(), max(cap, 0))
    assert not (limited & ~stop).any()
    kept = stop & ~limited
    if limited.any() and kept.any():
        assert scores[limited].max() <= scores[kept].min()


def test_ties_at_the_cap_are_broken_at_random():
    stop, scores, rng = np.ones(3, bool), np.zeros(3), np.random.default_rng(0)
    counts = sum(core.limit_stops(stop, scores, 1, rng).astype(int) for _ in range(300))
    assert counts.min() > 60


@EXAMPLES
@given(st.floats(0.0, 1.0), st.lists(st.integers(0, 8), min_size=1, max_size=200), st.integers(0, 2**32 - 1))
def test_a_limited_rate_is_kept_at_any_time(share, n_rejected, seed):
    limit, no_limit, rng = core.RateLimit(), core.RateLimit(), np.random.default_rng(seed)
    look, stops, looks = np.ones(8, dtype=bool), 0, 0
    for n in n_rejected:
        asked = rng.permutation(np.arange(8) < n)
        stop = limit(asked, look, rng.random(8), share, rng)
        assert not (stop & ~asked).any()
        stops, looks = stops + stop.sum(), looks + 8
        assert stops <= share * looks + 1e-9
        np.testing.assert_array_equal(no_limit(asked, look, rng.random(8), 1.0, rng), asked)


def test_a_limited_rate_forgets():
    limit, rng = core.RateLimit(), np.random.default_rng(0)
    look, nothing = np.ones(10, dtype=bool), np.zeros(10, dtype=bool)
    for _ in range(10_000):
        assert not limit(nothing, look, np.zeros(10), 0.5, rng).any()
    stops = [limit(look, look, np.zeros(10), 0.5, rng).sum() for _ in range(1000)]
    # What was not used is saved for no longer than RATE_LOOKS.
    assert sum(stops[:200]) <= 0.5 * (2000 + core.RATE_LOOKS)
    assert np.mean(stops[500:]) == pytest.approx(5.0, abs=0.1)


def test_looks_that_do_not_come_change_no_rate():
    limit, rng = core.RateLimit(), np.random.default_rng(0)
    nobody = np.zeros(4, dtype=bool)
    assert not limit(nobody, nobody, np.zeros(4), 1.0, rng).any()
    assert limit(~nobody, ~nobody, np.zeros(4), 1.0, rng).all()
