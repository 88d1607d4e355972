"""Which start of a pool comes next, by rule."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sb3_budget.core import start_rules as rules
from sb3_budget.core.entry_pool import EntryPool
from sb3_budget.core.starts import Outcome, replay_weights

EXAMPLES = settings(max_examples=50, deadline=None, derandomize=True)
#: A statistical test fails by chance with at most this probability, and its seed is fixed.
ALPHA = 1e-4

RETURNS = {Outcome.SIGNAL: [0.0, 1.0], Outcome.EASY: [1.0, 1.0], Outcome.HARD: [0.0, 0.0]}
OUTCOMES = st.lists(st.lists(st.sampled_from(list(RETURNS)), max_size=6), max_size=20)


def make_pool(n, rule, oversampling=1.0):
    return EntryPool(n, rules.parse_rule(rule), oversampling, 0.0, good_return=0.5)


def record(pool, entries, *outcomes):
    return pool.record(entries, [RETURNS[outcome] for outcome in outcomes])


def draw(pool, rng, n):
    return [pool.draw(rng) for _ in range(n)]


def is_binomial(successes, n, p):
    """By Hoeffding's inequality, two-sided."""
    return 2 * math.exp(-2 * n * (successes / n - p) ** 2) > ALPHA


# ---------------------------------------------------------------------- all rules


@pytest.mark.parametrize("rule", sorted(rules.PRESETS))
@EXAMPLES
@given(st.integers(1, 8), OUTCOMES, st.integers(0, 99))
def test_weights_stay_weights_and_draws_stay_in_the_pool(rule, n, rollouts, seed):
    pool, rng = make_pool(n, rule), np.random.default_rng(seed)
    for outcomes in rollouts:
        entries = draw(pool, rng, len(outcomes))
        used = record(pool, entries, *outcomes)
        assert (pool.entries.weights >= 0.0).all() and np.isfinite(pool.entries.weights).all()
        assert not outcomes or (~used).sum() <= 0.9 * len(outcomes)
        assert used[[outcome == Outcome.SIGNAL for outcome in outcomes]].all()
        assert 0 <= pool.draw(rng) < n


@pytest.mark.parametrize("rule", sorted(rules.PRESETS))
def test_equal_generators_draw_equal_starts(rule):
    first, second = make_pool(5, rule), make_pool(5, rule)
    assert draw(first, np.random.default_rng(7), 20) == draw(second, np.random.default_rng(7), 20)


# ---------------------------------------------------------------------- recycle


def test_a_used_signal_is_consumed_and_nothing_else():
    pool = make_pool(4, "recycle", oversampling=4.0)
    used = record(pool, [0, 1, 2, 3], Outcome.HARD, Outcome.SIGNAL, Outcome.SIGNAL, Outcome.EASY)
    assert used.tolist() == [False, True, False, False]
    assert pool.entries.weights.tolist() == [1.0, 0.0, 1.0, 1.0]
    # A group of a consumed start that was still under way changes nothing, and one without a spread is not consumed.
    record(pool, [1, 0], Outcome.HARD, Outcome.HARD)
    assert pool.entries.weights.tolist() == [1.0, 0.0, 1.0, 1.0]


@EXAMPLES
@given(st.integers(1, 8), OUTCOMES, st.integers(0, 99))
def test_consumed_starts_are_not_drawn_before_a_new_pass(n, rollouts, seed):
    pool, rng = make_pool(n, rules.RecycleRule(draws_per_start=math.inf)), np.random.default_rng(seed)
    consumed: set[int] = set()
    for outcomes in rollouts:
        if len(consumed) == n and outcomes:
            consumed = set()
        entries = draw(pool, rng, len(outcomes))
        assert not consumed.intersection(entries)
        record(pool, entries, *outcomes)
        consumed |= {entry for entry, outcome in zip(entries, outcomes, strict=True) if outcome == Outcome.SIGNAL}
        assert set(np.flatnonzero(pool.entries.weights == 0.0).tolist()) == consumed


def test_between_two_records_none_is_drawn_twice_where_others_are_left():
    pool, rng = make_pool(6, "recycle"), np.random.default_rng(0)
    record(pool, [0, 1], Outcome.SIGNAL, Outcome.SIGNAL)
    assert sorted(draw(pool, rng, 4)) == [2, 3, 4, 5]
    assert set(draw(pool, rng, 8)) <= {2, 3, 4, 5}
    pool, rng = make_pool(4, "recycle"), np.random.default_rng(0)
    for _ in range(2):
        assert sorted(draw(pool, rng, 4)) == [0, 1, 2, 3]
        record(pool, [2], Outcome.HARD)


