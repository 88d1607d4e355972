"""Terms of the loss, by hand, and the update that is PPO's where they are off."""

from __future__ import annotations

import numpy as np
import pytest
import torch as th
from stable_baselines3.common.env_util import make_vec_env

from sb3_budget import GRPO
from sb3_budget.algorithms import group_update
from sb3_budget.algorithms.group_loss import clipped_objective, episode_ratio, k3

SMALL = {"n_steps": 32, "batch_size": 64, "n_epochs": 2, "seed": 0, "device": "cpu", "policy_kwargs": {"net_arch": [8]}}


def parameters(model):
    return th.cat([parameter.detach().flatten() for parameter in model.policy.parameters()]).numpy()


def test_either_side_has_its_bound():
    ratio, advantages = th.tensor([0.5, 1.5, 0.5, 1.5]), th.tensor([1.0, 1.0, -1.0, -1.0])
    found = clipped_objective(ratio, advantages, clip_low=0.2, clip_high=0.3)
    np.testing.assert_allclose(found, [0.5, 1.3, -0.8, -1.5])


def test_the_divergence_by_hand_and_its_mean():
    assert k3(th.tensor([0.0]), th.tensor([0.0])).item() == 0.0
    assert k3(th.tensor([0.0]), th.log(th.tensor([2.0]))).item() == pytest.approx(1.0 - np.log(2.0))
    # Enumerated over the actions of a policy it is the divergence itself.
    policy, reference = th.tensor([0.2, 0.8]), th.tensor([0.5, 0.5])
    expected = (policy * (policy / reference).log()).sum()
    assert (policy * k3(policy.log(), reference.log())).sum().item() == pytest.approx(expected.item())


def test_one_ratio_per_episode_is_the_geometric_mean_of_its_steps():
    log_ratio = th.tensor([0.2, 0.4, -0.5], requires_grad=True)
    ratio = episode_ratio(log_ratio, th.tensor([1, 1, 0]))
    np.testing.assert_allclose(ratio.detach(), np.exp([0.3, 0.3, -0.5]), rtol=1e-6)
    ratio.sum().backward()
    np.testing.assert_allclose(log_ratio.grad, np.exp([0.3, 0.3, -0.5]), rtol=1e-6)


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
@pytest.mark.parametrize("options", [{}, {"clip_range_vf": 0.2, "target_kl": 0.001, "ent_coef": 0.01}])
def test_without_additional_terms_the_update_is_ppo(monkeypatch, env, options):
    def run():
        return parameters(GRPO("MlpPolicy", make_vec_env(env, 4, seed=0), group_size=2, **options, **SMALL).learn(512))

    expected = run()
    monkeypatch.setattr(GRPO, "train", group_update.update)
    np.testing.assert_array_equal(run(), expected)


def test_a_larger_upper_bound_changes_the_update_and_is_logged():
    logged = {}
    for high in (None, 0.2, 0.9):
        arguments = {**SMALL, "n_epochs": 10, "learning_rate": 0.01}
        model = GRPO("MlpPolicy", make_vec_env("CartPole-v1", 4, seed=0), group_size=2, clip_range_high=high, **arguments)
        logged[high] = parameters(model.learn(128))
        if high is not None:
            assert 0.0 <= model.logger.name_to_value["budget/clip_ratio_high"] <= 1.0
    np.testing.assert_array_equal(logged[0.2], logged[None])
    assert (logged[0.9] != logged[None]).any()


def test_a_reference_holds_the_policy_back():
    def moved(beta):
        model = GRPO("MlpPolicy", make_vec_env("CartPole-v1", 4, seed=0), group_size=2, beta=beta, **{**SMALL, "n_epochs": 10})
        before = parameters(model)
        model.learn(1024)
        if beta:
            assert model.logger.name_to_value["budget/kl"] > 0.0
        return np.abs(parameters(model) - before)[:-9].mean()

    assert moved(100.0) < moved(0.0)


def test_the_reference_is_the_first_policy_until_it_is_refreshed():
    arguments = {"group_size": 2, "beta": 0.1, **SMALL}
    model = GRPO("MlpPolicy", make_vec_env("CartPole-v1", 4, seed=0), **arguments)
    before = [parameter.clone() for parameter in model.policy.parameters()]
    model.learn(512)
    for reference, first in zip(model.reference_policy.policy.parameters(), before, strict=True):
        assert th.equal(reference, first)
    refreshed = GRPO("MlpPolicy", make_vec_env("CartPole-v1", 4, seed=0), reference_interval=2, **arguments).learn(512)
    references = refreshed.reference_policy.policy.parameters()
    for reference, present in zip(references, refreshed.policy.parameters(), strict=True):
        assert th.equal(reference, present)


def test_a_reference_of_a_policy_with_state_dependent_noise():
    arguments = {**SMALL, "use_sde": True}
    GRPO("MlpPolicy", make_vec_env("Pendulum-v1", 4, seed=0), group_size=2, beta=0.1, **arguments).learn(128)


def test_a_loaded_model_may_have_another_kind_of_advantage(tmp_path):
    GRPO("MlpPolicy", make_vec_env("CartPole-v1", 4, seed=0), group_size=2, **SMALL).save(tmp_path / "model")
    loaded = GRPO.load(
        tmp_path / "model", env=make_vec_env("CartPole-v1", 4, seed=0), advantage="outcome", clip_range_high=0.3
    )
    assert loaded.rollout_buffer.advantage == "outcome"
    loaded.learn(256)
    with pytest.raises(ValueError, match="goes together with good_return"):
        GRPO.load(tmp_path / "model", env=make_vec_env("CartPole-v1", 4, seed=0), zero_variance_shaping=1.0)
