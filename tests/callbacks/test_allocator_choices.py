"""Signals, horizons and guards of the allocator, in training."""

from __future__ import annotations

import warnings
from time import sleep

import numpy as np
import pytest
from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize, unwrap_vec_wrapper

from sb3_budget import (
    BudgetAllocatorCallback,
    DoublingHorizon,
    EnsembleActorCriticPolicy,
    EpisodeControlVecEnv,
    QuantisedCells,
    RegionRoi,
    SignalBandit,
)
from sb3_budget.callbacks.rollout_notes import RolloutNotes
from sb3_budget.callbacks.start_strength import StartStrength
from sb3_budget.core.anchors import WeightedPriority
from sb3_budget.core.start_log import load_table
from tests.callbacks.test_budget_allocator_callback import SMALL, Chain, Starts, chains, parameters

QUICK = {**SMALL, "n_epochs": 1}


def dense_step(chain, action):
    """Pays for the place, unlike a chain that pays at its end."""
    chain.cell = max(0, chain.cell + (1 if action else -1))
    return chain.cell, float(chain.cell), chain.cell == chain.length - 1, False, {}


def train(allocator, steps=768, policy="MlpPolicy", others=(), **kwargs):
    return PPO(policy, chains(), **{**QUICK, **kwargs}).learn(steps, callback=[allocator, *others], log_interval=1000)


def test_every_signal_is_measured_when_it_is_asked_for_and_only_then():
    every = {"advantage": 1.0, "td": 1.0, "learning_progress": 1.0, "critic_spread": 1.0, "novelty": 1.0}
    allocator = BudgetAllocatorCallback(every, warmup=64)
    logged = train(allocator, 1536, EnsembleActorCriticPolicy).logger.name_to_value
    known = allocator.anchors()
    for measured in (known.td_errors, known.progress, known.spread, known.advantages):
        assert np.isfinite(measured).any() and (measured[np.isfinite(measured)] >= 0.0).all()
    assert [int(seen) for seen in known.observations] == [int(state.observation) for state in allocator.archive.states]
    assert {name: logged[f"budget/signal_{name}"] for name in every} == every
    other = BudgetAllocatorCallback("novelty", warmup=64)
    train(other)
    assert np.isnan(other.anchors().td_errors).all() and np.isnan(other.anchors().progress).all()


def test_a_sum_with_one_signal_is_that_signal():
    runs = [parameters(train(BudgetAllocatorCallback(each, warmup=64))) for each in ("novelty", {"novelty": 3.0})]
    np.testing.assert_array_equal(*runs)


def test_weights_by_the_progress_act_and_are_logged():
    def last(anchors):
        return np.array([float(seen) for seen in anchors.observations])

    starts = Starts()
    weights = {last: lambda remaining: 1.0 - remaining, "uniform": lambda remaining: remaining}
    allocator = BudgetAllocatorCallback(weights, warmup=64, floor=0.0, temperature=0.05)
    logged = train(allocator, 2048, others=[starts]).logger.name_to_value
    assert np.mean(starts.first[-20:]) > 9.0  # of cells 0 to 10
    assert logged["budget/signal_last"] > 0.8


def test_a_bandit_is_told_what_each_period_brought_and_is_saved(tmp_path):
    bandit = SignalBandit(["novelty", "td"], period=256, seed=0)
    allocator = BudgetAllocatorCallback(bandit, warmup=64)
    logged = train(allocator, 2048).logger.name_to_value
    assert len(bandit.rewards) == 7
    assert logged["budget/signal_novelty"] == bandit.probabilities["novelty"]
    assert logged["budget/bandit_reward"] == bandit.rewards[-1]
    allocator.save(tmp_path / "allocator.pkl")
    other = SignalBandit(["novelty", "td"], period=256, seed=1)
    second = BudgetAllocatorCallback(other, warmup=64)
    second.load(tmp_path / "allocator.pkl")
    train(second, 512)
    assert len(second._plan.bandit.rewards) == 9 and not other.rewards


