"""The actor follows PPO's clipped objective, and the critic stays as it is."""

from __future__ import annotations

import pytest
import torch as th
from gymnasium import spaces
from stable_baselines3.common.policies import ActorCriticPolicy

from sb3_budget.policies.policy_regression import PolicyRegression

OBSERVATIONS, ACTIONS = th.tensor([0, 0, 1, 1]), th.tensor([[0], [1], [0], [1]])


def make(**kwargs):
    th.manual_seed(0)
    policy = ActorCriticPolicy(spaces.Discrete(2), spaces.Discrete(2), lambda _: 0.01)
    return policy, PolicyRegression(policy, 0.2, **kwargs)


def log_probs(policy):
    with th.no_grad():
        return policy.evaluate_actions(OBSERVATIONS, ACTIONS.flatten())[1]


def test_what_was_better_becomes_likelier_and_values_stay():
    policy, regression = make()
    before, value = log_probs(policy), policy.predict_values(OBSERVATIONS)
    ratios = regression.step(OBSERVATIONS, ACTIONS, before, th.tensor([1.0, 0.0, 0.0, 1.0]), 0.01)
    assert ratios.tolist() == pytest.approx([1.0] * 4)
    assert ((log_probs(policy) - before) > 0).tolist() == [True, False, False, True]
    assert th.equal(policy.predict_values(OBSERVATIONS), value)
    assert all(parameter.grad is None for parameter in policy.parameters())


def test_a_ratio_that_is_clipped_moves_nothing():
    policy, regression = make()
    before = log_probs(policy)
    # The present policy is 1.5 times as likely to do what was good, and half as likely to do what was bad.
    old = before - th.log(th.tensor([1.5, 0.5, 0.5, 1.5]))
    ratios = regression.step(OBSERVATIONS, ACTIONS, old, th.tensor([1.0, 0.0, 0.0, 1.0]), 0.01)
    assert ratios.tolist() == pytest.approx([1.5, 0.5, 0.5, 1.5])
    assert th.equal(log_probs(policy), before)


def test_frozen_layers_stay_and_the_others_learn():
    policy, _ = make()
    frozen = policy.mlp_extractor.policy_net
    frozen.requires_grad_(False)
    kept, before = [parameter.clone() for parameter in frozen.parameters()], log_probs(policy)
    PolicyRegression(policy, 0.2).step(OBSERVATIONS, ACTIONS, before, th.tensor([1.0, 0.0, 0.0, 1.0]), 0.01)
    assert ((log_probs(policy) - before) > 0).tolist() == [True, False, False, True]
    assert all(th.equal(one, other) for one, other in zip(frozen.parameters(), kept, strict=True))
    policy.requires_grad_(False)
    with pytest.raises(ValueError, match="all of them are frozen"):
        PolicyRegression(policy, 0.2)


def test_gradients_are_no_longer_than_asked():
    policy, regression = make(max_grad_norm=1e-9)
    seen = []
    regression._optimizer._optimizer.register_step_pre_hook(
        lambda *_: seen.append(th.cat([p.grad.flatten() for p in policy.parameters() if p.grad is not None]).norm().item())
    )
    regression.step(OBSERVATIONS, ACTIONS, log_probs(policy), th.tensor([1.0, 0.0, 0.0, 1.0]), 0.01)
    assert 0.0 < seen[0] <= 1.01e-9


def test_the_state_holds_the_moments():
    policy, regression = make()
    regression.step(OBSERVATIONS, ACTIONS, log_probs(policy), th.tensor([1.0, 0.0, 0.0, 1.0]), 0.01)
    other = PolicyRegression(policy, 0.2)
    other.load_state_dict(regression.state_dict())
    moments = [state["exp_avg"] for state in other._optimizer._optimizer.state.values()]
    assert moments and any(moment.abs().sum() > 0 for moment in moments)
