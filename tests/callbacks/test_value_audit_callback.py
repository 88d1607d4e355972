"""The audit finds what is wrong with a critic, and leaves the training alone."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack, VecNormalize

from sb3_budget import EpisodeControlVecEnv, StaggeredResetVecEnv, ValueAuditCallback
from sb3_budget.callbacks.value_audit_callback import compare

SMALL = {"n_steps": 16, "batch_size": 64, "n_epochs": 1, "seed": 0, "device": "cpu", "policy_kwargs": {"net_arch": [8]}}


class Countdown(gym.Env):
    """Ends after ten steps, of which each pays what the state says; nothing depends on actions."""

    observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, truncated: bool = False):
        self.truncated = truncated

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 10
        return self._observe(), {}

    def _observe(self):
        return np.array([self.left / 10], dtype=np.float32)

    def step(self, action):
        self.left -= 1
        over = self.left == 0
        return self._observe(), float(self.left), over and not self.truncated, over and self.truncated, {}


def make(n_envs=4, truncated=False):
    return EpisodeControlVecEnv(DummyVecEnv([lambda: Countdown(truncated)] * n_envs), seed=0)


def constant_critic(model, value):
    with th.no_grad():
        model.policy.value_net.weight.zero_()
        model.policy.value_net.bias.fill_(value)


def parameters(model):
    return th.cat([parameter.detach().flatten() for parameter in model.policy.parameters()]).numpy()


def audited(value, truncated=False, max_steps=None, gamma=0.9):
    model = PPO("MlpPolicy", make(truncated=truncated), gamma=gamma, learning_rate=0.0, **SMALL)
    constant_critic(model, value)
    audit = ValueAuditCallback(make(8, truncated), audit_every=64, n_continuations=2, max_steps=max_steps, seed=0)
    # 16 steps: slots are in their second episode, with four steps to go.
    model.learn(64, callback=audit)
    return audit.latest, model


def test_returns_are_those_from_the_state_on():
    found, _ = audited(0.0)
    expected = 3 + 0.9 * 2 + 0.81 * 1
    assert found.bias == pytest.approx(-expected, abs=1e-5)
    assert found.error == pytest.approx(expected, abs=1e-5)
    assert np.isnan(found.correlation)


def test_a_time_limit_and_a_cut_are_completed_by_the_critic():
    cut_off, _ = audited(5.0, truncated=True)
    assert cut_off.bias == pytest.approx(5.0 - (3 + 0.9 * 2 + 0.81 * 1 + 0.9**4 * 5.0), abs=1e-5)
    short, _ = audited(5.0, max_steps=2)
    assert short.bias == pytest.approx(5.0 - (3 + 0.9 * 2 + 0.81 * 5.0), abs=1e-5)


def test_its_steps_are_in_the_ledger():
    _, model = audited(0.0)
    control = model.get_env()
    # Four states with two continuations of four steps each, and the check of the first state that was saved.
    assert control.ledger.verification_steps >= 8 * 4
    assert control.ledger.total_steps == 64 + control.ledger.verification_steps


def test_the_training_goes_on_as_if_nothing_had_happened():
    runs = []
    for with_audit in (False, True):
        venv = VecNormalize(EpisodeControlVecEnv(make_vec_env("Pendulum-v1", 4, seed=0), seed=0))
        audit_env = EpisodeControlVecEnv(make_vec_env("Pendulum-v1", 8, seed=1), seed=0)
        audit = ValueAuditCallback(audit_env, audit_every=128, n_continuations=2, max_steps=10)
        model = PPO("MlpPolicy", venv, **SMALL).learn(512, callback=audit if with_audit else None)
        runs.append(parameters(model))
    np.testing.assert_array_equal(*runs)
    assert audit.latest is not None and np.isfinite([audit.latest.bias, audit.latest.error]).all()
    assert model.logger.name_to_value["budget/value_audit_error"] >= 0.0


class Masked(Countdown):
    """Masks one of its actions."""

    def action_masks(self):
        return np.array([True, False])


def test_masked_actions_are_not_taken_and_hidden_states_are_refused(monkeypatch):
    contrib = pytest.importorskip("sb3_contrib")
    small = {**SMALL, "n_steps": 8, "batch_size": 16}

    def masked(n_envs):
        return EpisodeControlVecEnv(DummyVecEnv([Masked] * n_envs))

    audit_env, taken = masked(4), set()
    step_async = audit_env.step_async
    monkeypatch.setattr(audit_env, "step_async", lambda actions: taken.update(actions.tolist()) or step_async(actions))
    audit = ValueAuditCallback(audit_env, audit_every=16, n_continuations=2)
    model = contrib.MaskablePPO("MlpPolicy", masked(2), **small).learn(64, callback=audit)
    assert audit.latest is not None and taken == {0}
    with pytest.raises(ValueError, match=r"audit_env has no action_masks\(\)"):
        model.learn(16, callback=ValueAuditCallback(make()))
    model.learn(16, callback=ValueAuditCallback(make()), use_masking=False)
    recurrent = contrib.RecurrentPPO("MlpLstmPolicy", make(2), n_steps=8, batch_size=16, device="cpu")
    with pytest.raises(ValueError, match="a recurrent policy has hidden states besides"):
        recurrent.learn(16, callback=ValueAuditCallback(make()))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_what_cannot_be_saved_is_refused_before_training():
    model = PPO("MlpPolicy", EpisodeControlVecEnv(SubprocVecEnv([Countdown] * 2)), **{**SMALL, "batch_size": 32})
    with pytest.raises(ValueError, match="StateWrapper"):
        model.learn(32, callback=ValueAuditCallback(make(), audit_every=10**6))
    assert model.num_timesteps == 0
    model.get_env().close()


def test_comparison_by_hand():
    found = compare(np.array([1.0, 3.0]), np.array([[0.0, 2.0], [4.0, 6.0]]))
    # Differences 0 and -2; the noise of a mean of two is 2 / 2.
    assert found.bias == -1.0
    assert found.error == pytest.approx(1.0)
    assert found.correlation == pytest.approx(1.0)


def test_misuse_is_refused():
    with pytest.raises(ValueError, match=r"must be an EpisodeControlVecEnv\(make_vec_env"):
        ValueAuditCallback(VecNormalize(make()))
    with pytest.raises(ValueError, match="must be a plain EpisodeControlVecEnv"):
        ValueAuditCallback(StaggeredResetVecEnv(DummyVecEnv([Countdown] * 4), horizon=10))
    with pytest.raises(ValueError, match="has 4 slots, which n_continuations=3 does not divide"):
        ValueAuditCallback(make(), n_continuations=3)
    with pytest.raises(ValueError, match="n_continuations=1"):
        ValueAuditCallback(make(), n_continuations=1)
    with pytest.raises(ValueError, match="put EpisodeControlVecEnv around the base VecEnv"):
        PPO("MlpPolicy", DummyVecEnv([Countdown] * 4), **SMALL).learn(64, ValueAuditCallback(make()))
    with pytest.raises(ValueError, match="the training environment"):
        cart = EpisodeControlVecEnv(make_vec_env("CartPole-v1", 4))
        PPO("MlpPolicy", cart, **SMALL).learn(64, ValueAuditCallback(make()))
    with pytest.raises(ValueError, match="lack what VecFrameStack does"):
        PPO("MlpPolicy", VecFrameStack(make(), 2), **SMALL).learn(64, ValueAuditCallback(make()))
    with pytest.raises(ValueError, match="needs an on-policy algorithm"):
        DQN("MlpPolicy", make(), buffer_size=100).learn(64, ValueAuditCallback(make()))


def pendulums(n_envs, seed):
    return EpisodeControlVecEnv(make_vec_env("Pendulum-v1", n_envs, seed=seed), seed=0)


@pytest.mark.parametrize("sde_sample_freq", [-1, 4])
def test_continuations_with_state_dependent_noise_differ_and_leave_that_of_the_training(monkeypatch, sde_sample_freq):
    spreads = []

    def compare_and_note(values, returns):
        spreads.append(returns.std(axis=1))
        return compare(values, returns)

    monkeypatch.setattr("sb3_budget.callbacks.value_audit_callback.compare", compare_and_note)

    class InTheMiddle(ValueAuditCallback):
        def _on_step(self):
            if self.num_timesteps % 20 == 0:
                self.audit()
            return True

    runs = []
    for kind in (None, InTheMiddle):
        model = PPO("MlpPolicy", pendulums(4, 0), use_sde=True, sde_sample_freq=sde_sample_freq, **SMALL)
        # As many slots as the training has, and so the same matrices if they were not renewed.
        audit = None if kind is None else kind(pendulums(4, 1), n_continuations=2, max_steps=10)
        runs.append(parameters(model.learn(128, callback=audit)))
    np.testing.assert_array_equal(*runs)
    assert len(spreads) > 4 and np.min(spreads) > 0.0
    audit = ValueAuditCallback(pendulums(8, 1), n_continuations=4, max_steps=10)
    PPO("MlpPolicy", pendulums(4, 0), use_sde=True, **SMALL).learn(64, callback=audit)
    audit.audit()
    assert spreads[-1].min() > 0.0


def test_audits_follow_the_models_seed():
    def found(seed):
        audit = ValueAuditCallback(pendulums(8, 1), audit_every=64, n_continuations=4, max_steps=10)
        model = PPO("MlpPolicy", pendulums(4, 0), **{**SMALL, "seed": seed, "learning_rate": 0.0})
        model.learn(64, callback=audit)
        first = audit.latest
        # The generator goes on in the next training.
        model.learn(64, callback=audit)
        assert audit.latest != first
        return first

    assert found(0) == found(0) != found(1)


def test_the_environment_of_audits_serves_evaluations_too():
    audit_env = make(8)
    model = PPO("MlpPolicy", make(), **SMALL)
    model.learn(64, callback=ValueAuditCallback(audit_env, audit_every=64, n_continuations=2))
    # Slots of the training are in the middle of an episode.
    assert audit_env.reset().ravel().tolist() == [1.0] * 8


def test_an_audit_that_was_broken_off_leaves_its_environment_as_it_was_and_its_steps_in_the_ledger(monkeypatch):
    audit_env = make(8)
    model = PPO("MlpPolicy", make(), **SMALL)
    step, taken = audit_env.step, []

    def step_twice(actions):
        if len(taken) == 2:
            raise KeyboardInterrupt
        taken.append(actions)
        return step(actions)

    monkeypatch.setattr(audit_env, "step", step_twice)
    with pytest.raises(KeyboardInterrupt):
        model.learn(64, callback=ValueAuditCallback(audit_env, audit_every=64, n_continuations=2))
    assert model.get_env().ledger.verification_steps >= 2 * 8
    assert audit_env.reset().ravel().tolist() == [1.0] * 8
