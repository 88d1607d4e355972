"""What cannot work is refused before the first step, with the fix."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from stable_baselines3 import DQN
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import CallbackList, EveryNTimesteps
from stable_baselines3.common.vec_env import DummyVecEnv

from sb3_budget.callbacks.selective_rollout_callback import SelectiveRolloutCallback
from sb3_budget.core.gates import ConfidenceGate
from sb3_budget.vec_env.episode_control_vec_env import EpisodeControlVecEnv
from sb3_budget.vec_env.staggered_reset_vec_env import StaggeredResetVecEnv
from tests.callbacks.clock import Clock, StopAt, assert_same_parameters, clocks, collector, eager, never


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"gate": 1.5}, "quantile=1.5"),
        ({"check_interval": 0}, "check_interval must be positive"),
        ({"check_interval": -3}, "check_interval=-3"),
        ({"grace": 1.5}, "grace=1.5"),
        ({"warmup": -0.1}, "warmup=-0.1"),
        ({"horizon": 0}, "horizon=0"),
        ({"stop_probability": 0.0}, "stop_probability=0.0"),
        ({"audit_fraction": 1.1}, "audit_fraction=1.1"),
        ({"audit_step_fraction": -0.1}, "audit_step_fraction=-0.1"),
        ({"min_active": -1}, "must not be negative"),
        ({"max_stops_per_check": -1}, "must not be negative"),
        ({"max_stops_per_rollout": -1}, "must not be negative"),
        ({"bootstrap": "mean"}, "bootstrap='mean'"),
        ({"bootstrap": "target", "tau": 0.0}, "tau=0.0"),
        ({"bootstrap": "heads"}, "set gate_head"),
    ],
)
def test_arguments_out_of_range_are_refused(kwargs, message):
    with pytest.raises(ValueError, match=message):
        SelectiveRolloutCallback(**kwargs)


def refused(message, callback, venv, **kwargs):
    model = collector(venv, **kwargs)
    before = model.num_timesteps
    with pytest.raises(ValueError, match=message):
        model.learn(32, callback=callback)
    assert model.num_timesteps == before


def test_without_our_wrapper():
    refused("needs StaggeredResetVecEnv or EpisodeControlVecEnv", eager(never), clocks(1, wrapper=None))


@pytest.mark.parametrize("wrapper", [EpisodeControlVecEnv, StaggeredResetVecEnv])
def test_with_a_disabled_wrapper(wrapper):
    refused("enabled=False", eager(never), clocks(2, wrapper=lambda venv: wrapper(venv, enabled=False)))


@pytest.mark.parametrize("nest", [lambda callback: callback, lambda callback: CallbackList([callback])])
def test_inside_an_event_callback(nest):
    refused("inside EveryNTimesteps", EveryNTimesteps(8, nest(eager(never))), clocks(1))


def test_a_coin_without_a_selective_buffer():
    refused("SelectiveRolloutBuffer", eager(never, stop_probability=0.5), clocks(1), rollout_buffer_class=RolloutBuffer)


def test_a_head_that_the_policy_does_not_have():
    refused("gate_head=0", eager(never, gate_head=0), clocks(1))


def test_a_gate_of_several_critics_on_a_policy_with_one():
    refused("ConfidenceGate needs a policy with several critics", eager(ConfidenceGate(0.4)), clocks(1))


def test_no_slot_that_could_be_stopped():
    refused("min_active=2 of 2 slots", eager(never, min_active=2), clocks(2))


def test_fractions_of_an_unknown_horizon():
    venv = EpisodeControlVecEnv(DummyVecEnv([Clock]))
    refused("pass horizon=", eager(never, check_interval=0.1), venv)
    collector(venv).learn(16, callback=eager(never, check_interval=0.1, horizon=100))


def test_an_off_policy_algorithm():
    model = DQN("MlpPolicy", clocks(1), buffer_size=100, device="cpu")
    with pytest.raises(ValueError, match="needs an on-policy algorithm, not DQN"):
        model.learn(8, callback=eager(never))


def test_a_gate_of_another_shape_is_named():
    with pytest.raises(ValueError, match=r"mask of the shape \(2,\).* got \(2, 1\)"):
        collector(clocks(2)).learn(32, callback=eager(lambda view: view.look[:, None]))


def test_a_mask_of_integers_is_read_as_one():
    gate = StopAt(5, slots=[1])
    callback = eager(lambda view: gate(view).astype(np.int64), audit_fraction=0.5)
    collector(clocks(2)).learn(32, callback=callback)
    assert 0 < callback.n_rejections <= 3


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_rewards_that_are_not_finite_stop_the_training(bad):
    model = collector(clocks(1, reward=lambda age: bad if age == 3 else 1.0))
    before = copy.deepcopy(model.policy.state_dict())
    with pytest.raises(ValueError, match=rf"Reward {bad} or value .* of slot 0 is not finite in row 3"):
        model.learn(32, callback=eager(never))
    untouched = collector(clocks(1))
    untouched.policy.load_state_dict(before)
    assert_same_parameters(model, untouched)


def test_values_that_are_not_finite_stop_the_training():
    model = collector(clocks(1))
    model.policy.value_net.bias.data.fill_(float("nan"))
    with pytest.raises(ValueError, match="or value nan of slot 0 is not finite in row 0"):
        model.learn(32, callback=eager(never))
