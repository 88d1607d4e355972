"""The critic learns the values of the present policy from single transitions, and the actor stays as it is."""

from __future__ import annotations

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from stable_baselines3.common.policies import ActorCriticCnnPolicy, ActorCriticPolicy

from sb3_budget.policies.critic_regression import CriticRegression, Transitions
from sb3_budget.policies.ensemble_actor_critic import EnsembleActorCriticPolicy

STATES, ACTIONS = spaces.Discrete(3), spaces.Discrete(2)


def policy_of(policy_class=ActorCriticPolicy, observations=STATES, **kwargs):
    th.manual_seed(0)
    return policy_class(observations, ACTIONS, lambda _: 0.01, **kwargs)


def table():
    """
    All pairs of three states and two actions. State 0 goes on to 1 with action 0, and ends with action 1; state 1 goes back to
    0 or ends; state 2 ends.
    """
    return Transitions(
        th.tensor([0, 0, 1, 1, 2, 2]),
        th.tensor([0, 1, 0, 1, 0, 1]),
        th.tensor([1.0, 5.0, -1.0, 2.0, 3.0, 7.0]),
        th.tensor([0.0, 1.0, 0.0, 1.0, 1.0, 1.0]),
        th.tensor([1, 2, 0, 2, 2, 2]),
    )


def probabilities(policy):
    with th.no_grad():
        return policy.get_distribution(th.arange(3)).distribution.probs.double().numpy()


def lean(policy):
    """Make action 1 rare, so that it matters how rows weigh."""
    with th.no_grad():
        policy.action_net.bias[:] = th.tensor([1.5, -1.5])
    return policy


def solved(chances, gamma):
    moves, rewards = np.zeros((3, 3)), np.zeros(3)
    batch = table()
    for state, action, reward, done, following in zip(*(column.tolist() for column in batch), strict=True):
        rewards[state] += chances[state, action] * reward
        moves[state, following] += chances[state, action] * (1 - done)
    return np.linalg.solve(np.eye(3) - gamma * moves, rewards)


def values(policy):
    with th.no_grad():
        return policy.predict_values(th.arange(3)).flatten().numpy()


@pytest.mark.parametrize("tau", [1.0, 0.1])
@pytest.mark.parametrize("by_policy", [True, False])
def test_values_become_those_of_the_policy_or_of_one_that_takes_all_actions_alike(by_policy, tau):
    policy = lean(policy_of())
    regression = CriticRegression(policy, 0.9, tau, by_policy)
    for step in range(1_500):
        regression.step(table(), 0.01 if step < 1_000 else 0.001)
    wanted = solved(probabilities(policy) if by_policy else np.full((3, 2), 0.5), 0.9)
    other = solved(np.full((3, 2), 0.5) if by_policy else probabilities(policy), 0.9)
    assert values(policy) == pytest.approx(wanted, abs=0.05)
    assert np.abs(wanted - other).max() > 1.0


def test_errors_and_weights_by_hand():
    policy = lean(policy_of())
    regression = CriticRegression(policy, 0.5)
    value, batch = values(policy), table()
    expected = [1 + 0.5 * value[1] - value[0], 5 - value[0], -1 + 0.5 * value[0] - value[1], 2 - value[1]]
    assert regression.errors(batch)[:4].tolist() == pytest.approx(expected, abs=1e-5)
    weights = regression.weights(batch).double().numpy()
    assert weights / weights.sum() == pytest.approx(probabilities(policy).ravel() / 3, abs=1e-6)
    assert CriticRegression(policy, 0.5, by_policy=False).weights(batch).tolist() == [1.0] * 6


@pytest.mark.parametrize("policy_class", [ActorCriticPolicy, EnsembleActorCriticPolicy])
def test_only_the_critic_moves_and_gradients_are_left_nowhere(policy_class):
    policy = policy_of(policy_class)
    before = {name: parameter.detach().clone() for name, parameter in policy.named_parameters()}
    CriticRegression(policy, 0.9, max_grad_norm=0.5).step(table(), 0.1)
    moved = {name for name, parameter in policy.named_parameters() if not th.equal(parameter, before[name])}
    assert moved and all("value_net" in name for name in moved)
    assert all(parameter.grad is None for parameter in policy.parameters())
    assert not policy.value_net.training and not policy.optimizer.state


def test_a_shared_features_extractor_is_not_trained():
    image = spaces.Box(0, 255, (1, 36, 36), np.uint8)
    policy = policy_of(ActorCriticCnnPolicy, image)
    observations = th.randint(0, 255, (4, 1, 36, 36), dtype=th.uint8)
    batch = Transitions(observations, th.zeros(4), th.ones(4), th.zeros(4), observations)
    before = [parameter.detach().clone() for parameter in policy.features_extractor.parameters()]
    with th.no_grad():
        first = policy.get_distribution(observations).distribution.logits.clone()
        old_values = policy.predict_values(observations)
    CriticRegression(policy, 0.9).step(batch, 0.1)
    with th.no_grad():
        assert th.equal(policy.get_distribution(observations).distribution.logits, first)
        assert not th.equal(policy.predict_values(observations), old_values)
    pairs = zip(before, policy.features_extractor.parameters(), strict=True)
    assert len(before) > 2 and all(th.equal(one, other) for one, other in pairs)


def test_the_state_goes_on_where_it_was():
    def run(n, state=None):
        regression = CriticRegression(policy, 0.9, tau=0.5)
        if state is not None:
            regression.load_state_dict(state)
        for _ in range(n):
            regression.step(table(), 0.01)
        return regression.state_dict()

    policy = policy_of()
    run(4)
    whole = values(policy)
    policy = policy_of()
    run(2, run(2))
    assert (values(policy) == whole).all()
    policy = policy_of()
    run(2)
    run(2)
    assert (values(policy) != whole).any()


def test_what_has_no_critic_of_its_own_is_refused():
    policy = policy_of()
    for parameter in [*policy.value_net.parameters(), *policy.mlp_extractor.value_net.parameters()]:
        parameter.requires_grad_(False)
    with pytest.raises(ValueError, match="no parameters that belong to the critic alone"):
        CriticRegression(policy, 0.9)
    contrib = pytest.importorskip("sb3_contrib.common.recurrent.policies")
    with pytest.raises(ValueError, match="hidden states"):
        CriticRegression(policy_of(contrib.RecurrentActorCriticPolicy), 0.9)
