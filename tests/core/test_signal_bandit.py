"""A bandit among signals finds the one that pays."""

from __future__ import annotations

import numpy as np
import pytest

from sb3_budget.core.anchors import parse_priority
from sb3_budget.core.signal_bandit import SignalBandit


def train(bandit, n_periods, gain_of):
    """Returns grow by what the followed signal is worth, with noise; the critic's error tells nothing."""
    rng, level = np.random.default_rng(0), 0.0
    for _ in range(n_periods):
        level += gain_of[bandit.current] + 0.1 * rng.normal()
        bandit.record(bandit.period, [level], None)


def test_the_signal_that_pays_is_followed_more_and_more():
    bandit = SignalBandit(["novelty", "td"], period=100, seed=0)
    assert bandit.probabilities == {"novelty": 0.5, "td": 0.5}
    train(bandit, 150, {"novelty": 0.0, "td": 1.0})
    assert bandit.probabilities["td"] > 0.8
    assert bandit.probabilities["novelty"] >= 0.1  # half of the exploration
    other = SignalBandit(["novelty", "td"], period=100, seed=0)
    train(other, 150, {"novelty": 1.0, "td": 0.0})
    assert other.probabilities["novelty"] > 0.8


def test_the_fall_of_the_critics_error_counts_as_much():
    bandit, error = SignalBandit(["novelty", "td"], period=100, seed=0), 1e3
    for _ in range(150):
        error *= 0.9 if bandit.current == "td" else 1.0
        bandit.record(100, [], error)
    assert bandit.probabilities["td"] > 0.7


def test_where_all_earn_the_same_nothing_is_preferred():
    bandit = SignalBandit(["novelty", "td"], period=10, seed=0)
    for _ in range(5):
        bandit.record(10, [1.0], 1.0)
    # The first period has nothing to compare with.
    assert bandit.rewards == [0.5] * 4


def test_a_period_lasts_as_long_as_it_says():
    bandit = SignalBandit(["novelty", "td"], period=100, seed=0)
    for n_rollouts in range(1, 13):
        bandit.record(30, [float(n_rollouts)], None)
        # 120 steps are the first that reach 100.
        assert len(bandit.rewards) == max(0, n_rollouts // 4 - 1)
    for _ in range(8):
        bandit.record(30, [], None)
    assert len(bandit.rewards) == 2  # what was not measured earns nothing


def test_scores_are_those_of_the_followed_signal():
    bandit = SignalBandit([np.negative, np.positive], seed=0)
    assert bandit(3.0) == {"negative": -3.0, "positive": 3.0}[bandit.current]
    assert parse_priority(bandit) is bandit


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"signals": ["td"]}, "two signals at least, got .'td'."),
        ({"signals": ["td", "best"]}, "priority='best' is not one of"),
        ({"signals": ["td", "novelty"], "period": 0}, "period=0 must be at least 1 step"),
        ({"signals": ["td", "novelty"], "exploration": 0.0}, "exploration=0.0 must lie in"),
    ],
)
def test_misuse_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        SignalBandit(**arguments)
