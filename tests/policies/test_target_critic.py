"""A critic that follows slowly."""

import copy

import pytest
import torch as th
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.policies import ActorCriticPolicy

from sb3_budget.policies.ensemble_actor_critic import EnsembleActorCriticPolicy
from sb3_budget.policies.target_critic import TargetCritic

PPO_KWARGS = dict(n_steps=32, batch_size=32, n_epochs=2, seed=3, device="cpu")


def make_policy(policy_class=ActorCriticPolicy, **kwargs) -> ActorCriticPolicy:
    return policy_class(spaces.Box(-1.0, 1.0, (4,)), spaces.Discrete(2), lambda _: 1e-3, **kwargs)


def shift(policy, by: float) -> None:
    with th.no_grad():
        for parameter in policy.parameters():
            parameter.add_(by)


def test_starts_as_the_policy_and_does_not_move_with_it():
    policy = make_policy()
    target = TargetCritic(policy)
    obs = th.randn(5, 4)
    values = policy.predict_values(obs).detach()
    assert th.equal(target.predict_values(obs), values)
    shift(policy, 1.0)
    assert th.equal(target.predict_values(obs), values)
    assert not th.equal(policy.predict_values(obs), values)


@pytest.mark.parametrize("n_updates", [1, 7])
def test_update_closes_the_polyak_share_of_the_distance(n_updates):
    policy = make_policy()
    target = TargetCritic(policy, tau=0.1)
    before = [parameter.clone() for parameter in target.target.parameters()]
    shift(policy, 1.0)
    target.update(n_updates)
    for old, new in zip(before, target.target.parameters(), strict=True):
        assert th.allclose(new - old, th.full_like(old, 1.0 - 0.9**n_updates), atol=1e-5)


def test_many_updates_at_once_equal_as_many_single_ones():
    policy = make_policy()
    single, joint = TargetCritic(policy, tau=0.1), TargetCritic(policy, tau=0.1)
    shift(policy, 1.0)
    for _ in range(4):
        single.update()
    joint.update(4)
    for a, b in zip(single.target.parameters(), joint.target.parameters(), strict=True):
        assert th.allclose(a, b, atol=1e-6)


def test_no_update_changes_nothing_and_a_tau_of_one_copies():
    policy = make_policy()
    target = TargetCritic(policy, tau=1.0)
    obs = th.randn(5, 4)
    values = target.predict_values(obs)
    shift(policy, 1.0)
    target.update(0)
    assert th.equal(target.predict_values(obs), values)
    target.update()
    assert th.equal(target.predict_values(obs), policy.predict_values(obs))


def test_values_carry_no_graph_and_the_policy_keeps_its_gradients():
    policy = make_policy()
    target = TargetCritic(policy)
    assert not target.predict_values(th.randn(5, 4)).requires_grad
    assert all(parameter.requires_grad for parameter in policy.parameters())
    assert policy.optimizer is not None and policy.action_dist is not None


def test_a_policy_that_was_trained_with_state_dependent_exploration_can_be_followed():
    model = PPO("MlpPolicy", "Pendulum-v1", use_sde=True, **PPO_KWARGS).learn(64)
    target = TargetCritic(model.policy)
    model.learn(64)
    target.update(model.n_epochs)


def test_follows_the_mean_of_an_ensemble():
    policy = make_policy(EnsembleActorCriticPolicy)
    policy.set_training_mode(True)
    target = TargetCritic(policy)
    obs = th.randn(5, 4)
    assert th.allclose(target.predict_values(obs).flatten(), policy.predict_value_heads(obs).mean(dim=0))
    assert policy.training


def test_building_one_draws_no_random_number():
    policy = make_policy()
    state = th.random.get_rng_state()
    TargetCritic(policy)
    assert th.equal(th.random.get_rng_state(), state)


def test_statistics_of_batch_normalisation_are_copied():
    policy = make_policy()
    policy.value_net = th.nn.Sequential(th.nn.BatchNorm1d(64), policy.value_net)
    target = TargetCritic(policy)
    policy.set_training_mode(True)
    policy.predict_values(th.randn(16, 4))
    target.update()
    for ours, theirs in zip(target.target.buffers(), policy.buffers(), strict=True):
        assert th.equal(ours, theirs)


def test_state_can_be_saved_and_loaded():
    policy = make_policy()
    target = TargetCritic(policy)
    shift(policy, 1.0)
    state = copy.deepcopy(target.state_dict())
    other = TargetCritic(policy)
    other.load_state_dict(state)
    obs = th.randn(5, 4)
    assert th.equal(other.predict_values(obs), target.predict_values(obs))


@pytest.mark.parametrize("tau", [0.0, -0.1, 1.5, float("nan")])
def test_a_tau_out_of_range_is_refused(tau):
    with pytest.raises(ValueError, match=r"tau=.* must lie in \(0, 1\]"):
        TargetCritic(make_policy(), tau)


def test_a_negative_number_of_updates_is_refused():
    with pytest.raises(ValueError, match="n_updates=-1"):
        TargetCritic(make_policy()).update(-1)


def test_recurrent_policies_are_refused():
    pytest.importorskip("sb3_contrib")
    from sb3_contrib.common.recurrent.policies import RecurrentActorCriticPolicy

    with pytest.raises(ValueError, match="hidden states"):
        TargetCritic(make_policy(RecurrentActorCriticPolicy))
