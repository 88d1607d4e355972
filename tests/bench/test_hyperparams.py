from __future__ import annotations

import re
from pathlib import Path

import pytest
from torch import nn

from sb3_budget.bench.hyperparams import read_hyperparams
from sb3_budget.bench.literals import literal
from sb3_budget.bench.settings import algorithm_arguments

pytest.importorskip("yaml")

EXAMPLES = Path(__file__).parents[2] / "examples" / "hyperparams"

ZOO = """
HalfCheetah-v5:
  normalize: "dict(norm_obs=True, norm_reward=False)"
  n_envs: 2
  policy: 'MlpPolicy'
  n_timesteps: !!float 1e6
  batch_size: 64
  n_steps: 512
  gamma: 0.98
  learning_rate: lin_2e-4
  ent_coef: 3e-4
  clip_range: lin_0.2
  n_epochs: 20
  gae_lambda: 0.92
  max_grad_norm: 0.8
  vf_coef: 0.58
  policy_kwargs: "dict(log_std_init=-2,
                       ortho_init=False,
                       activation_fn=nn.ReLU,
                       net_arch=dict(pi=[256, 256], vf=[256, 256])
                       )"
  vec_env_wrapper: sb3_budget.StaggeredResetVecEnv
  callback:
    - sb3_budget.SelectiveRolloutCallback:
        gate: "QuantileGate(0.3, score='return')"
        check_interval: 10
"""


def write(tmp_path, text):
    path = tmp_path / "ppo.yml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_rl_zoo_entry_is_read_in_full(tmp_path):
    settings, steps = read_hyperparams(write(tmp_path, ZOO), "HalfCheetah-v5")
    assert steps == 1_000_000
    assert settings.n_envs == 2
    assert settings.normalize == {"norm_obs": True, "norm_reward": False}
    assert settings.selective == {"gate": "QuantileGate(0.3, score='return')", "check_interval": 10}
    arguments = algorithm_arguments(settings.ppo)
    assert arguments["ent_coef"] == 3e-4
    assert arguments["learning_rate"](0.5) == pytest.approx(1e-4)
    assert arguments["clip_range"](1.0) == pytest.approx(0.2)
    assert arguments["policy_kwargs"]["activation_fn"] is nn.ReLU
    assert arguments["policy_kwargs"]["net_arch"] == {"pi": [256, 256], "vf": [256, 256]}


def test_what_the_file_leaves_out_is_not_filled_from_our_defaults(tmp_path):
    settings, steps = read_hyperparams(write(tmp_path, "default: {n_epochs: 3}"), "CartPole-v1")
    assert (settings.n_envs, settings.normalize, settings.ppo, steps) == (1, False, {"n_epochs": 3}, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CartPole-v1: {env_wrapper: a.B}", "env_wrapper is not supported"),
        ("CartPole-v1: {frame_stack: 4}", "frame_stack is not supported"),
        ("CartPole-v1: {learning_rte: 0.1}", "unknown learning_rte"),
        ("CartPole-v1: {callback: stable_baselines3.common.callbacks.EvalCallback}", "EvalCallback is not supported"),
        ("CartPole-v1: {callback: [{sb3_budget.StaggeredResetCallback: {n_blocks: 3}}]}", "with arguments, n_blocks"),
        ("CartPole-v1: {policy_kwargs: \"dict(a=open('x'))\"}", "cannot read"),
        ("Pendulum-v1: {n_epochs: 3}", "no entry for CartPole-v1"),
        ("[1, 2]", "must map env ids"),
        ("a: [", "is no YAML"),
    ],
)
def test_what_cannot_be_done_is_refused_with_a_reason(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        read_hyperparams(write(tmp_path, text), "CartPole-v1")


def test_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match="no hyperparameter file"):
        read_hyperparams(str(tmp_path / "none.yml"), "CartPole-v1")


@pytest.mark.parametrize("text", ["__import__('os')", "nn.__dict__", "1 + 1", "dict(**{})", "x", "(", "{**{}}"])
def test_literals_run_no_code(text):
    with pytest.raises(ValueError, match="cannot read"):
        literal(text, {"dict": dict, "nn": nn})


def test_literals_nest():
    assert literal("dict(a=[1, (-2.5, None)], b={'c': True})", {"dict": dict}) == {"a": [1, (-2.5, None)], "b": {"c": True}}


@pytest.mark.parametrize("page", ["misc/cli.md", "guide/rl_zoo.md"])
def test_the_files_in_the_docs_can_be_read(tmp_path, page):
    text = (EXAMPLES.parents[1] / "docs" / page).read_text()
    blocks = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert blocks
    for block in blocks:
        settings, _ = read_hyperparams(write(tmp_path, block), "HalfCheetah-v5")
        assert settings.n_envs == 64 and "gate" in settings.selective


def test_the_file_for_rl_zoo_can_be_read():
    settings, steps = read_hyperparams(str(EXAMPLES.parent / "zoo" / "ppo.yml"), "Pendulum-v1")
    assert (settings.stagger, settings.selective, steps) == ({"enabled": False}, {"gate": 0.4}, 300_000)


@pytest.mark.parametrize("name", ["one_env", "many_envs"])
def test_the_files_among_the_examples_can_be_read(name):
    settings = read_hyperparams(str(EXAMPLES / f"{name}.yml"), "HalfCheetah-v5")[0]
    arguments = algorithm_arguments(settings.ppo)
    assert settings.n_envs * arguments["n_steps"] % arguments["batch_size"] == 0
    assert arguments["policy_kwargs"]["activation_fn"] is nn.ReLU
