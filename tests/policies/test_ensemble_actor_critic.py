"""Several critics on unmodified algorithms."""

import copy

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from stable_baselines3 import A2C, PPO

from sb3_budget.policies.ensemble_actor_critic import (
    CriticEnsemble,
    EnsembleActorCriticCnnPolicy,
    EnsembleActorCriticPolicy,
    EnsembleMultiInputActorCriticPolicy,
)

CARTPOLE = spaces.Box(-1.0, 1.0, (4,), np.float32)
PPO_KWARGS = dict(n_steps=32, batch_size=32, n_epochs=2, seed=3, device="cpu")


class RandomObs(gym.Env):
    """Episodes of ten random observations."""

    def __init__(self, observation_space: spaces.Space):
        self.observation_space = observation_space
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.left = 10
        return self.observation_space.sample(), {}

    def step(self, action):
        self.left -= 1
        return self.observation_space.sample(), float(action), self.left == 0, False, {}


def make_policy(**kwargs) -> EnsembleActorCriticPolicy:
    th.manual_seed(0)
    return EnsembleActorCriticPolicy(CARTPOLE, spaces.Discrete(2), lambda _: 1e-3, **kwargs)


def ensemble_of(policy) -> CriticEnsemble:
    assert isinstance(policy.value_net, CriticEnsemble)
    return policy.value_net


def assert_same_parameters(first, second):
    for a, b in zip(first.policy.parameters(), second.policy.parameters(), strict=True):
        assert th.equal(a, b)


def touched(critic) -> bool:
    return any(parameter.grad is not None and parameter.grad.any() for parameter in critic.parameters())


def test_one_critic_is_stock_ppo_bit_for_bit():
    stock = PPO("MlpPolicy", "CartPole-v1", **PPO_KWARGS).learn(128)
    ours = PPO(EnsembleActorCriticPolicy, "CartPole-v1", policy_kwargs=dict(n_critics=1), **PPO_KWARGS).learn(128)
    assert_same_parameters(stock, ours)
    assert ours.policy.last_value_heads.shape == (1, 1)


def test_actor_and_first_critic_start_as_stock_does():
    th.manual_seed(7)
    stock = PPO("MlpPolicy", "CartPole-v1", **PPO_KWARGS).policy
    ours = PPO(EnsembleActorCriticPolicy, "CartPole-v1", **PPO_KWARGS).policy
    obs = th.randn(6, 4)
    actions = th.zeros(6)
    assert th.equal(stock.evaluate_actions(obs, actions)[1], ours.evaluate_actions(obs, actions)[1])
    assert th.allclose(stock.predict_values(obs).flatten(), ours.predict_value_heads(obs)[0])


def test_value_is_the_mean_over_heads_that_differ():
    policy = make_policy(n_critics=4)
    policy.set_training_mode(False)
    obs = th.randn(6, 4)
    values = policy(obs)[1]
    heads = policy.last_value_heads
    assert heads.shape == (4, 6) and values.shape == (6, 1)
    assert th.allclose(heads.mean(dim=0), values.flatten())
    assert th.equal(heads, policy.predict_value_heads(obs))
    assert (heads.std(dim=0) > 0).all()


def test_other_values_leave_the_heads_of_the_rollout_step_alone():
    policy = make_policy()
    policy.set_training_mode(False)
    policy(th.randn(6, 4))
    heads = policy.last_value_heads.clone()
    policy.predict_values(th.randn(1, 4))
    assert th.equal(policy.last_value_heads, heads)


def test_a_minibatch_dealt_to_one_critic_has_a_gradient_there_only():
    policy = make_policy(n_critics=3, deal="minibatches")
    policy.set_training_mode(True)
    seen = set()
    for _ in range(20):
        policy.optimizer.zero_grad()
        values, _, _ = policy.evaluate_actions(th.randn(8, 4), th.zeros(8))
        values.sum().backward()
        with_gradient = [head for head, critic in enumerate(ensemble_of(policy).critics) if touched(critic)]
        assert len(with_gradient) == 1
        seen.update(with_gradient)
    assert seen == {0, 1, 2}


def test_rows_are_dealt_to_critics_and_keep_their_place():
    policy = make_policy(n_critics=3)
    obs = th.randn(64, 4)
    policy.set_training_mode(True)
    values = policy.predict_values(obs).flatten()
    heads = policy.predict_value_heads(obs)
    owners = th.isclose(heads, values[None], atol=1e-6).float()
    assert (owners.sum(dim=0) >= 1).all()
    assert (owners.sum(dim=1) > 5).all()


def test_each_row_trains_its_own_critic_only():
    policy = make_policy(n_critics=3)
    policy.set_training_mode(True)
    policy.predict_values(th.randn(1, 4)).sum().backward()
    assert sum(touched(critic) for critic in ensemble_of(policy).critics) == 1


def test_no_gradient_means_the_mean_even_in_training_mode():
    policy = make_policy()
    policy.set_training_mode(True)
    obs = th.randn(5, 4)
    with th.no_grad():
        assert th.equal(policy.predict_values(obs), policy.predict_values(obs))


def test_critics_share_no_layer():
    critics = ensemble_of(make_policy(n_critics=3)).critics
    pointers = [parameter.data_ptr() for critic in critics for parameter in critic.parameters()]
    assert len(pointers) == len(set(pointers)) == 18


