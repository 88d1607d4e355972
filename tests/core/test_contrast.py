"""Groups that are mixed: closed forms, enumerations, and all other divisions."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sb3_budget.core import contrast as core
from sb3_budget.core.allocation import anchor_weights

EXAMPLES = settings(max_examples=100, deadline=None, derandomize=True)
SUCCESS = st.floats(0.0, 1.0)


def divisions(n_anchors: int, budget: int, least: int, most: int) -> list[tuple[int, ...]]:
    options = [0, *range(least, most + 1)]
    return [counts for counts in product(options, repeat=n_anchors) if sum(counts) == budget]


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.8, 1.0])
@pytest.mark.parametrize("n", range(6))
def test_mixed_probability_is_that_of_all_outcomes(p, n):
    mixed = sum(
        np.prod([p if success else 1.0 - p for success in outcomes])
        for outcomes in product([False, True], repeat=n)
        if 0 < sum(outcomes) < n
    )
    assert core.mixed_probability(p, n) == pytest.approx(mixed)


def test_mixed_probability_of_rare_successes_keeps_its_digits():
    assert core.mixed_probability(1e-18, 10) == pytest.approx(1e-17)
    assert core.mixed_probability(0.5, 1) == 0.0


@EXAMPLES
@given(p=SUCCESS, n=st.integers(1, 40))
def test_one_more_member_is_worth_what_the_greedy_rule_says(p, n):
    gain = core.mixed_probability(p, n + 1) - core.mixed_probability(p, n)
    assert gain == pytest.approx(p * (1 - p) * (p ** (n - 1) + (1 - p) ** (n - 1)), abs=1e-12)


def test_contrast_and_exploration_value_by_hand():
    np.testing.assert_allclose(core.contrast([0.0, 0.5, 0.9, np.nan]), [0, 0.25, 0.09, np.nan])
    assert core.exploration_value(0.5, 2) == pytest.approx(0.5 * 0.125)
    grid = np.linspace(0, 1, 301)
    assert grid[core.exploration_value(grid, 1000).argmax()] == pytest.approx(1 / 3)


@pytest.mark.parametrize("rule", [core.greedy_contrast, core.knapsack_contrast])
@EXAMPLES
@given(
    success=st.lists(SUCCESS, min_size=1, max_size=4),
    budget=st.integers(0, 11),
    least=st.integers(2, 4),
    most=st.integers(2, 11),
)
def test_no_other_division_has_more_mixed_groups(rule, success, budget, least, most):
    every = divisions(len(success), budget, least, most)
    if not every:
        with pytest.raises(ValueError, match=f"budget={budget} cannot be divided"):
            rule(success, budget, least, most)
        return
    objective = core.mixed_probability if rule is core.greedy_contrast else core.exploration_value
    divided = rule(success, budget, least, most)
    assert divided.dtype == np.int64 and tuple(divided.tolist()) in every
    best = objective(success, np.array(every)).sum(axis=1).max()
    assert objective(success, divided).sum() == pytest.approx(best, abs=1e-12)


def test_no_anchor_gets_a_group_of_one():
    # Three groups of two cost six; the seventh member joins one of them rather than being alone.
    assert core.greedy_contrast([0.5, 0.5, 0.5, 0.5], 7).tolist() in ([3, 2, 2, 0], [3, 4, 0, 0], [4, 3, 0, 0])
    assert core.greedy_contrast([0.5, 0.1], 3).tolist() == [3, 0]
    assert core.greedy_contrast([0.5, 0.5], 0).tolist() == [0, 0]


def test_rare_outcomes_get_large_groups_and_hopeless_ones_nothing():
    divided = core.greedy_contrast([0.5, 0.1, 0.0], 30)
    assert divided.sum() == 30 and divided[2] == 0 and divided[1] > 2 * divided[0]
    uniform = core.mixed_probability([0.5, 0.1, 0.0], 10).sum()
    assert core.mixed_probability([0.5, 0.1, 0.0], divided).sum() > uniform


def test_a_large_budget_is_divided_quickly_and_well():
    success = np.random.default_rng(0).beta(0.5, 0.5, 500)
    divided = core.greedy_contrast(success, 4000)
    assert divided.sum() == 4000
    assert core.mixed_probability(success, divided).sum() > core.mixed_probability(success, 8).sum() + 10


def test_two_stages_share_one_budget():
    tree = core.root_then_prefix([0.5, 0.0], [[0.5, 0.1], [0.5]], 20, root_share=0.4)
    assert tree.roots.tolist() == [8, 0]
    # Only a root that got episodes is continued.
    assert tree.prefixes[0].tolist() == core.greedy_contrast([0.5, 0.1], 12).tolist()
    assert tree.prefixes[1].tolist() == [0]


def test_what_prefixes_cannot_use_goes_to_the_roots():
    for root_share, prefixes in ((1.0, [[0.5], [0.5]]), (0.3, [[], []]), (0.9, [[0.5], [0.5]])):
        tree = core.root_then_prefix([0.5, 0.5], prefixes, 10, root_share)
        assert tree.roots.tolist() == core.greedy_contrast([0.5, 0.5], 10).tolist()
        assert [part.sum() for part in tree.prefixes] == [0, 0]


@EXAMPLES
@given(
    tree=st.lists(st.tuples(SUCCESS, st.lists(SUCCESS, max_size=3)), min_size=1, max_size=4),
    budget=st.integers(2, 40),
    root_share=st.floats(0, 1),
)
def test_both_stages_sum_to_the_budget(tree, budget, root_share):
    success, prefixes = [p for p, _ in tree], [below for _, below in tree]
    divided = core.root_then_prefix(success, prefixes, budget, root_share)
    assert divided.roots.sum() + sum(part.sum() for part in divided.prefixes) == budget
    assert [part.size for part in divided.prefixes] == [len(below) for below in prefixes]
    for part in (divided.roots, *divided.prefixes):
        assert not (part == 1).any()


def test_misuse_is_told():
    with pytest.raises(ValueError, match="least=1 must be at least 2"):
        core.greedy_contrast([0.5], 4, least=1)
    with pytest.raises(ValueError, match="give anchors that have not been seen a prior"):
        core.greedy_contrast([np.nan], 4)
    with pytest.raises(ValueError, match="cannot be divided among 1 anchors in groups of 2 to 3"):
        core.greedy_contrast([0.5], 4, most=3)
    with pytest.raises(ValueError, match="There are 2 roots, but prefixes of 1"):
        core.root_then_prefix([0.5, 0.5], [[0.5]], 8, 0.5)
    with pytest.raises(ValueError, match=r"root_share must be in \[0, 1\], got -1"):
        core.root_then_prefix([0.5], [[0.5]], 8, -1)


def tree_of(episodes, continuations):
    """
    Leaves of a tree: of every episode its own end, and the ends of its continuations.

    :return: episode and outcome of each leaf
    """
    leaves = [(number, outcome) for number, (_, own) in enumerate(episodes) for outcome in (own, *continuations[number])]
    return [episode for episode, _ in leaves], np.array([outcome for _, outcome in leaves], dtype=float)


def test_leaves_averaged_over_their_episode_and_their_root_keep_the_objective():
    """
    Two roots with prefixes left and right, which the policy comes to with a chance, and which succeed with another. Every tree
    that a fixed allocation can grow is enumerated with its probability. Prefixes are continued by their contrast.
    """
    rho = np.array([0.75, 0.25])
    left, success = [0.5, 0.2], [[0.9, 0.3], [0.5, 0.0]]
    shares = core.root_then_prefix([0.6, 0.1], success, budget=8, root_share=0.5)
    extra = [part // 2 for part in shares.prefixes]  # of each episode there, so that no outcome decides a number
    objective = sum(rho[r] * (left[r] * success[r][0] + (1 - left[r]) * success[r][1]) for r in range(2))
    roots = [0, 0, 1]
    expected, plain = 0.0, 0.0
    for prefixes in product((0, 1), repeat=len(roots)):
        chance_of_prefixes = np.prod([left[r] if p == 0 else 1 - left[r] for r, p in zip(roots, prefixes, strict=True)])
        sizes = [1 + int(extra[r][p]) for r, p in zip(roots, prefixes, strict=True)]
        for outcomes in product((0.0, 1.0), repeat=sum(sizes)):
            ends = np.split(np.array(outcomes), np.cumsum(sizes)[:-1])
            p_success = [success[r][p] for r, p in zip(roots, prefixes, strict=True)]
            chance = chance_of_prefixes * np.prod(
                [q if end else 1 - q for q, own in zip(p_success, ends, strict=True) for end in own]
            )
            leaves, outcome = tree_of([(r, own[0]) for r, own in zip(roots, ends, strict=True)], [own[1:] for own in ends])
            weights = anchor_weights(leaves, anchor_weights(roots, rho))
            expected += chance * np.mean(weights * outcome)
            plain += chance * outcome.mean()
    assert max(part.max() for part in extra) > 0
    assert expected == pytest.approx(objective, abs=1e-12)
    # Counting every leaf alike would train on another objective.
    assert abs(plain - objective) > 0.02
