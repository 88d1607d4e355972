"""A learning rate of its own for the critic."""

import pytest
import torch as th
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.policies import ActorCriticPolicy

from sb3_budget.policies.critic_learning_rate import (
    CriticLearningRateCnnPolicy,
    CriticLearningRateMultiInputPolicy,
    CriticLearningRatePolicy,
    scale_critic_learning_rate,
)
from sb3_budget.policies.ensemble_actor_critic import EnsembleActorCriticPolicy

PPO_KWARGS = dict(n_steps=32, batch_size=32, n_epochs=2, seed=3, device="cpu")


def is_critic(name: str) -> bool:
    return "value_net" in name


def steps_of(policy_class, optimizer_class=th.optim.SGD, **kwargs) -> dict[str, th.Tensor]:
    """What one optimizer step changes, after SB3 has set the learning rate."""
    th.manual_seed(0)
    box = spaces.Box(-1.0, 1.0, (4,))
    policy = policy_class(box, spaces.Discrete(2), lambda _: 0.5, optimizer_class=optimizer_class, **kwargs)
    before = {name: parameter.detach().clone() for name, parameter in policy.named_parameters()}
    for group in policy.optimizer.param_groups:
        group["lr"] = 0.01
    values, log_prob, _ = policy.evaluate_actions(th.ones(3, 4), th.zeros(3))
    (values.mean() + log_prob.mean()).backward()
    policy.optimizer.step()
    return {name: parameter.detach() - before[name] for name, parameter in policy.named_parameters()}


def test_scale_of_one_is_stock_ppo_bit_for_bit():
    stock = PPO("MlpPolicy", "CartPole-v1", **PPO_KWARGS).learn(128)
    ours = PPO(CriticLearningRatePolicy, "CartPole-v1", **PPO_KWARGS).learn(128)
    for a, b in zip(stock.policy.parameters(), ours.policy.parameters(), strict=True):
        assert th.equal(a, b)


@pytest.mark.parametrize("optimizer_class", [th.optim.SGD, th.optim.Adam, th.optim.RMSprop])
def test_critic_moves_by_the_scale_and_the_actor_as_before(optimizer_class):
    stock = steps_of(ActorCriticPolicy, optimizer_class)
    scaled = steps_of(CriticLearningRatePolicy, optimizer_class, critic_lr_scale=0.25)
    assert stock.keys() == scaled.keys()
    for name, step in stock.items():
        if is_critic(name):
            assert th.allclose(scaled[name], 0.25 * step, rtol=1e-3, atol=1e-7)
        else:
            assert th.equal(scaled[name], step)


def test_groups_follow_a_schedule_during_learning():
    kwargs = dict(learning_rate=lambda progress: 1e-3 * progress, policy_kwargs=dict(critic_lr_scale=0.5), **PPO_KWARGS)
    model = PPO(CriticLearningRatePolicy, "CartPole-v1", **kwargs).learn(128)
    actor, critic = model.policy.optimizer.param_groups
    assert critic["lr"] == pytest.approx(0.5 * actor["lr"])
    assert actor["lr"] == pytest.approx(model.lr_schedule(model._current_progress_remaining))


def test_ensembles_take_the_scale_too():
    policy = EnsembleActorCriticPolicy(spaces.Box(-1, 1, (4,)), spaces.Discrete(2), lambda _: 1e-3, critic_lr_scale=0.5)
    names = {id(parameter): name for name, parameter in policy.named_parameters()}
    actor, critic = policy.optimizer.param_groups
    assert all(is_critic(names[id(parameter)]) for parameter in critic["params"])
    assert not any(is_critic(names[id(parameter)]) for parameter in actor["params"])
    assert len(actor["params"]) + len(critic["params"]) == len(names)


def test_recurrent_policies_take_the_scale_too():
    pytest.importorskip("sb3_contrib")
    from sb3_contrib.common.recurrent.policies import RecurrentActorCriticPolicy

    policy = RecurrentActorCriticPolicy(spaces.Box(-1, 1, (4,)), spaces.Discrete(2), lambda _: 1e-3)
    scale_critic_learning_rate(policy, 0.5)
    critic = {id(parameter) for parameter in policy.optimizer.param_groups[1]["params"]}
    assert all(id(parameter) in critic for parameter in policy.lstm_critic.parameters())
    assert not any(id(parameter) in critic for parameter in policy.lstm_actor.parameters())


def test_a_features_extractor_of_the_critic_alone_is_scaled_and_a_shared_one_is_not():
    space = spaces.Box(0, 255, (3, 36, 36), "uint8")
    for share in (True, False):
        policy = CriticLearningRateCnnPolicy(
            space, spaces.Discrete(2), lambda _: 1e-3, share_features_extractor=share, critic_lr_scale=0.5
        )
        critic = {id(parameter) for parameter in policy.optimizer.param_groups[1]["params"]}
        assert all((id(parameter) in critic) != share for parameter in policy.vf_features_extractor.parameters())
        assert not any(id(parameter) in critic for parameter in policy.pi_features_extractor.parameters())


def test_dict_observations_have_a_policy():
    space = spaces.Dict(a=spaces.Box(-1, 1, (2,)))
    policy = CriticLearningRateMultiInputPolicy(space, spaces.Discrete(2), lambda _: 1e-3, critic_lr_scale=2.0)
    assert len(policy.optimizer.param_groups) == 2


def test_scale_and_optimizer_survive_save_and_load(tmp_path):
    model = PPO(CriticLearningRatePolicy, "CartPole-v1", policy_kwargs=dict(critic_lr_scale=0.5), **PPO_KWARGS).learn(64)
    model.save(tmp_path / "model")
    loaded = PPO.load(tmp_path / "model", env=model.get_env(), device="cpu")
    saved, restored = model.policy.optimizer.state_dict(), loaded.policy.optimizer.state_dict()
    assert saved["param_groups"] == restored["param_groups"]
    assert all(th.equal(saved["state"][key]["exp_avg"], restored["state"][key]["exp_avg"]) for key in saved["state"])
    loaded.learn(64)
    actor, critic = loaded.policy.optimizer.param_groups
    assert critic["lr"] == pytest.approx(0.5 * actor["lr"])


@pytest.mark.parametrize("scale", [0.0, -1.0, float("inf"), float("nan")])
def test_a_scale_that_is_not_positive_and_finite_is_refused(scale):
    with pytest.raises(ValueError, match="critic_lr_scale="):
        CriticLearningRatePolicy(spaces.Box(-1, 1, (4,)), spaces.Discrete(2), lambda _: 1e-3, critic_lr_scale=scale)


def test_a_policy_without_a_critic_of_its_own_is_refused():
    policy = ActorCriticPolicy(spaces.Box(-1, 1, (4,)), spaces.Discrete(2), lambda _: 1e-3, net_arch=[])
    policy.value_net = th.nn.Identity()
    with pytest.raises(ValueError, match="belong to the critic alone"):
        scale_critic_learning_rate(policy, 0.5)
