"""Which rewards are dense."""

from __future__ import annotations

import numpy as np

from sb3_budget.core.reward_density import RewardDensity


def share(rewards, dones=None):
    density = RewardDensity(1)
    for step, reward in enumerate(rewards):
        density.add([reward], [dones is not None and dones[step]])
    return density.share


def test_constant_costs_and_rare_rewards_are_not_dense_and_varying_ones_are():
    assert share([-1.0] * 50) == 0.0
    assert share([0.0] * 49 + [1.0]) == 1 / 49
    assert share(np.arange(50.0)) == 1.0
    assert np.isnan(share([]))


def test_steps_of_different_episodes_are_not_compared():
    assert share([0.0, 1.0, 0.0, 1.0], dones=[True, True, True, True]) != 1.0
    assert share([0.0, 0.0, 1.0, 1.0], dones=[False, True, False, False]) == 0.0