def test_repeatedly_easy_starts_weigh_less_down_to_a_floor_and_recover():
    pool = make_pool(2, rules.RecycleRule(easy_decay=0.5, min_weight=0.2))
    weights = []
    for outcome in [Outcome.EASY] * 4 + [Outcome.HARD, Outcome.EASY]:
        record(pool, [0], outcome)
        weights.append(pool.entries.weights[0])
    assert weights == [1.0, 0.5, 0.25, 0.2, 1.0, 1.0]
    # Two groups of one start in the same record.
    record(pool, [0, 0], Outcome.EASY, Outcome.EASY)
    assert pool.entries.weights.tolist() == [0.25, 1.0]


def test_decayed_starts_are_drawn_in_proportion():
    pool, rng, n = make_pool(2, rules.RecycleRule(easy_decay=0.25)), np.random.default_rng(0), 4000
    record(pool, [0], Outcome.EASY)
    record(pool, [0], Outcome.EASY)
    drawn = 0
    for _ in range(n):
        drawn += pool.draw(rng)
        pool.entries.drawn[:] = False
    assert is_binomial(drawn, n, 1 / 1.25)


def test_a_pass_ends_with_the_last_consumed_start_or_after_its_draws():
    pool, rng = make_pool(3, rules.RecycleRule(draws_per_start=2.0)), np.random.default_rng(0)
    record(pool, [0, 1, 2], *[Outcome.SIGNAL] * 3)
    pool.draw(rng)
    assert pool.entries.weights.tolist() == [1.0] * 3
    record(pool, [0, 1], *[Outcome.SIGNAL] * 2)
    assert draw(pool, rng, 5) == [2] * 5
    # A weight that has decayed stays as it is.
    pool.entries.weights[2] = 0.5
    pool.draw(rng)
    assert pool.entries.weights.tolist() == [1.0, 1.0, 0.5]


def test_without_a_limit_a_pass_goes_on_while_a_start_is_not_consumed():
    pool, rng = make_pool(3, rules.RecycleRule(draws_per_start=math.inf)), np.random.default_rng(0)
    record(pool, [0, 1], *[Outcome.SIGNAL] * 2)
    assert draw(pool, rng, 50) == [2] * 50


# ---------------------------------------------------------------------- discard and skip


@pytest.mark.parametrize("rule", ["discard", "skip"])
def test_a_pass_draws_every_start_once_in_an_order_of_its_own(rule):
    pool, rng = make_pool(30, rule), np.random.default_rng(0)
    first, second = draw(pool, rng, 30), draw(pool, rng, 30)
    assert sorted(first) == sorted(second) == list(range(30))
    assert first != second != list(range(30))


def test_groups_without_a_spread_are_left_out_up_to_the_cap():
    pool = make_pool(10, rules.DiscardRule(max_discarded=0.5))
    outcomes = [Outcome.HARD, Outcome.SIGNAL, Outcome.EASY, Outcome.HARD]
    assert record(pool, [0, 1, 2, 3], *outcomes).tolist() == [True, True, False, False]
    assert record(make_pool(10, "discard"), [0, 1, 2, 3], *outcomes).tolist() == [False, True, False, False]


def test_starts_are_skipped_with_the_probability_of_their_run():
    rng, n, kept = np.random.default_rng(0), 1500, 0
    for _ in range(n):
        pool = make_pool(2, rules.SkipRule(p_hard=0.6))
        record(pool, [0], Outcome.HARD)
        record(pool, [0], Outcome.HARD)
        pool.rule.p_hard = 0.6
        kept += pool.draw(rng) == 0
    # Half of the passes of two begin with it, and it is then kept with 0.6 ** 2; the other start is never skipped.
    assert is_binomial(kept, n, 0.5 * 0.36)


def test_skips_end_where_all_starts_would_be_skipped():
    pool, rng = make_pool(3, rules.SkipRule(max_skips=7)), np.random.default_rng(0)
    pool.entries.runs[:] = 1000
    assert set(draw(pool, rng, 300)) == {0, 1, 2}
    without = make_pool(3, rules.SkipRule(max_skips=0))
    without.entries.runs[:] = 1000
    assert sorted(draw(without, rng, 3)) == [0, 1, 2]


def test_chances_of_another_try_are_adapted_apart_from_the_second_pass_on():
    pool = make_pool(4, rules.SkipRule(target_easy=0.25, target_hard=0.5))
    record(pool, [0, 1, 2, 3], *[Outcome.HARD] * 4)
    assert (pool.rule.p_easy, pool.rule.p_hard) == (0.5, 0.5)
    record(pool, [0, 1, 2, 3], Outcome.EASY, Outcome.SIGNAL, Outcome.SIGNAL, Outcome.HARD)
    assert (pool.rule.p_easy, pool.rule.p_hard) == pytest.approx((0.49, 0.51))
    for _ in range(100):
        record(pool, [0, 1, 2, 3], *[Outcome.HARD] * 4)
    assert (pool.rule.p_easy, pool.rule.p_hard) == pytest.approx((0.95, 0.05))


