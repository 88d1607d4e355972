"""Whatever options add to a model is saved with it, and a file of GRPO can be read by PPO."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest
import torch as th
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

from sb3_budget import GRPO, ConvergenceGate, SelectiveRolloutCallback, StartPool
from tests.algorithms.test_grpo_whole_episodes import Corridor, Named, parameters

SMALL = {"n_steps": 8, "batch_size": 16, "n_epochs": 1, "seed": 0, "device": "cpu", "policy_kwargs": {"net_arch": [4]}}
#: Everything that adds a state of its own.
OPTIONS = {
    "plain": {},
    "memory": {"remember_peers": 2},
    "reference": {"beta": 0.1, "reference_interval": 3},
    "pool": {"start_rule": StartPool(6)},
    "whole": {"advantage": "return_to_go", "beta": 0.1},
    "all": {"advantage": "outcome", "beta": 0.1, "start_rule": StartPool(6), "clip_range_high": 0.3},
}


def envs(n_envs=4, env=Corridor):
    return make_vec_env(env, n_envs, seed=0)


def make(name="plain", **kwargs):
    # A pool belongs to one model.
    options = {key: StartPool(6) if key == "start_rule" else value for key, value in OPTIONS[name].items()}
    return GRPO("MlpPolicy", envs(), group_size=2, **{**SMALL, **options, **kwargs})


def flat(policy):
    return th.cat([parameter.detach().flatten() for parameter in policy.parameters()]).numpy()


@pytest.mark.parametrize("name", OPTIONS)
def test_a_loaded_model_holds_what_was_saved_and_goes_on(name, tmp_path):
    model = make(name).learn(128)
    model.save(tmp_path / "model")
    loaded = GRPO.load(tmp_path / "model", env=envs(), device="cpu")
    np.testing.assert_array_equal(parameters(loaded), parameters(model))
    if model.beta:
        reference = flat(model.reference_policy.policy)
        np.testing.assert_array_equal(flat(loaded.reference_policy.policy), reference)
        assert (reference != parameters(model)).any()
    if model.start_rule is not None:
        assert loaded.start_rule.starts == model.start_rule.starts
        np.testing.assert_array_equal(loaded.start_rule.entries.visits, model.start_rule.entries.visits)
    loaded.learn(128, reset_num_timesteps=False)
    assert loaded.num_timesteps == 256 and (parameters(loaded) != parameters(model)).any()
    # Once more, from a file that was written without an update in between.
    loaded.save(tmp_path / "again")
    again = GRPO.load(tmp_path / "again")
    again.save(tmp_path / "third")
    third = GRPO.load(tmp_path / "third", env=envs())
    np.testing.assert_array_equal(parameters(third), parameters(loaded))
    if model.beta:
        np.testing.assert_array_equal(flat(third.reference_policy.policy), flat(loaded.reference_policy.policy))


@pytest.mark.parametrize("name", OPTIONS)
def test_going_on_is_the_same_as_not_stopping(name):
    whole = make(name).learn(256)
    parts = make(name).learn(128)
    np.testing.assert_array_equal(parameters(whole), parameters(parts.learn(128, reset_num_timesteps=False)))


def test_a_gate_goes_on_with_the_training():
    def gate():
        alike = ConvergenceGate(3, threshold=0.4, calibration_groups=0, arm_at=0.0)
        return SelectiveRolloutCallback(alike, warmup=0, horizon=12)

    callback, runs = gate(), []
    model = make("whole").learn(256, callback=callback)
    assert (before := callback.gate.n_cut) > 0
    model.learn(256, callback=callback, reset_num_timesteps=False)
    assert callback.gate.n_cut > before
    for _ in range(2):
        again = gate()
        model = make("whole").learn(256, callback=again).learn(256, callback=again, reset_num_timesteps=False)
        runs.append(parameters(model))
    np.testing.assert_array_equal(*runs)


@pytest.mark.parametrize("name", OPTIONS)
def test_ppo_reads_the_file(name, tmp_path):
    model = make(name).learn(64)
    model.save(tmp_path / "model")
    for n_envs in (1, 4):
        ppo = PPO.load(tmp_path / "model", env=envs(n_envs), device="cpu")
        np.testing.assert_array_equal(parameters(ppo), parameters(model))
    assert not hasattr(ppo.rollout_buffer, "group_size")
    observation = envs(1).reset()
    expected, found = (each.predict(observation, deterministic=True)[0] for each in (model, ppo))
    np.testing.assert_array_equal(found, expected)
    ppo.learn(32)
    assert PPO.load(tmp_path / "model").num_timesteps == 64


def test_grpo_takes_over_the_parameters_of_ppo(tmp_path):
    ppo = PPO("MlpPolicy", envs(), **SMALL).learn(64)
    ppo.save(tmp_path / "ppo")
    for name in ("plain", "reference"):
        model = make(name)
        model.set_parameters(str(tmp_path / "ppo"))
        np.testing.assert_array_equal(parameters(model), parameters(ppo))
        model.learn(64)
    # The training began with it.
    np.testing.assert_array_equal(flat(model.reference_policy.policy), parameters(ppo))
    assert make("reference").get_parameters().keys() == ppo.get_parameters().keys()
    make("reference").set_parameters(model.get_parameters())


def test_a_model_without_a_reference_begins_with_one_where_it_is_asked_for(tmp_path):
    plain, with_one = make().learn(64), make("reference").learn(64)
    plain.save(tmp_path / "without")
    with_one.save(tmp_path / "with")
    started = GRPO.load(tmp_path / "without", env=envs(), beta=0.1).learn(64)
    np.testing.assert_array_equal(flat(started.reference_policy.policy), parameters(plain))
    assert GRPO.load(tmp_path / "with", beta=0.0, reference_interval=None).reference_policy is None


def test_what_is_excluded_begins_anew(tmp_path):
    model = make("all").learn(64)
    model.save(tmp_path / "model", exclude=["reference_policy", "start_rule", "_starts"])
    loaded = GRPO.load(tmp_path / "model", env=envs())
    assert loaded.start_rule is None and loaded._starts is None
    loaded.learn(64, reset_num_timesteps=False)
    np.testing.assert_array_equal(flat(loaded.reference_policy.policy), parameters(model))


def test_custom_objects_replace_what_was_saved(tmp_path):
    make("all").learn(64).save(tmp_path / "model")
    pool = StartPool(3, seed=5)
    custom = {"start_rule": pool, "learning_rate": 0.0, "lr_schedule": lambda _: 0.0}
    loaded = GRPO.load(tmp_path / "model", env=envs(), custom_objects=custom)
    before = parameters(loaded)
    loaded.learn(128, reset_num_timesteps=False)
    assert loaded.start_rule is pool and pool.entries.visits.sum() > 0
    np.testing.assert_array_equal(parameters(loaded), before)


def test_a_file_in_memory_and_what_it_consists_of():
    file = io.BytesIO()
    make("reference").learn(64).save(file)
    assert sorted(name for name in zipfile.ZipFile(file).namelist() if name.endswith(".pth")) == [
        "policy.optimizer.pth",
        "policy.pth",
        "pytorch_variables.pth",
    ]
    file.seek(0)
    assert GRPO.load(file).reference_policy.policy is not None


@pytest.mark.parametrize("name", OPTIONS)
def test_another_environment_may_be_set(name):
    model = make(name).learn(64)
    model.set_env(envs())
    model.learn(64, reset_num_timesteps=False)
    with pytest.raises(AssertionError, match="number of environments"):
        model.set_env(envs(2))


def test_dict_observations_are_read_by_ppo(tmp_path):
    model = GRPO("MultiInputPolicy", envs(env=Named), group_size=2, advantage="outcome", beta=0.1, **SMALL).learn(64)
    model.save(tmp_path / "model")
    PPO.load(tmp_path / "model", env=envs(1, Named)).learn(8)


@pytest.mark.gpu
def test_a_model_moves_between_devices(tmp_path):
    if not th.cuda.is_available():
        pytest.skip("no CUDA")
    make("all", device="cuda").learn(64).save(tmp_path / "model")
    loaded = GRPO.load(tmp_path / "model", env=envs(), device="cpu")
    assert next(loaded.reference_policy.policy.parameters()).device.type == "cpu"
    loaded.learn(64, reset_num_timesteps=False)
