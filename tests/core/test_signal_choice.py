"""The bandit follows its closed form and finds the better arm."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sb3_budget.core.signal_choice import Exp3

EXAMPLES = settings(max_examples=50, deadline=None, derandomize=True)
#: A statistical test fails by chance with at most this probability, and its seed is fixed.
ALPHA = 1e-4


def test_the_update_is_that_of_the_paper():
    bandit = Exp3(["a", "b"], exploration=0.2)
    np.testing.assert_allclose(bandit.probabilities, [0.5, 0.5])
    bandit.update("a", 0.75)
    # The estimated reward is 0.75 / 0.5, and w = exp(gamma * estimate / K).
    weight = np.exp(0.2 * 1.5 / 2)
    p = 0.8 * weight / (weight + 1) + 0.1
    np.testing.assert_allclose(bandit.probabilities, [p, 1 - p])
    bandit.update("b", 1.0)
    other = np.exp(0.2 / (1 - p) / 2)
    np.testing.assert_allclose(bandit.probabilities[1], 0.8 * other / (weight + other) + 0.1)


@EXAMPLES
@given(
    n=st.integers(1, 5),
    exploration=st.floats(0.01, 1.0),
    rewards=st.lists(st.tuples(st.integers(0, 4), st.floats(0, 1)), max_size=50),
)
def test_every_signal_keeps_its_even_share(n, exploration, rewards):
    bandit = Exp3([str(i) for i in range(n)], exploration)
    for arm, reward in rewards:
        bandit.update(str(arm % n), reward)
    assert bandit.probabilities.sum() == pytest.approx(1.0)
    assert bandit.probabilities.min() >= exploration / n - 1e-12


def test_weights_do_not_overflow():
    bandit = Exp3(["a", "b"], exploration=1.0)
    for _ in range(2000):
        bandit.update("a", 1.0)
    assert np.isfinite(bandit.probabilities).all()


def test_the_better_arm_is_found():
    """
    Rewards of 1 with probability 0.8 and 0.2. Exp3's expected regret is at most (e - 1) gamma T + K ln(K) / gamma; what chance
    takes off a run beyond that is allowed for by Azuma's bound at ALPHA, sqrt(T ln(1 / ALPHA) / 2).
    """
    n_draws, bandit, rng = 5000, Exp3(["poor", "good"], exploration=0.05, seed=3), np.random.default_rng(4)
    earned = 0.0
    for _ in range(n_draws):
        name = bandit.draw()
        reward = float(rng.random() < (0.8 if name == "good" else 0.2))
        bandit.update(name, reward)
        earned += reward
    regret = (np.e - 1) * 0.05 * n_draws + 2 * np.log(2) / 0.05
    assert earned >= 0.8 * n_draws - regret - np.sqrt(n_draws * np.log(1 / ALPHA) / 2)
    assert bandit.probabilities[1] > 0.95


def test_draws_are_those_of_the_seed():
    def draws(seed):
        bandit = Exp3(["a", "b", "c"], seed=seed)
        return [bandit.draw() for _ in range(30)]

    assert draws(0) == draws(0) != draws(1)


def test_misuse_of_the_bandit_is_told():
    with pytest.raises(ValueError, match=r"names must be different, and at least one, got \['a', 'a'\]"):
        Exp3(["a", "a"])
    with pytest.raises(ValueError, match=r"exploration=0\.0 must lie in"):
        Exp3(["a"], exploration=0.0)
    with pytest.raises(ValueError, match=r"reward=1\.5 must lie in \[0, 1\]: scale it first"):
        Exp3(["a"]).update("a", 1.5)