def test_regions_where_steps_bring_more_are_begun_in_more_often_and_are_saved(tmp_path):
    class Told(RegionRoi):
        """Keeps what it is told."""

        told = ()

        def record(self, n_steps, began, lengths, returns, visited, errors):
            self.told = (*self.told, (n_steps, began, lengths, returns, visited, errors))
            super().record(n_steps, began, lengths, returns, visited, errors)

    def halves(anchors):
        return np.array([int(int(seen) > 5) for seen in anchors.observations])

    roi = Told(2, halves, period=128)
    allocator = BudgetAllocatorCallback("uniform", warmup=64, roi=roi)
    logged = train(allocator, 1536).logger.name_to_value
    multipliers = roi.tracker.multipliers
    assert multipliers.min() < 1.0 < multipliers.max()
    assert (logged["budget/roi_min"], logged["budget/roi_max"]) == (multipliers.min(), multipliers.max())
    # The sampler draws by them: of two halves of equal priority one comes up more often.
    known = allocator.anchors()
    allocator._plan.outdate()
    allocator._plan.draw(len(allocator.archive), lambda: known, np.random.default_rng(0))
    expected = multipliers[halves(known)]
    np.testing.assert_allclose(allocator._plan._cumulative, np.cumsum(expected) / expected.sum())
    # Every step after the warm-up is told once, and so is what the critic made of it.
    told = roi.told
    assert sum(n for n, *_ in told) <= 1536 and all(len(visited) == len(errors) == n for n, *_, visited, errors in told)
    lengths = np.concatenate([lengths for _, _, lengths, *_ in told])
    assert lengths.size and lengths.min() >= 1
    allocator.save(tmp_path / "allocator")
    second = BudgetAllocatorCallback("uniform", warmup=64, roi=RegionRoi(2, halves))
    second.load(tmp_path / "allocator")
    np.testing.assert_array_equal(second._plan.roi.tracker.multipliers, multipliers)
    without = BudgetAllocatorCallback("uniform", warmup=64)
    without.load(tmp_path / "allocator")
    assert without._plan.roi is None


def test_regions_serve_off_policy_algorithms():
    roi = RegionRoi(2, period=200)
    model = DQN("MlpPolicy", chains(2), learning_starts=50, buffer_size=500, seed=0)
    model.learn(1500, callback=BudgetAllocatorCallback("novelty", warmup=100, roi=roi))
    assert np.isfinite(roi.tracker.roi).any()


def test_a_bandit_serves_off_policy_algorithms():
    bandit = SignalBandit(["novelty", "learning_progress"], period=200, seed=0)
    model = DQN("MlpPolicy", chains(2), learning_starts=50, buffer_size=1000, seed=0, device="cpu")
    model.learn(1000, callback=BudgetAllocatorCallback(bandit, warmup=100))
    assert bandit.rewards


def lengths_by_start(horizon, steps=2048):
    ended = []

    class Lengths(BaseCallback):
        def _on_step(self):
            for info in self.locals["infos"]:
                end = info.get("sb3_budget")
                if end is not None and end["start_id"] is not None:
                    ended.append((end["start_id"][1], end["length"], end["reason"]))
            return True

    allocator = BudgetAllocatorCallback("uniform", warmup=64, floor=0.0, horizon=horizon)
    train(allocator, steps, others=[Lengths()])
    return allocator, ended


def test_a_function_gives_each_anchor_a_horizon_of_its_own():
    allocator, ended = lengths_by_start(lambda anchors: [2 if int(seen) % 2 else 5 for seen in anchors.observations])
    cut = {(row, length) for row, length, reason in ended if reason == "horizon"}
    cells = [int(seen) for seen in allocator.anchors().observations]
    assert len(cut) > 4
    assert all(length == (2 if cells[row] % 2 else 5) for row, length in cut)


def test_horizons_double_where_cut_episodes_had_large_advantages():
    allocator, ended = lengths_by_start(DoublingHorizon(2, 8), 4096)
    cuts = allocator.anchors().cuts
    assert cuts.any()
    cut_lengths = {length for _, length, reason in ended if reason == "horizon"}
    assert {2, 4} < cut_lengths <= {2, 4, 8}
    # A row was never cut later than its doublings allow.
    assert all(length <= 2 * 2 ** cuts[row] for row, length, reason in ended if reason == "horizon")


