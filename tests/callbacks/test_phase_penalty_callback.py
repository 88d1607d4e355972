"""The penalty moves the chosen weights of the critic and nothing else by its own gradient."""

from __future__ import annotations

import numpy as np
import pytest
import torch as th
from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.env_util import make_vec_env

from sb3_budget import PhasePenaltyCallback


def pendulum():
    return make_vec_env("Pendulum-v1", n_envs=2, seed=0)


def ppo(**kwargs):
    return PPO(
        "MlpPolicy", pendulum(), **{"n_steps": 8, "batch_size": 16, "n_epochs": 1, "seed": 0, "device": "cpu", **kwargs}
    )


def hooked(features, coef, model):
    callback = PhasePenaltyCallback(features, coef)
    callback.init_callback(model)
    callback.on_training_start({}, {})
    return callback


@pytest.mark.parametrize("net_arch", [[8], []])
def test_the_gradient_is_that_of_the_squared_weights(net_arch):
    model = ppo(policy_kwargs={"net_arch": net_arch})
    layer = model.policy.mlp_extractor.value_net[0] if net_arch else model.policy.value_net
    obs = th.rand(5, 3)

    def gradients():
        model.policy.zero_grad()
        model.policy.predict_values(obs).sum().backward()
        return {name: p.grad.clone() for name, p in model.policy.named_parameters() if p.grad is not None}

    plain = gradients()
    hooked([0, -1], 0.5, model)
    penalised = gradients()
    name = next(name for name, p in model.policy.named_parameters() if p is layer.weight)
    expected = 2 * 0.5 * layer.weight.detach() * th.tensor([1.0, 0.0, 1.0])
    assert th.allclose(penalised[name] - plain[name], expected, atol=1e-6)
    assert expected.abs().max() > 0.01
    assert [other for other in plain if not th.equal(plain[other], penalised[other])] == [name]


def test_a_large_penalty_shrinks_the_input_and_leaves_the_policy_its_own():
    model = ppo(learning_rate=3e-3, max_grad_norm=1e9)
    before = model.policy.mlp_extractor.value_net[0].weight[:, -1].norm().item()
    model.learn(2560, callback=PhasePenaltyCallback(-1, coef=100.0))
    weight = model.policy.mlp_extractor.value_net[0].weight
    assert weight[:, -1].norm() < 0.3 * before
    assert weight[:, 0].norm() > 0.8 * before


def test_it_is_gone_after_training_and_the_model_can_be_saved(tmp_path):
    model = ppo()
    model.learn(16, callback=PhasePenaltyCallback(coef=1.0))
    assert not model.policy.mlp_extractor.value_net[0].weight._backward_hooks
    model.save(tmp_path / "model")
    PPO.load(tmp_path / "model", env=pendulum()).learn(16)


def test_a_coefficient_of_zero_is_stock():
    ours = ppo().learn(64, callback=PhasePenaltyCallback(coef=0.0))
    stock = ppo().learn(64)
    for a, b in zip(ours.policy.parameters(), stock.policy.parameters(), strict=True):
        np.testing.assert_array_equal(a.detach().numpy(), b.detach().numpy())


def test_it_works_with_a2c():
    A2C("MlpPolicy", pendulum(), seed=0, device="cpu").learn(20, callback=PhasePenaltyCallback())


def test_misuse_is_refused():
    with pytest.raises(ValueError, match=r"coef=-1.0 must not be negative"):
        PhasePenaltyCallback(coef=-1.0)
    with pytest.raises(ValueError, match="no input 3 among the 3"):
        ppo().learn(16, callback=PhasePenaltyCallback(features=3))
    with pytest.raises(ValueError, match="needs an on-policy algorithm"):
        DQN("MlpPolicy", make_vec_env("CartPole-v1"), buffer_size=10).learn(2, callback=PhasePenaltyCallback())
    discrete = PPO("MlpPolicy", make_vec_env("CliffWalking-v1"), n_steps=8, batch_size=8, n_epochs=1)
    discrete.learn(8, callback=PhasePenaltyCallback(features=0))
