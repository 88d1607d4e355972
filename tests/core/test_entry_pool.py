"""What a pool keeps of the groups that it is told of."""

from __future__ import annotations

import numpy as np
import pytest

from sb3_budget.core.entry_pool import EntryPool
from sb3_budget.core.start_rules import DiscardRule, LevelReplayRule, OwnRule, RecycleRule
from sb3_budget.core.starts import Outcome

SIGNAL, EASY, HARD = [0.0, 1.0], [1.0, 1.0], [0.0, 0.0]


def make_pool(n=4, rule=None, oversampling=1.0, tolerance=0.0, good_return=0.5):
    return EntryPool(n, rule or RecycleRule(), oversampling, tolerance, good_return)


def test_outcomes_runs_and_flips_of_each_entry():
    pool = make_pool()
    for returns, outcome, run in [
        (HARD, Outcome.HARD, 1),
        (HARD, Outcome.HARD, 2),
        (EASY, Outcome.EASY, 1),
        (SIGNAL, Outcome.SIGNAL, 0),
        (HARD, Outcome.HARD, 1),
        (SIGNAL, Outcome.SIGNAL, 0),
    ]:
        pool.record([1], [returns])
        assert (pool.entries.outcomes[1], pool.entries.runs[1]) == (outcome, run)
    known = pool.entries
    assert known.visits.tolist() == [0, 6, 0, 0] and known.last_records.tolist() == [-1, 5, -1, -1]
    assert known.easy_flips.tolist() == [0, 1, 0, 0] and known.hard_flips.tolist() == [0, 1, 0, 0]
    assert (known.means[1], known.stds[1], known.scores[1]) == (0.5, 0.5, 0.5) and np.isnan(known.means[0])


def test_statistics_by_hand():
    pool = make_pool(n=8)
    assert pool.statistics.pool_unseen == 1.0 and np.isnan(pool.statistics.zero_variance)
    pool.record([0, 1, 2, 3], [HARD, HARD, EASY, SIGNAL])
    first = pool.statistics
    assert (first.zero_variance, first.easy, first.hard, first.recycled) == (0.75, 0.25, 0.5, 0.0)
    assert (first.flips_easy, first.flips_hard, first.flip_rate_easy, first.flip_rate_hard) == (0, 0, 0.0, 0.0)
    # Entry 0 flips, entry 1 does not, entry 2 flips, entry 4 is new.
    pool.record([0, 1, 2, 4], [SIGNAL, HARD, SIGNAL, SIGNAL])
    second = pool.statistics
    assert (second.zero_variance, second.easy, second.hard) == (0.25, 0.0, 0.25)
    assert second.recycled == pytest.approx(2 / 3)
    assert (second.flips_easy, second.flips_hard, second.flip_rate_easy, second.flip_rate_hard) == (1, 1, 1.0, 0.5)
    assert (second.pool_unseen, second.pool_signal, second.pool_easy, second.pool_hard) == (3 / 8, 4 / 8, 0.0, 1 / 8)
    assert second.pool_consumed == 4 / 8


def test_shares_add_up():
    rng, pool = np.random.default_rng(0), make_pool(n=10, good_return=None)
    for _ in range(20):
        pool.record(rng.integers(10, size=6).tolist(), rng.integers(2, size=(6, 2)))
        statistics = pool.statistics
        assert statistics.zero_variance == pytest.approx(statistics.easy + statistics.hard)
        assert sum(statistics[8:12]) == pytest.approx(1.0)


def test_recycled_groups_are_counted_among_the_used_ones_only():
    pool = make_pool(oversampling=4.0)
    pool.record([0, 1], [HARD, HARD])
    assert pool.record([2, 3, 0, 1], [SIGNAL, SIGNAL, SIGNAL, SIGNAL]).tolist() == [True, False, False, False]
    assert pool.statistics.recycled == 0.0 and pool.statistics.flips_hard == 2


def test_a_rollout_without_finished_groups_changes_nothing_known():
    pool = make_pool()
    pool.record([0], [EASY])
    known = [column.copy() for column in pool.entries]
    assert pool.record([], []).tolist() == []
    for before, after in zip(known, pool.entries, strict=True):
        np.testing.assert_array_equal(before, after)
    assert np.isnan(pool.statistics.zero_variance) and pool.n_records == 2


def test_the_running_mean_decides_what_is_easy_where_no_return_is_given():
    pool = make_pool(good_return=None)
    pool.record([0, 1, 2], [[0.0, 4.0], [1.0, 1.0], [3.0, 3.0]])
    assert pool.entries.outcomes.tolist() == [Outcome.SIGNAL, Outcome.HARD, Outcome.EASY, Outcome.UNSEEN]


def test_scores_are_deviations_or_what_is_given():
    pool = make_pool(rule=LevelReplayRule())
    pool.record([0], [[0.0, 4.0]])
    assert pool.entries.scores[0] == 2.0
    pool.record([0], [[0.0, 4.0]], scores=[7.0])
    assert (pool.entries.scores[0], pool.entries.stds[0]) == (7.0, 2.0)


def test_all_groups_are_used_by_a_rule_that_discards_none_and_never_none_by_one_that_does():
    assert make_pool(rule=LevelReplayRule()).record([0, 1], [HARD, SIGNAL]).all()
    assert make_pool(rule=DiscardRule()).record([0, 1, 2], [HARD, HARD, HARD]).tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": 0}, "A pool of 0 starts"),
        ({"oversampling": 0.5}, r"oversampling=0\.5 must be at least 1"),
        ({"oversampling": np.inf}, "oversampling=inf"),
        ({"tolerance": -1.0}, r"tolerance=-1\.0 must not be negative"),
        ({"good_return": np.nan}, "good_return=nan must be a number"),
        ({"oversampling": 2.0, "rule": LevelReplayRule()}, r"oversampling=2\.0 leaves groups out .* max_discarded=0 uses all"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        make_pool(**arguments)


def test_a_rule_of_the_users_with_an_impossible_cap_is_refused():
    rule = OwnRule(lambda entries, rng: 0)
    rule.max_discarded = 2.0
    with pytest.raises(ValueError, match=r"max_discarded=2\.0 must lie in \[0, 1\]"):
        make_pool(rule=rule)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0], [SIGNAL, SIGNAL]), "1 groups need as many arrays of returns"),
        (([0], [[]]), r"shape \(k,\) with k >= 1"),
        (([0], [[0.0, np.nan]]), "must be finite"),
        (([0], [SIGNAL], [np.inf]), "must be finite"),
        (([0], [SIGNAL], [1.0, 2.0]), r"scores must have the shape \(1,\) of the groups, got \(2,\)"),
    ],
)
def test_a_bad_record_is_refused_and_leaves_the_pool_as_it_was(arguments, message):
    pool = make_pool()
    with pytest.raises(ValueError, match=message):
        pool.record(*arguments)
    assert pool.n_records == 0 and not pool.entries.visits.any() and pool.moments.n == 0


@pytest.mark.parametrize("drawn", [4, -1, 1.5, None])
def test_a_rule_that_draws_what_is_not_there_is_refused(drawn):
    with pytest.raises(ValueError, match=r"must return an integer in \[0, 4\)"):
        make_pool(rule=OwnRule(lambda entries, rng: drawn)).draw(np.random.default_rng(0))
