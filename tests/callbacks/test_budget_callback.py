"""Training ends when the budget is used up, whatever it is counted in."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch as th
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.callbacks import BaseCallback, EveryNTimesteps
from stable_baselines3.common.env_util import make_vec_env

from sb3_budget import BudgetCallback, EpisodeControlVecEnv, StaggeredResetVecEnv

SMALL = {"n_steps": 16, "batch_size": 64, "n_epochs": 1, "seed": 0, "device": "cpu", "policy_kwargs": {"net_arch": [8]}}


def cart_poles(wrapper=EpisodeControlVecEnv, **kwargs):
    return wrapper(make_vec_env("CartPole-v1", 4, seed=0), seed=0, **kwargs)


def test_steps_for_any_purpose_count():
    venv = cart_poles(StaggeredResetVecEnv, mode="warmup", horizon=500)
    model = PPO("MlpPolicy", venv, **SMALL).learn(10_000, callback=BudgetCallback(steps=2000))
    ledger = venv.ledger
    assert ledger.warmup_steps > 0
    # One rollout may go over, and the step of all slots with which training ends.
    assert 2000 <= ledger.total_steps < 2000 + 64 + 4
    assert model.num_timesteps == ledger.learning_steps < 2000


def test_without_the_wrapper_the_algorithms_own_steps_count():
    model = PPO("MlpPolicy", make_vec_env("CartPole-v1", 4, seed=0), **SMALL)
    assert model.learn(10_000, callback=BudgetCallback(steps=500)).num_timesteps == 512 + 4
    off_policy = DQN("MlpPolicy", "CartPole-v1", learning_starts=50, buffer_size=1000, device="cpu")
    assert 500 <= off_policy.learn(10_000, callback=BudgetCallback(steps=500)).num_timesteps <= 505


def test_seconds_end_training_and_go_on_counting_in_the_next_call():
    budget = BudgetCallback(seconds=1e-9)
    model = PPO("MlpPolicy", cart_poles(), **SMALL).learn(10_000, callback=budget)
    assert model.num_timesteps == 4
    patient = BudgetCallback(seconds=1e6)
    model = PPO("MlpPolicy", cart_poles(), **SMALL).learn(128, callback=patient)
    assert model.num_timesteps == 128
    spent = patient._spent_seconds
    model.learn(128, callback=patient, reset_num_timesteps=False)
    assert patient._spent_seconds > spent > 0.0


def test_a_cost_of_ones_own():
    venv = cart_poles()
    budget = BudgetCallback(cost=lambda ledger: 10.0 * ledger.resets, most_cost=300.0)
    PPO("MlpPolicy", venv, **SMALL).learn(10_000, callback=budget)
    assert 30 <= venv.ledger.resets < 50
    assert budget.remaining == 0.0


def test_of_several_limits_the_first_one_counts():
    budget = BudgetCallback(steps=10_000, cost=lambda ledger: ledger.total_steps, most_cost=200.0)
    assert PPO("MlpPolicy", cart_poles(), **SMALL).learn(10_000, callback=budget).num_timesteps < 300


def test_schedules_go_by_the_budget_and_survive_pickling():
    budget = BudgetCallback(steps=640)
    rate = budget.schedule(lambda left: 1e-3 * left)
    model = PPO("MlpPolicy", cart_poles(), learning_rate=rate, **SMALL)
    model.learn(100_000, callback=budget, log_interval=1000)
    # At a tenth of total_timesteps the budget is used up, and the rate at its end.
    assert model.lr_schedule(0.9) == pytest.approx(0.0, abs=1e-9)
    assert model.logger.name_to_value["budget/left"] == 0.0
    rates = [group["lr"] for group in model.policy.optimizer.param_groups]
    assert rates == [0.0]
    named = BudgetCallback(steps=10).schedule(abs)
    named.remaining = 0.25
    assert pickle.loads(pickle.dumps(named))(1.0) == 0.25


def test_a_budget_that_is_not_reached_changes_nothing():
    def run(callback):
        model = PPO("MlpPolicy", cart_poles(), **SMALL).learn(512, callback=callback)
        return th.cat([each.detach().flatten() for each in model.policy.parameters()]).numpy()

    np.testing.assert_array_equal(run(BudgetCallback(steps=10_000)), run(None))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "BudgetCallback needs a limit"),
        ({"steps": 0}, "steps=0 must be positive"),
        ({"seconds": -1.0}, "seconds=-1.0 must be positive"),
        ({"cost": len}, "give both or neither"),
        ({"most_cost": 3.0}, "give both or neither"),
    ],
)
def test_misuse_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        BudgetCallback(**arguments)


def test_inside_another_callback_it_would_not_hear_of_rollouts():
    with pytest.raises(ValueError, match="inside EveryNTimesteps would never hear of rollouts"):
        PPO("MlpPolicy", cart_poles(), **SMALL).learn(64, EveryNTimesteps(10, BudgetCallback(steps=10)))


def test_what_is_left_stays_when_training_has_ended():
    budget = BudgetCallback(seconds=1e3)
    PPO("MlpPolicy", cart_poles(), **SMALL).learn(128, callback=budget)
    assert budget.remaining == 1.0 - budget._spent_seconds / 1e3 < 1.0


@pytest.mark.parametrize("venv", [lambda: make_vec_env("CartPole-v1", 4, seed=0), lambda: cart_poles(enabled=False)])
def test_without_a_wrapper_that_counts_several_trainings_share_the_budget(venv):
    budget, model = BudgetCallback(steps=256), PPO("MlpPolicy", venv(), **SMALL)
    assert model.learn(10_000, callback=budget).num_timesteps == 256 + 4
    assert model.learn(10_000, callback=budget).num_timesteps == 4
    budget = BudgetCallback(steps=512)
    assert model.learn(64, callback=budget).num_timesteps == 64
    assert model.learn(10_000, callback=budget, reset_num_timesteps=False).num_timesteps == 512 + 4


def test_what_a_training_spent_that_was_broken_off_counts():
    class Interrupt(BaseCallback):
        def _on_step(self):
            if self.num_timesteps == 400:
                raise KeyboardInterrupt
            return True

    budget = BudgetCallback(steps=512, seconds=1e6)
    model = PPO("MlpPolicy", make_vec_env("CartPole-v1", 4, seed=0), **SMALL)
    with pytest.raises(KeyboardInterrupt):
        model.learn(10_000, callback=[budget, Interrupt()])
    spent = budget._spent_seconds
    assert spent > 0.0 and budget.remaining == 1.0 - 400 / 512
    # What was collected of a rollout when it was broken off is spent, and 112 steps are left: two rollouts go over them.
    model.learn(10_000, callback=budget, reset_num_timesteps=False)
    assert model.num_timesteps == 400 + 2 * 64 + 4
    assert budget._spent_seconds > spent