# ---------------------------------------------------------------------- plr


def test_unseen_starts_come_first_and_then_with_the_share_of_the_unseen():
    pool, rng = make_pool(10, rules.LevelReplayRule(min_seen=0.5)), np.random.default_rng(0)
    assert sorted(draw(pool, rng, 10)) == list(range(10))
    record(pool, [0, 1, 2, 3], *[Outcome.SIGNAL] * 4)
    pool.draw(rng)
    assert not pool.entries.weights[:4].any()
    record(pool, [4], Outcome.HARD)
    pool.draw(rng)
    np.testing.assert_allclose(pool.entries.weights[5:], 0.5 / 5)
    scores, last = pool.entries.scores[:5], pool.entries.last_records[:5]
    np.testing.assert_allclose(pool.entries.weights[:5], 0.5 * replay_weights(scores, last, 0.1, 0.1))
    record(pool, [5, 6, 7, 8, 9], *[Outcome.HARD] * 5)
    pool.draw(rng)
    assert pool.entries.weights.sum() == pytest.approx(1.0)


def test_the_largest_score_is_replayed_most():
    pool, rng, n = make_pool(4, "plr"), np.random.default_rng(0), 4000
    pool.record([0, 1, 2, 3], [[0.0, 1.0], [0.0, 3.0], [0.0, 2.0], [0.0, 0.0]])
    counts = np.bincount(draw(pool, rng, n), minlength=4)
    assert is_binomial(counts[1], n, 1 / (1 + 2.0**-10 + 3.0**-10 + 4.0**-10))
    pool.record([3], [[0.0, 0.0]], scores=[10.0])
    pool.draw(rng)
    # The other three were last visited one record before, and share the weight of staleness.
    assert pool.entries.weights[3] == pytest.approx(0.9 / (1 + 2.0**-10 + 3.0**-10 + 4.0**-10))


# ---------------------------------------------------------------------- parsing and bad input


def test_a_name_an_object_or_a_function_is_a_rule():
    assert {name: type(rules.parse_rule(name)) for name in rules.PRESETS} == rules.PRESETS
    given_rule = rules.SkipRule()
    assert rules.parse_rule(given_rule) is given_rule
    pool = make_pool(3, lambda entries, rng: int(np.argmin(entries.visits)))
    assert record(pool, [pool.draw(None), 1], Outcome.HARD, Outcome.EASY).tolist() == [True, True]
    assert pool.draw(None) == 2


@pytest.mark.parametrize("rule", ["recycled", 3, rules.RecycleRule])
def test_what_is_no_rule_is_refused(rule):
    with pytest.raises(ValueError, match="is not one of 'recycle', 'discard', 'skip', 'plr', a rule or a function"):
        rules.parse_rule(rule)


@pytest.mark.parametrize(
    ("make", "arguments", "message"),
    [
        (rules.RecycleRule, {"easy_decay": 0.0}, r"easy_decay=0\.0 must lie in \(0, 1\]"),
        (rules.RecycleRule, {"min_weight": 0.0}, r"min_weight=0\.0"),
        (rules.RecycleRule, {"draws_per_start": 0.5}, r"draws_per_start=0\.5 must be at least 1 draw per start"),
        (rules.RecycleRule, {"max_discarded": np.nan}, r"max_discarded=nan must lie in \[0, 1\]"),
        (rules.DiscardRule, {"max_discarded": 1.1}, r"max_discarded=1\.1"),
        (rules.SkipRule, {"p_easy": 0.0}, r"p_easy=0\.0 and p_hard=0\.5 must lie in \[0\.05, 0\.95\]"),
        (rules.SkipRule, {"target_hard": 2.0}, r"target_hard=2\.0"),
        (rules.SkipRule, {"max_skips": -1}, "max_skips=-1 must not be negative"),
        (rules.LevelReplayRule, {"temperature": 0.0}, r"temperature=0\.0 must be positive"),
        (rules.LevelReplayRule, {"staleness_coef": -0.1}, r"staleness_coef=-0\.1"),
        (rules.LevelReplayRule, {"min_seen": 3.0}, r"min_seen=3\.0"),
    ],
)
def test_arguments_out_of_range_are_refused(make, arguments, message):
    with pytest.raises(ValueError, match=message):
        make(**arguments)
