from __future__ import annotations

import pytest
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

from sb3_budget import GRPO, EpisodeControlVecEnv
from sb3_budget.bench import arms, run
from sb3_budget.bench.settings import default_settings
from sb3_budget.callbacks.selective_rollout_callback import MIN_SURVIVAL
from sb3_budget.core.gates import QuantileGate, RandomGate
from sb3_budget.vec_env.staggered_reset_vec_env import StaggeredResetVecEnv

SETTINGS = default_settings("CartPole-v1")
REFERENCE = arms.Reference(0.3, 84.6)


def test_stock_gets_nothing_of_ours():
    venv = make_vec_env("CartPole-v1", 2)
    assert arms.wrap("stock", venv, SETTINGS, 0) is venv
    assert arms.callback("stock", SETTINGS, 0, None) is None
    assert arms.buffer("stock", SETTINGS, venv.observation_space) == {}


@pytest.mark.parametrize(
    "name",
    [name for name, arm in arms.ARMS.items() if name != "stock" and not (arm.group_size or arm.allocator or arm.replay)],
)
def test_every_other_arm_is_staggered(name):
    assert isinstance(arms.wrap(name, make_vec_env("CartPole-v1", 2), SETTINGS, 0), StaggeredResetVecEnv)


def test_arms_with_groups_differ_in_their_advantages_only():
    starts = []
    for name in ("grpo", "grouped"):
        venv = arms.wrap(name, make_vec_env("CartPole-v1", 8, seed=0), SETTINGS, 3)
        assert isinstance(venv, EpisodeControlVecEnv)
        algorithm, own = arms.algorithm(name, 0)
        model = algorithm("MlpPolicy", venv, n_steps=8, batch_size=64, seed=3, device="cpu", **own)
        model.learn(64)
        first = venv.reset().reshape(2, 4, -1)
        assert (first == first[:, :1]).all() and (first[0] != first[1]).any()
        starts.append((algorithm, own))
    assert starts == [(GRPO, {"group_size": 4}), (PPO, {})]
    assert arms.algorithm("grpo-8", 0) == (GRPO, {"group_size": 8})


@pytest.mark.parametrize(("name", "quantile"), [("select", 0.25), ("full", 0.4)])
def test_gated_arms_have_their_quantile(name, quantile):
    callback = arms.callback(name, SETTINGS, 0, None)
    assert isinstance(callback.gate, QuantileGate)
    assert callback.gate.quantile == quantile


def test_a_file_that_switches_staggering_on_later_does_not_switch_the_arm_off():
    settings = SETTINGS._replace(stagger={"enabled": False})
    assert arms.wrap("stagger", make_vec_env("CartPole-v1", 2), settings, 0).enabled


def test_random_gate_stops_at_the_rate_it_copies():
    callback = arms.callback("random-gate", SETTINGS, 0, REFERENCE)
    assert isinstance(callback.gate, RandomGate)
    assert callback.min_survival == MIN_SURVIVAL
    assert callback.gate.probability == 0.3


def test_short_horizon_looks_once_per_mean_length_and_always_stops():
    callback = arms.callback("short-horizon", SETTINGS, 0, REFERENCE)
    assert (callback.gate.probability, callback.check_interval, callback.grace, callback.audit_fraction) == (1.0, 85, 85, 0.0)


def test_control_without_the_run_it_copies_is_an_error():
    with pytest.raises(ValueError, match="copies full"):
        arms.callback("random-gate", SETTINGS, 0, None)


def test_settings_of_an_arm_override_its_gate_but_not_a_control():
    settings = SETTINGS._replace(selective={"gate": "QuantileGate(0.1)", "check_interval": 7})
    full = arms.callback("full+low", settings, 0, None)
    assert (full.gate.quantile, full.check_interval) == (0.1, 7)
    control = arms.callback("random-gate", settings, 0, REFERENCE)
    assert isinstance(control.gate, RandomGate)
    assert control.check_interval == 7


def test_labelled_control_copies_the_arm_with_its_label():
    assert arms.copied_arm("random-gate+low") == "full+low"
    assert arms.copied_arm("full+low") is None


@pytest.mark.parametrize("name", ["fool", "full+", "", "+low"])
def test_unknown_arm_is_an_error(name):
    with pytest.raises(ValueError, match="unknown arm"):
        arms.split(name)


def test_rate_counts_the_stops_that_the_audit_spared():
    result = {"env": "e", "arm": "full", "seed": 0, "looks": 100, "stops": 27, "rejections": 30, "mean_length": 50.0}
    assert run.reference(result) == (pytest.approx(0.3), 50.0)


@pytest.mark.parametrize("part", [{"looks": 0}, {"mean_length": None}])
def test_a_run_too_short_to_copy_is_an_error(part):
    result = {"env": "e", "arm": "full", "seed": 0, "looks": 9, "stops": 2, "rejections": 3, "mean_length": 50.0, **part}
    with pytest.raises(ValueError, match="too short"):
        run.reference(result)


def test_arms_of_grpo_with_a_gate_train_and_their_controls_copy_them():
    venv = make_vec_env("CartPole-v1", 8, seed=0)
    algorithm, own = arms.algorithm("grpo+select", 0)
    model = algorithm(
        "MlpPolicy",
        arms.wrap("grpo+select", venv, SETTINGS, 3),
        n_steps=8,
        batch_size=64,
        device="cpu",
        **own,
        **arms.buffer("grpo+select", SETTINGS, venv.observation_space),
    )
    callback = arms.callback("grpo+select", SETTINGS, 3, None)
    model.learn(128, callback=callback)
    assert isinstance(model, GRPO) and callback.gate.quantile == 0.25
    assert arms.copied_arm("grpo+random-gate") == arms.copied_arm("grpo+short-horizon") == "grpo+select"
    assert arms.copied_arm("grpo+random-gate+low") == "grpo+select+low"
    assert arms.split("grpo+low") == (arms.ARMS["grpo"], "+low")
