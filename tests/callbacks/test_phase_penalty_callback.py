"""The penalty moves the chosen weights of the critic and nothing else by its own gradient."""

from __future__ import annotations

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from gymnasium.wrappers import TransformObservation
from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

from sb3_budget import EnsembleActorCriticPolicy, PhasePenaltyCallback


class Interrupt(BaseCallback):
    """Stops a run as Ctrl-C does."""

    def _on_step(self):
        raise KeyboardInterrupt


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


def value_gradients(model):
    model.policy.zero_grad()
    model.policy.predict_values(th.linspace(-1.0, 1.0, 15).reshape(5, 3)).sum().backward()
    return {name: p.grad.clone() for name, p in model.policy.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("net_arch", [[8], []])
def test_the_gradient_is_that_of_the_squared_weights(net_arch):
    model = ppo(policy_kwargs={"net_arch": net_arch})
    layer = model.policy.mlp_extractor.value_net[0] if net_arch else model.policy.value_net
    plain = value_gradients(model)
    hooked([0, -1], 0.5, model)
    assert PhasePenaltyCallback(np.int64(0)).features == PhasePenaltyCallback(0).features == [0]
    penalised = value_gradients(model)
    name = next(name for name, p in model.policy.named_parameters() if p is layer.weight)
    expected = 2 * 0.5 * layer.weight.detach() * th.tensor([1.0, 0.0, 1.0])
    assert th.allclose(penalised[name] - plain[name], expected, atol=1e-6)
    assert expected.abs().max() > 0.01
    assert [other for other in plain if not th.equal(plain[other], penalised[other])] == [name]


@pytest.mark.parametrize("net_arch", [[8], []])
def test_each_critic_of_an_ensemble_is_penalised_and_no_prior(net_arch):
    model = PPO(
        EnsembleActorCriticPolicy,
        pendulum(),
        policy_kwargs={"net_arch": net_arch, "n_critics": 3, "prior_scale": 1.0},
        device="cpu",
    )
    model.policy.set_training_mode(False)  # else each row is that of a critic drawn at random
    plain = value_gradients(model)
    hooked(1, 0.5, model)
    penalised = value_gradients(model)
    for head, critic in enumerate(model.policy.value_net.critics):
        name = f"value_net.critics.{head}.0.weight"
        expected = critic[0].weight.detach() * th.tensor([0.0, 1.0, 0.0])
        assert th.allclose(penalised.pop(name) - plain.pop(name), expected, atol=1e-6)
        assert expected.abs().max() > 0.01
    assert plain.keys() == penalised.keys()
    assert all(th.equal(plain[other], penalised[other]) for other in plain)


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


def test_after_an_interrupted_run_the_next_is_penalised_once():
    model = ppo()
    callback = PhasePenaltyCallback(coef=0.5)
    layer = model.policy.mlp_extractor.value_net[0]
    plain = value_gradients(model)["mlp_extractor.value_net.0.weight"]
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            model.learn(16, callback=[callback, Interrupt()])
        penalised = value_gradients(model)["mlp_extractor.value_net.0.weight"]
        assert th.allclose(penalised - plain, layer.weight.detach() * th.tensor([0.0, 0.0, 1.0]), atol=1e-6)
    model.learn(16, callback=callback)
    assert not layer.weight._backward_hooks


@pytest.mark.parametrize("coef", [0.0, 0.5])
def test_an_interrupted_run_leaves_nothing_to_a_run_with_another_callback(coef):
    model = ppo()
    plain = value_gradients(model)["mlp_extractor.value_net.0.weight"]
    for callback in (PhasePenaltyCallback(0, coef=0.3), PhasePenaltyCallback(-1, coef)):
        with pytest.raises(KeyboardInterrupt):
            model.learn(16, callback=[callback, Interrupt()])
    penalised = value_gradients(model)["mlp_extractor.value_net.0.weight"]
    weight = model.policy.mlp_extractor.value_net[0].weight.detach()
    assert th.allclose(penalised - plain, 2 * coef * weight * th.tensor([0.0, 0.0, 1.0]), atol=1e-6)


def test_it_follows_from_one_model_to_another():
    callback = PhasePenaltyCallback(coef=0.5)
    models = ppo(), ppo(policy_kwargs={"net_arch": []})
    with pytest.raises(KeyboardInterrupt):
        models[0].learn(16, callback=[callback, Interrupt()])
    models[1].learn(16, callback=callback)
    assert not models[0].policy.mlp_extractor.value_net[0].weight._backward_hooks
    assert not models[1].policy.value_net.weight._backward_hooks


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


def test_a_critic_whose_first_layer_does_not_see_the_flat_observation_is_refused():
    def as_dict(env):
        return TransformObservation(env, lambda obs: {"obs": obs}, spaces.Dict({"obs": env.observation_space}))

    env = make_vec_env("Pendulum-v1", wrapper_class=as_dict)
    with pytest.raises(ValueError, match="not MultiInputActorCriticPolicy on CombinedExtractor"):
        PPO("MultiInputPolicy", env, n_steps=8, batch_size=8, device="cpu").learn(8, callback=PhasePenaltyCallback())
    contrib = pytest.importorskip("sb3_contrib")
    recurrent = contrib.RecurrentPPO("MlpLstmPolicy", pendulum(), n_steps=8, device="cpu")
    with pytest.raises(ValueError, match="not RecurrentActorCriticPolicy on FlattenExtractor"):
        recurrent.learn(16, callback=PhasePenaltyCallback())