def test_priors_add_to_the_value_and_are_not_trained():
    model = PPO(EnsembleActorCriticPolicy, "CartPole-v1", policy_kwargs=dict(n_critics=2, prior_scale=2.0), **PPO_KWARGS)
    priors = copy.deepcopy(ensemble_of(model.policy).priors)
    model.learn(64)
    ensemble = ensemble_of(model.policy)
    for before, after in zip(priors.parameters(), ensemble.priors.parameters(), strict=True):
        assert th.equal(before, after)
    obs = th.randn(3, 4)
    expected = ensemble.critics[1](obs) + 2.0 * ensemble.priors[1](obs)
    assert th.allclose(model.policy.predict_value_heads(obs)[1], expected.flatten())


@pytest.mark.parametrize("deal", ["rows", "minibatches"])
def test_same_seed_gives_the_same_parameters(deal):
    kwargs = dict(policy_kwargs=dict(deal=deal), **PPO_KWARGS)
    first, second = (PPO(EnsembleActorCriticPolicy, "CartPole-v1", **kwargs).learn(96) for _ in range(2))
    assert_same_parameters(first, second)


def test_every_critic_learns_from_its_rows():
    policy = make_policy(n_critics=5)
    policy.set_training_mode(True)
    generator = th.Generator().manual_seed(1)
    obs = th.randn(128, 4, generator=generator)
    targets = obs[:, :1] * obs[:, 1:2]
    for group in policy.optimizer.param_groups:
        group["lr"] = 1e-2
    for _ in range(100):
        policy.optimizer.zero_grad()
        (policy.predict_values(obs) - targets).pow(2).mean().backward()
        policy.optimizer.step()
    errors = (policy.predict_value_heads(obs) - targets.T).pow(2).mean(dim=1)
    assert (errors < 0.2 * targets.var()).all()


@pytest.mark.parametrize("algorithm", ["A2C", "TRPO"])
def test_every_critic_moves_under_unmodified_algorithms(algorithm):
    if algorithm == "A2C":
        model = A2C(EnsembleActorCriticPolicy, "CartPole-v1", seed=0, device="cpu")
    else:
        contrib = pytest.importorskip("sb3_contrib")
        model = contrib.TRPO(EnsembleActorCriticPolicy, "CartPole-v1", n_steps=32, batch_size=32, seed=0, device="cpu")
    before = copy.deepcopy(ensemble_of(model.policy).critics)
    model.learn(128)
    for old, new in zip(before, ensemble_of(model.policy).critics, strict=True):
        assert any(not th.equal(a, b) for a, b in zip(old.parameters(), new.parameters(), strict=True))
        assert all(th.isfinite(parameter).all() for parameter in new.parameters())


def test_works_with_state_dependent_exploration():
    PPO(EnsembleActorCriticPolicy, "Pendulum-v1", use_sde=True, **PPO_KWARGS).learn(64)


def test_works_with_images_and_dict_observations():
    image = spaces.Box(0, 255, (36, 36, 3), np.uint8)
    PPO(EnsembleActorCriticCnnPolicy, RandomObs(image), **PPO_KWARGS).learn(32)
    both = spaces.Dict(vector=CARTPOLE, other=CARTPOLE)
    for share in (True, False):
        policy_kwargs = dict(share_features_extractor=share)
        model = PPO(EnsembleMultiInputActorCriticPolicy, RandomObs(both), policy_kwargs=policy_kwargs, **PPO_KWARGS).learn(32)
        assert model.policy.last_value_heads.shape == (5, 1)


def test_save_and_load_keep_weights_and_the_state_of_the_draws(tmp_path):
    model = PPO(EnsembleActorCriticPolicy, "CartPole-v1", policy_kwargs=dict(n_critics=3, prior_scale=1.0), **PPO_KWARGS)
    model.learn(64).save(tmp_path / "model")
    loaded = PPO.load(tmp_path / "model", env=model.get_env(), device="cpu")
    assert_same_parameters(model, loaded)
    obs = th.randn(16, 4)
    for policy in (model.policy, loaded.policy):
        policy.set_training_mode(True)
    assert th.equal(model.policy.predict_values(obs), loaded.policy.predict_values(obs))
    loaded.learn(64)


def test_policy_alone_can_be_saved_and_loaded(tmp_path):
    policy = make_policy(n_critics=3, deal="minibatches", critic_lr_scale=0.5)
    policy.save(tmp_path / "policy.pt")
    loaded = EnsembleActorCriticPolicy.load(tmp_path / "policy.pt", device="cpu")
    assert (loaded.n_critics, loaded.deal, loaded.critic_lr_scale) == (3, "minibatches", 0.5)
    obs = th.randn(4, 4)
    assert th.equal(policy.predict_value_heads(obs), loaded.predict_value_heads(obs))


@pytest.mark.gpu
@pytest.mark.skipif(not th.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("deal", ["rows", "minibatches"])
def test_trains_on_a_gpu(deal, tmp_path):
    kwargs = {**PPO_KWARGS, "device": "cuda"}
    model = PPO(EnsembleActorCriticPolicy, "CartPole-v1", policy_kwargs=dict(deal=deal), **kwargs).learn(64)
    assert model.policy.last_value_heads.device.type == "cuda"
    model.save(tmp_path / "model")
    PPO.load(tmp_path / "model", env=model.get_env(), device="cuda").learn(64)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        (dict(n_critics=0), "n_critics=0"),
        (dict(deal="columns"), "neither 'rows' nor 'minibatches'"),
        (dict(prior_scale=-1.0), "prior_scale=-1.0"),
        (dict(prior_scale=float("nan")), "prior_scale=nan"),
        (dict(n_critics=1, prior_scale=1.0), "at least 2 critics"),
    ],
)
def test_wrong_arguments_are_refused(kwargs, message):
    with pytest.raises(ValueError, match=message):
        make_policy(**kwargs)
