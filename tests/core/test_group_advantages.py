"""Advantages of finished groups, by hand and by property."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sb3_budget.core import group_advantages as core
from sb3_budget.core.groups import leave_one_out

EXAMPLES = settings(max_examples=50, deadline=None, derandomize=True)
SEEDS = st.integers(0, 2**32 - 1)


def test_outcomes_by_hand():
    np.testing.assert_allclose(core.outcome_advantages([[1.0, 3.0], [0.1, 0.1]]), [[-1.0, 1.0], [0.0, 0.0]])


def test_equal_outcomes_are_exactly_zero_whatever_their_mean_rounds_to():
    assert (core.outcome_advantages(np.full((1, 3), 0.1)) == 0.0).all()


def test_returns_to_go_by_hand():
    np.testing.assert_allclose(core.returns_to_go([1.0, 2.0, 4.0], 0.5), [3.0, 4.0, 4.0])


def test_a_member_that_has_ended_counts_zero():
    # Three members of lengths 1, 2 and 2.
    rewards = np.array([[[3.0, 0.0], [1.0, 5.0], [0.0, 2.0]]])
    found = core.return_to_go_advantages(rewards, 1.0)
    np.testing.assert_allclose(found[0, :, 0], [3 - (6 + 2) / 2, 6 - (3 + 2) / 2, 2 - (3 + 6) / 2])
    np.testing.assert_allclose(found[0, 1:, 1], [5 - (0 + 2) / 2, 2 - (0 + 5) / 2])


@EXAMPLES
@given(SEEDS, st.integers(2, 5), st.floats(0.0, 1.0), st.floats(-50.0, 50.0))
def test_ones_own_rewards_do_not_enter_what_they_are_compared_with(seed, group_size, gamma, other):
    rewards = np.random.default_rng(seed).normal(size=(2, group_size, 4))
    changed = rewards.copy()
    changed[1, 0] += other
    baseline = core.returns_to_go(rewards, gamma) - core.return_to_go_advantages(rewards, gamma)
    after = core.returns_to_go(changed, gamma) - core.return_to_go_advantages(changed, gamma)
    np.testing.assert_allclose(after[1, 0], baseline[1, 0], atol=1e-9)


@EXAMPLES
@given(SEEDS, st.floats(-50.0, 50.0))
def test_what_all_members_share_is_taken_off(seed, offset):
    rewards = np.random.default_rng(seed).normal(size=(1, 3, 5))
    for advantages in (core.return_to_go_advantages, lambda given, _: core.outcome_advantages(given.sum(axis=2))):
        np.testing.assert_allclose(advantages(rewards + offset, 0.9), advantages(rewards, 0.9), atol=1e-8)


@EXAMPLES
@given(SEEDS, st.sampled_from(["group", "batch", "none"]))
def test_scaling_keeps_signs_and_zeros(seed, scale):
    rng = np.random.default_rng(seed)
    advantages, group = rng.normal(size=20) * rng.integers(0, 2, 20), rng.integers(0, 4, 20)
    scaled = core.scaled(advantages, group, scale, 1e-3)
    np.testing.assert_array_equal(np.sign(scaled), np.sign(advantages))
    assert np.isfinite(scaled).all()


def test_scales_by_hand():
    advantages, group = np.array([-1.0, 1.0, -3.0, 3.0]), [0, 0, 1, 1]
    np.testing.assert_allclose(core.scaled(advantages, group, "group", 0.1), [-1, 1, -1, 1])
    np.testing.assert_allclose(core.scaled(advantages, group, "batch", 0.1), advantages / np.sqrt(5.0))
    np.testing.assert_array_equal(core.scaled(advantages, group, "none", 0.1), advantages)


def test_a_group_of_tiny_differences_is_not_blown_up():
    scaled = core.scaled([-1e-9, 1e-9, -1.0, 1.0], [0, 0, 1, 1], "group", 0.1)
    assert np.abs(scaled[:2]).max() == pytest.approx(1e-8)
    assert (core.scaled(np.zeros(4), [0, 0, 1, 1], "group", 0.0) == 0.0).all()
    assert (core.scaled(np.zeros(4), [0, 0, 1, 1], "batch", 0.0) == 0.0).all()


def test_entropy_gives_direction_where_returns_give_none():
    found = core.shaped_by_entropy([0.5, 1.0, 0.2, 0.6], [0, 0, 1, 1], [True, True, False, False], alpha=2.0)
    np.testing.assert_allclose(found, [1.0, 2.0, -0.8, 0.0])
    assert core.shaped_by_entropy([], [], [], 1.0).shape == (0,)


def test_aggregations_are_weights_of_the_mean_over_rows():
    objective, episode = np.array([1.0, 2.0, 3.0, 10.0]), np.array([0, 0, 0, 1])
    assert (objective * core.aggregation_factors(episode, "step", 8)).mean() == pytest.approx(4.0)
    assert (objective * core.aggregation_factors(episode, "episode", 8)).mean() == pytest.approx((2.0 + 10.0) / 2)
    assert (objective * core.aggregation_factors(episode, "constant", 8)).mean() == pytest.approx(16.0 / 8)


@EXAMPLES
@given(SEEDS)
def test_aggregation_by_episode_weighs_all_episodes_alike(seed):
    episode = np.random.default_rng(seed).integers(0, 5, 30)
    factors = core.aggregation_factors(episode, "episode", 30)
    sums = np.bincount(episode, weights=factors)
    np.testing.assert_allclose(sums[sums > 0], 30 / np.count_nonzero(sums))


class TwoSteps:
    """Two steps, two actions, and a policy of one logit, so that all trajectories can be enumerated."""

    logit, gamma = 0.3, 0.9
    paths: ClassVar = [(a, b) for a in (0, 1) for b in (0, 1)]

    def rewards(self, path):
        first, second = path
        return [[1.0, -2.0][first], [[0.5, 3.0], [2.0, -1.0]][first][second]]

    def probability(self, action, at):
        p = 1.0 / (1.0 + np.exp(-at))
        return p if action == 1 else 1.0 - p

    def score(self, action):
        return 1.0 - self.probability(1, self.logit) if action == 1 else -self.probability(1, self.logit)

    def derivative(self, gamma):
        """Of the expected return."""

        def value(at):
            chances = {path: self.probability(path[0], at) * self.probability(path[1], at) for path in self.paths}
            return sum(chances[path] * np.dot(self.rewards(path), [1.0, gamma]) for path in self.paths)

        return (value(self.logit + 1e-5) - value(self.logit - 1e-5)) / 2e-5

    def expectation(self, gradient):
        """Of ``gradient(own path, peer's path)`` for two independent members."""
        return sum(
            np.prod([self.probability(action, self.logit) for action in (*own, *peer)]) * gradient(own, peer)
            for own in self.paths
            for peer in self.paths
        )


def test_the_gradient_of_return_to_go_is_unbiased():
    mdp = TwoSteps()

    def gradient(own, peer):
        advantages = core.return_to_go_advantages([[mdp.rewards(own), mdp.rewards(peer)]], mdp.gamma)[0, 0]
        return sum(mdp.gamma**step * mdp.score(own[step]) * advantages[step] for step in (0, 1))

    assert mdp.expectation(gradient) == pytest.approx(mdp.derivative(mdp.gamma), rel=1e-6)


def test_the_gradient_of_outcomes_is_short_by_ones_own_share_of_the_mean():
    """The own return is in the mean: (K - 1) / K of the derivative, and so in the same direction."""
    mdp = TwoSteps()

    def gradient(own, peer):
        advantage = core.outcome_advantages([[sum(mdp.rewards(own)), sum(mdp.rewards(peer))]])[0, 0]
        return advantage * sum(mdp.score(action) for action in own)

    assert mdp.expectation(gradient) == pytest.approx(0.5 * mdp.derivative(1.0), rel=1e-6)


@pytest.mark.parametrize("coefficient", [0.0, 0.4, 1.0])
def test_the_gradient_of_residuals_is_unbiased_for_any_coefficient(coefficient):
    mdp, members, steps = TwoSteps(), np.array([[0, 0], [0, 0]]), np.array([[0, 1], [0, 1]])

    def gradient(own, peer):
        to_go = core.returns_to_go([mdp.rewards(own), mdp.rewards(peer)], mdp.gamma)
        peers = leave_one_out(to_go, members, members, steps).means
        advantages = (to_go - coefficient * peers)[0]
        return sum(mdp.gamma**step * mdp.score(own[step]) * advantages[step] for step in (0, 1))

    assert mdp.expectation(gradient) == pytest.approx(mdp.derivative(mdp.gamma), rel=1e-6)


def test_misuse_is_refused():
    with pytest.raises(ValueError, match="expected 2 dimensions"):
        core.outcome_advantages([1.0])
