"""Rules that divide a budget, by hand, by property, and against all other divisions."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sb3_budget.core import allocation as core

EXAMPLES = settings(max_examples=100, deadline=None, derandomize=True)

RULES = [core.uniform, core.proportional, core.softmax, core.rank]
#: Some anchors have not been seen.
SCORES = st.lists(st.floats(0, 100) | st.just(float("nan")), min_size=1, max_size=12)
WEIGHTS = st.lists(st.floats(0, 1e6), min_size=1, max_size=12)


# ---------------------------------------------------------------------- probabilities


@pytest.mark.parametrize("rule", RULES)
@EXAMPLES
@given(scores=SCORES)
def test_every_rule_gives_probabilities_and_unseen_anchors_none_less_than_the_best(rule, scores):
    probabilities = rule(scores)
    assert probabilities.shape == (len(scores),)
    assert probabilities.sum() == pytest.approx(1.0) and (probabilities >= 0.0).all()
    unseen = np.isnan(scores)
    if unseen.any():
        np.testing.assert_allclose(probabilities[unseen], probabilities.max())


@pytest.mark.parametrize("rule", RULES)
@EXAMPLES
@given(scores=SCORES)
def test_a_larger_score_never_has_a_smaller_probability(rule, scores):
    probabilities = rule(scores)
    seen = np.flatnonzero(~np.isnan(scores))
    ordered = seen[np.argsort(np.array(scores)[seen], kind="stable")]
    assert (np.diff(probabilities[ordered]) >= -1e-12).all()


def test_rules_by_hand():
    np.testing.assert_allclose(core.uniform([5.0, np.nan, 0.0, 1.0]), 1 / 4)
    np.testing.assert_allclose(core.proportional([1.0, 0.0, 3.0]), [1 / 4, 0, 3 / 4])
    np.testing.assert_allclose(core.proportional([1.0, np.nan, 3.0]), [1 / 7, 3 / 7, 3 / 7])
    np.testing.assert_allclose(core.softmax([0.0, np.log(3.0)], 1.0), [1 / 4, 3 / 4])
    np.testing.assert_allclose(core.softmax([0.0, np.log(3.0)], 0.5), [1 / 10, 9 / 10])
    np.testing.assert_allclose(core.rank([9.0, -4.0, 0.0], 0.5), np.array([1, 1 / 9, 1 / 4]) * 36 / 49)
    # The unseen one is first, the tied two share the weights 1/2 and 1/3.
    np.testing.assert_allclose(core.rank([2.0, np.nan, 2.0]), np.array([5 / 12, 1, 5 / 12]) * 6 / 11)


@pytest.mark.parametrize("rule", RULES)
def test_without_any_difference_every_rule_is_uniform(rule):
    for scores in ([0.0] * 3, [np.nan] * 3, [7.0] * 3):
        np.testing.assert_allclose(rule(scores), 1 / 3)


@pytest.mark.parametrize("rule", [core.softmax, core.rank])
def test_a_temperature_near_0_leaves_the_largest_score_alone(rule):
    np.testing.assert_allclose(rule([-1e9, 1.0, 3.0], temperature=1e-3), [0, 0, 1], atol=1e-300)


def test_the_floor_is_an_even_share():
    np.testing.assert_allclose(core.with_floor([1.0, 0.0], 0.2), [0.9, 0.1])
    np.testing.assert_allclose(core.with_floor([1.0, 0.0], 0.0), [1.0, 0.0])
    np.testing.assert_allclose(core.with_floor([1.0, 0.0], 1.0), [0.5, 0.5])


def test_misuse_of_rules_is_told():
    with pytest.raises(ValueError, match=r"not be negative to be proportional, got -1\.0: use rank or softmax"):
        core.proportional([1.0, -1.0])
    for rule in (core.softmax, core.rank):
        with pytest.raises(ValueError, match="temperature must be positive, got 0"):
            rule([1.0], temperature=0)
    with pytest.raises(ValueError, match=r"floor must be in \[0, 1\], got 1\.5"):
        core.with_floor([1.0], 1.5)
    with pytest.raises(ValueError, match=r"at least one anchor, got \(0,\)"):
        core.uniform([])
    with pytest.raises(ValueError, match="scores must be finite"):
        core.softmax([np.inf])


# ---------------------------------------------------------------------- integer shares


@EXAMPLES
@given(weights=WEIGHTS, data=st.data())
def test_shares_sum_to_the_budget_keep_the_order_and_respect_the_bounds(weights, data):
    n = len(weights)
    least = data.draw(st.integers(0, 5))
    most = data.draw(st.integers(least, 30))
    budget = data.draw(st.integers(n * least, n * most))
    divided = core.shares(weights, budget, least, most)
    assert divided.dtype == np.int64 and divided.sum() == budget
    assert ((divided >= least) & (divided <= most)).all()
    assert (np.diff(divided[np.argsort(np.array(weights) * -1, kind="stable")]) <= 0).all()


@EXAMPLES
@given(weights=st.lists(st.floats(0.01, 1.0), min_size=1, max_size=12), budget=st.integers(0, 1000))
def test_shares_without_bounds_are_within_one_unit_of_their_quota(weights, budget):
    quota = budget * np.array(weights) / np.sum(weights)
    assert (np.abs(core.shares(weights, budget) - quota) < 1.0).all()


def test_shares_by_hand():
    assert core.shares([0.5, 0.3, 0.2], 10).tolist() == [5, 3, 2]
    assert core.shares([1.0, 1.0, 1.0], 5).tolist() == [2, 2, 1]  # ties: the first come first
    assert core.shares([0.47, 0.16, 0.37], 10).tolist() == [5, 1, 4]  # 4.7, 1.6, 3.7: the largest remainders
    assert core.shares([1.0, 0.0], 10, least=2).tolist() == [8, 2]
    assert core.shares([0.9, 0.05, 0.05], 10, most=6).tolist() == [6, 2, 2]
    assert core.shares([1.0, 0.0, 0.0], 10, most=6).tolist() == [6, 2, 2]  # nobody else may have the rest
    assert core.shares([0.0, 0.0], 3).tolist() == [2, 1]
    assert core.shares([1e-320, 1.0], 7).tolist() == [0, 7]
    assert core.shares([1.0], 0).tolist() == [0]


def test_impossible_shares_are_told():
    with pytest.raises(ValueError, match="budget=3 cannot be divided among 2 anchors with shares of 2 to 3"):
        core.shares([1, 1], 3, least=2)
    with pytest.raises(ValueError, match="budget=9 cannot be divided among 2 anchors with shares of 0 to 4"):
        core.shares([1, 1], 9, most=4)
    with pytest.raises(ValueError, match="finite and not negative"):
        core.shares([1, np.nan], 9)


@EXAMPLES
@given(
    n_items=st.integers(1, 4),
    n_options=st.integers(1, 4),
    budget=st.integers(0, 12),
    spend_all=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_no_other_choice_beats_the_knapsack(n_items, n_options, budget, spend_all, seed):
    rng = np.random.default_rng(seed)
    values, costs = rng.integers(0, 5, (n_items, n_options)), rng.integers(0, 6, (n_items, n_options))
    items = np.arange(n_items)
    worth = {
        choice: (values[items, choice].sum(), costs[items, choice].sum())
        for choice in product(range(n_options), repeat=n_items)
        if (costs[items, choice].sum() == budget if spend_all else costs[items, choice].sum() <= budget)
    }
    if not worth:
        with pytest.raises(ValueError, match=f"No choice .* budget={budget}"):
            core.knapsack(values, costs, budget, spend_all)
        return
    # Of equal values, the one that spends more.
    assert worth[tuple(core.knapsack(values, costs, budget, spend_all).tolist())] == max(worth.values())


def test_a_classic_knapsack_by_hand():
    values = np.array([[0, 60], [0, 100], [0, 120]])
    costs = np.array([[0, 10], [0, 20], [0, 30]])
    assert core.knapsack(values, costs, 50).tolist() == [0, 1, 1]
    assert core.knapsack([[0.0, 1.0]], [0, 3], 2).tolist() == [0]


def test_misuse_of_the_knapsack_is_told():
    with pytest.raises(ValueError, match="whole numbers"):
        core.knapsack([[1.0]], [0.5], 2)
    with pytest.raises(ValueError, match="whole numbers"):
        core.knapsack([[1.0]], [-1], 2)
    with pytest.raises(ValueError, match=r"\(n_items, n_options\) without NaN"):
        core.knapsack([1.0], [1], 2)


# ---------------------------------------------------------------------- anchor weights


def test_anchor_weights_by_hand():
    np.testing.assert_allclose(core.anchor_weights([0, 0, 0, 1], [0.5, 0.5]), [2 / 3, 2 / 3, 2 / 3, 2])
    np.testing.assert_allclose(core.anchor_weights([0, 1, 1], [1.0, 0.0]), [3, 0, 0])
    np.testing.assert_allclose(core.anchor_weights([2, 2], [0.2, 0.2, 0.6]), [1, 1])
    with pytest.raises(ValueError, match="none of these counts"):
        core.anchor_weights([1, 1], [1.0, 0.0])


def test_anchor_weights_keep_the_expected_gradient_of_the_base_distribution():
    """A bandit of three anchors and two actions: all outcomes of an uneven division are enumerated."""
    logits = np.array([0.3, -0.7, 1.1])
    rewards = np.array([[1.0, 0.0], [2.0, -3.0], [0.5, 4.0]])
    base = np.array([0.6, 0.3, 0.1])
    p = 1.0 / (1.0 + np.exp(-logits))
    chances = np.stack([p, 1.0 - p], axis=1)
    # Policy gradient of an episode: reward times d log pi / d logits, a vector with one part per anchor.
    gradients = np.zeros((3, 2, 3))
    for anchor in range(3):
        gradients[anchor, :, anchor] = rewards[anchor] * np.array([1.0 - p[anchor], -p[anchor]])
    exact = np.einsum("s,sa,sad->d", base, chances, gradients)

    anchors = np.array([0, 1, 1, 1, 2, 2])
    weights = core.anchor_weights(anchors, base)
    weighted, plain = np.zeros(3), np.zeros(3)
    for actions in product(range(2), repeat=len(anchors)):
        chance = chances[anchors, actions].prod()
        weighted += chance * (weights[:, None] * gradients[anchors, actions]).mean(axis=0)
        plain += chance * gradients[anchors, actions].mean(axis=0)
    np.testing.assert_allclose(weighted, exact)
    assert np.abs(plain - exact).max() > 0.1