def test_the_share_of_archived_starts_is_ramped_up():
    starts = Starts()
    allocator = BudgetAllocatorCallback("uniform", warmup=64, floor=0.0, ramp=1.0)
    model = PPO("MlpPolicy", chains(8), **QUICK).learn(8192, callback=[allocator, starts], log_interval=1000)
    half = len(starts.ids) // 2
    archived = [np.mean([each is not None for each in part]) for part in (starts.ids[:half], starts.ids[half:])]
    assert archived[0] < 0.45 and 0.55 < archived[1] < 0.95
    assert 0.9 < model.logger.name_to_value["budget/start_strength"] <= 1.0


def test_guards_act_in_proportion():
    strength = StartStrength(0.2, 0, max_kl=0.02, min_entropy=0.5)
    strength.start(PPO("MlpPolicy", "CartPole-v1", device="cpu"), 0, 1000)
    assert strength.own_share(0, 1.0) == 0.2
    strength.follow({"train/approx_kl": 0.04, "train/entropy_loss": -0.6})
    assert strength.strength(0) == pytest.approx(0.5) and strength.own_share(0, 1.0) == pytest.approx(0.6)
    strength.follow({})  # nothing new
    assert strength.strength(0) == pytest.approx(0.5)
    strength.follow({"train/approx_kl": 0.01, "train/entropy_loss": -0.5 + np.log(2.0)})
    assert strength.strength(0) == pytest.approx(0.5)
    strength.follow({"train/kl_divergence_loss": 0.2, "train/entropy_loss": -0.6})
    assert strength.strength(0) == pytest.approx(0.1)


def test_a_schedule_of_the_floor_is_clipped():
    # Half of the strength: unclipped, a floor of -1 would leave no own starts, and one of 2 would leave more than all.
    strength = StartStrength(lambda remaining: 4.0 * remaining - 2.0, 0, max_kl=0.02, min_entropy=None)
    strength.start(PPO("MlpPolicy", "CartPole-v1", device="cpu"), 0, 1000)
    strength.follow({"train/approx_kl": 0.04})
    assert [strength.own_share(0, remaining) for remaining in (1.0, 0.5, 0.0)] == [1.0, 0.5, 0.5]


def test_in_training_a_tight_guard_leaves_nearly_all_episodes_to_own_starts():
    shares = []
    for max_kl in (None, 1e-9):
        allocator = BudgetAllocatorCallback("uniform", warmup=64, floor=0.0, max_kl=max_kl)
        train(allocator, 1024)
        shares.append(allocator.archive_starts)
    assert shares[0] > 0.6 and shares[1] < 0.3


def test_dense_rewards_are_told_once_and_sparse_ones_never(monkeypatch):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(BudgetAllocatorCallback("novelty", warmup=64), 1536)
        # What costs the same at every step is not dense, also where VecNormalize makes it vary.
        hills = EpisodeControlVecEnv(make_vec_env("MountainCar-v0", 4, seed=0), seed=0)
        PPO("MlpPolicy", VecNormalize(hills), **QUICK).learn(1536, BudgetAllocatorCallback("novelty", warmup=64))
    monkeypatch.setattr(Chain, "step", dense_step)
    with pytest.warns(UserWarning, match=r"Rewards are dense here: .* expect no gain") as told:
        train(BudgetAllocatorCallback("novelty", warmup=64), 1536)
    assert len(told) == 1


def test_starts_are_recorded_by_update(tmp_path):
    starts = Starts()
    allocator = BudgetAllocatorCallback("uniform", warmup=64, record_starts=tmp_path / "starts.npz")
    train(allocator, 1024, others=[starts])
    table = load_table(tmp_path / "starts.npz")
    assert table.steps.tolist() == list(range(128, 1025, 128))
    assert table.totals.sum() == allocator.archive.chosen.sum() > 0
    assert table.places.shape == (len(table.totals), 1) and table.places.max() < Chain.length


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"ramp": -1}, "ramp=-1 must be a number of steps"),
        ({"max_kl": 0.0}, "max_kl=0.0 must be positive"),
        ({"horizon": "long"}, "horizon='long' is not 'adaptive'"),
        ({"horizon": 7.5}, "horizon=7.5 must be at least 1 step, in whole steps"),
        ({"horizon": True}, "horizon=True must be at least 1 step, in whole steps"),
        ({"cells": 5}, "cells=5 is neither an object like QuantisedCells"),
        ({"cells": QuantisedCells}, "is neither an object like QuantisedCells"),
        ({"priority": {"td": -1.0}}, "weights must be finite, not negative"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        BudgetAllocatorCallback(**arguments)


@pytest.mark.parametrize(
    ("algorithm", "arguments", "message"),
    [
        (DQN, {"priority": {"td": 1.0, "novelty": 1.0}}, "priority='td' needs an on-policy algorithm, not DQN"),
        (DQN, {"priority": "novelty", "horizon": "adaptive"}, "horizon='adaptive' needs an on-policy algorithm, not DQN"),
        (
            DQN,
            {"priority": "novelty", "min_entropy": 0.1},
            "min_entropy needs an algorithm that logs it, such as PPO or A2C, not DQN",
        ),
        (A2C, {"max_kl": 0.1}, "max_kl needs an algorithm that measures it, such as PPO or TRPO, not A2C"),
        (A2C, {"priority": "critic_spread"}, "'critic_spread' needs several critics: EnsembleActorCriticPolicy"),
    ],
)
def test_what_the_algorithm_cannot_do_is_refused_before_it_trains(algorithm, arguments, message):
    with pytest.raises(ValueError, match=message):
        algorithm("MlpPolicy", chains(2), device="cpu").learn(64, BudgetAllocatorCallback(**arguments))


def test_one_critic_does_not_disagree_with_itself():
    with pytest.raises(ValueError, match="'critic_spread' needs several critics"):
        train(BudgetAllocatorCallback("critic_spread"), policy=EnsembleActorCriticPolicy, policy_kwargs={"n_critics": 1})


# ---------------------------------------------------------------------- one training after another


def test_a_schedule_of_weights_is_not_asked_beyond_the_end_of_the_training():
    allocator = BudgetAllocatorCallback({"novelty": lambda remaining: remaining, "uniform": 1.0}, warmup=0)
    model = PPO("MlpPolicy", chains(), **QUICK)
    for _ in range(2):
        # One rollout more than was asked for.
        model.learn(260, callback=allocator)
    assert model.num_timesteps > 260


def test_what_is_refused_leaves_the_environment_as_it_was():
    model = A2C("MlpPolicy", chains(), n_steps=16, device="cpu", seed=0)
    with pytest.raises(ValueError, match="max_kl"):
        model.learn(64, callback=BudgetAllocatorCallback(max_kl=0.01))
    assert unwrap_vec_wrapper(model.env, EpisodeControlVecEnv).start_sampler is None
    model.learn(256, callback=BudgetAllocatorCallback(warmup=16))


def test_a_callback_that_joins_a_training_warms_up_from_there():
    model = train(BudgetAllocatorCallback(warmup=64))
    late, starts = BudgetAllocatorCallback("novelty", warmup=0.5), Starts()
    began = model.num_timesteps
    model.learn(768, callback=[late, starts], reset_num_timesteps=False)
    assert late._warmup_steps == began + 384
    assert len(late.archive) > 0


def test_starts_of_a_continued_training_are_added_to_the_file(tmp_path):
    file = tmp_path / "starts.npz"
    allocator = BudgetAllocatorCallback("novelty", warmup=64, record_starts=file)
    model = train(allocator, 512)
    first = load_table(file).steps.tolist()
    model.learn(512, callback=allocator, reset_num_timesteps=False)
    assert load_table(file).steps.tolist()[: len(first)] == first
    assert load_table(file).steps[-1] == model.num_timesteps


def test_off_policy_starts_are_not_kept_step_by_step(tmp_path):
    file = tmp_path / "starts.npz"
    model = DQN("MlpPolicy", chains(), learning_starts=10, train_freq=1, buffer_size=1000, device="cpu", seed=0)
    model.learn(1024, callback=BudgetAllocatorCallback("novelty", warmup=64, record_starts=file))
    assert load_table(file).steps.tolist() == [256, 512, 768, 1024]


def test_a_loaded_allocator_keeps_the_rule_of_success_it_was_given(tmp_path):
    allocator = BudgetAllocatorCallback(warmup=64)
    train(allocator)
    allocator.save(tmp_path / "allocator.pkl")
    rule = lambda info: True  # noqa: E731  # compared by identity
    other = BudgetAllocatorCallback(success=rule)
    other.load(tmp_path / "allocator.pkl")
    assert other._labels.success is rule


def test_contrast_cannot_go_on_from_an_allocator_that_predicted_nothing(tmp_path):
    allocator = BudgetAllocatorCallback("novelty", warmup=64)
    train(allocator)
    allocator.save(tmp_path / "allocator.pkl")
    other = BudgetAllocatorCallback("contrast")
    other.load(tmp_path / "allocator.pkl")
    with pytest.raises(ValueError, match="nothing to predict by"):
        train(other)


def test_a_bandit_learns_nothing_while_its_choice_has_no_effect():
    bandit = SignalBandit(["novelty", "uniform"], period=128, seed=0)
    train(BudgetAllocatorCallback(bandit, warmup=1.0))
    assert bandit.rewards == []


def test_a_bandit_draws_by_the_models_seed():
    def followed(seed):
        bandit = SignalBandit(["novelty", "uniform"], period=128)
        train(BudgetAllocatorCallback(bandit, warmup=64), seed=seed)
        return bandit._bandit._rng.bit_generator.state

    assert followed(1) == followed(1) != followed(2)


def test_signals_within_signals_are_measured_and_a_bandit_is_none():
    with pytest.raises(ValueError, match="needs an on-policy algorithm"):
        nested = SignalBandit([WeightedPriority({"td": 1.0}), "uniform"])
        DQN("MlpPolicy", chains(), device="cpu").learn(8, callback=BudgetAllocatorCallback(nested))
    with pytest.raises(ValueError, match="cannot be one of them"):
        BudgetAllocatorCallback({SignalBandit(["novelty", "uniform"]): 1.0, "novelty": 1.0})


def test_an_entropy_that_is_not_logged_guards_nothing():
    trpo = pytest.importorskip("sb3_contrib").TRPO
    with pytest.raises(ValueError, match="min_entropy needs an algorithm that logs it, such as PPO or A2C, not TRPO"):
        trpo("MlpPolicy", chains(), device="cpu").learn(8, callback=BudgetAllocatorCallback(min_entropy=0.1))


def test_what_predicted_success_can_go_on_without(tmp_path):
    allocator = BudgetAllocatorCallback(warmup=64, success=lambda info: True)
    train(allocator)
    allocator.save(tmp_path / "allocator.pkl")
    other = BudgetAllocatorCallback("novelty", warmup=0, refresh=0.5)
    other.load(tmp_path / "allocator.pkl")
    train(other)
    assert np.isnan(other.anchors().success).all()
    other.save(tmp_path / "other.pkl")
    third = BudgetAllocatorCallback("contrast")
    third.load(tmp_path / "other.pkl")
    with pytest.raises(ValueError, match="nothing to predict by"):
        train(third)


@pytest.mark.parametrize("more", [-1, 1])
def test_a_priority_must_score_every_state(more):
    allocator = BudgetAllocatorCallback(lambda anchors: np.zeros(len(anchors.visits) + more), warmup=64, floor=0.0)
    with pytest.raises(ValueError, match=r"priority must return a score for each of \d+ anchors, got the shape"):
        train(allocator)


def test_a_share_of_a_training_is_of_what_is_left_of_it():
    model = train(BudgetAllocatorCallback(warmup=64))
    starts = Starts()
    late = BudgetAllocatorCallback("uniform", warmup=0.25, floor=0.0, ramp=0.5)
    model.learn(1536, callback=[late, starts], reset_num_timesteps=False, log_interval=1000)
    # After 3/4 of it the ramp is over.
    assert model.logger.name_to_value["budget/start_strength"] == 1.0
    assert late._strength.strength(768 + 384 + 384) == pytest.approx(0.5)


def test_its_time_is_all_that_it_takes(monkeypatch):
    close = RolloutNotes.close
    monkeypatch.setattr(RolloutNotes, "close", lambda notes, buffer: (sleep(0.1), close(notes, buffer)))
    allocator = BudgetAllocatorCallback("novelty", warmup=64)
    train(allocator, 512)
    # Four rollouts.
    assert allocator.seconds >= 0.4
