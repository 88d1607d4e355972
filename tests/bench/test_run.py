from __future__ import annotations

import numpy as np
import pytest
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecNormalize

from sb3_budget.bench import arms, recorder, run
from sb3_budget.bench.settings import Settings

# CartPole episodes of an untrained policy end before any offset.
# Four slots are too few for the costs of a gate to be small beside them.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Staggered resets cannot help"),
    pytest.mark.filterwarnings("ignore:The gate takes"),
]

#: All of their episodes end by themselves, where a gate by default waits.
SETTINGS = Settings(4, True, {"n_steps": 16, "batch_size": 32, "n_epochs": 1}, {}, {}, {"min_survival": 0.0}, {}, {})


def job(arm="stock", **changes):
    return run.Job("CartPole-v1", arm, 0, SETTINGS, 640, evals=2, eval_episodes=3)._replace(**changes)


def test_a_run_reports_its_curve_and_its_budget():
    counted = []
    result = run.run(job(), counted.append)
    points = np.array(result["points"])
    np.testing.assert_array_equal(points[:, 0], [0, 320, 640])
    assert (np.diff(points[:, 1]) > 0).all()
    assert result["ledger"]["total_steps"] == 640 == sum(counted)
    assert result["episodes"]["terminated"] > 0
    assert result["mean_length"] > 1


def test_the_record_holds_what_the_algorithm_logs_after_its_rollouts_and_all_resets():
    grouped = run.run(job("grpo"), lambda _: None)
    assert "budget/group_coefficient" in grouped["log"]
    stock = run.run(job(), lambda _: None)
    assert stock["ledger"]["resets"] == 4 + sum(stock["episodes"].values())


def test_evaluations_of_different_seeds_share_no_start():
    slots = {run.evaluation_seed(job(seed=seed)) + slot for seed in range(10) for slot in range(100)}
    assert len(slots) == 10 * 100
    assert run.evaluation_seed(job("full")) == run.evaluation_seed(job("stock"))


@pytest.mark.parametrize("arm", [name for name in arms.ARMS if name != "stock"])
def test_every_arm_trains_and_spends_the_same_ledger(arm):
    reference = arms.Reference(0.5, 15.0) if arms.copied_arm(arm) else None
    settings = SETTINGS._replace(n_envs=arms.split(arm)[0].group_size or SETTINGS.n_envs)
    result = run.run(job(arm, settings=settings, reference=reference), lambda _: None)
    # An archive checks once in a process that its states are exact, and that is in the ledger too.
    verification = result["ledger"]["verification_steps"]
    assert verification == 0 or arms.split(arm)[0].allocator is not None
    assert 640 <= result["ledger"]["total_steps"] < 640 + verification + 128
    assert len(result["points"]) == 3
    assert (result["looks"] > 0) == arms.split(arm)[0].selective


def test_training_ends_with_the_ledger_and_not_with_the_learning_steps():
    settings = SETTINGS._replace(stagger={"mode": "warmup", "horizon": 60})
    result = run.run(job("stagger", settings=settings), lambda _: None)
    assert result["ledger"]["warmup_steps"] > 0
    assert result["ledger"]["learning_steps"] < 640
    assert 640 <= result["points"][-1][0] < 640 + 64


def test_same_seed_same_returns_whatever_the_evaluations():
    often, seldom = (run.run(job("full", evals=evals), lambda _: None) for evals in (4, 1))
    assert often["points"][-1][3:] == seldom["points"][-1][3:]


def test_what_stochastic_evaluations_draw_changes_nothing_that_training_draws():
    finals = []
    for evals in (4, 1):
        given = job("full", evals=evals)._replace(stochastic=True)
        finals.append(run.run(given, lambda _: None)["points"][-1][3:])
    assert finals[0] == finals[1]


def test_stochastic_evaluations_repeat_and_differ_from_the_likeliest_actions():
    model, *_ = run.build(job())
    model.learn(640)
    venv = make_vec_env("CartPole-v1", 5)
    drawn = [recorder.evaluate(model, venv, seed=3, deterministic=False).tolist() for _ in range(2)]
    assert drawn[0] == drawn[1] != recorder.evaluate(model, venv, seed=3).tolist()


def test_stock_is_sb3_to_the_bit():
    model, *_ = run.build(job())
    model.learn(640)
    venv = VecNormalize(make_vec_env("CartPole-v1", 4, seed=0))
    plain = PPO("MlpPolicy", venv, seed=0, device="cpu", **SETTINGS.ppo).learn(640)
    for ours, theirs in zip(model.policy.parameters(), plain.policy.parameters(), strict=True):
        np.testing.assert_array_equal(ours.detach().numpy(), theirs.detach().numpy())


def test_evaluation_agrees_with_sb3_on_one_episode_per_slot():
    model, *_ = run.build(job())
    model.learn(640)
    normalizer = model.get_vec_normalize_env()
    ours = recorder.evaluate(model, make_vec_env("CartPole-v1", 5), seed=3)
    venv = VecNormalize(make_vec_env("CartPole-v1", 5), training=False, norm_reward=False)
    venv.obs_rms = normalizer.obs_rms
    venv.seed(3)
    theirs, _ = evaluate_policy(model, venv, n_eval_episodes=5, return_episode_rewards=True)
    assert sorted(ours) == sorted(theirs)


def test_hashes_tell_settings_and_runs_apart():
    assert job().settings_hash == job(seed=1).settings_hash
    assert job().run_hash != job(seed=1).run_hash
    assert job().settings_hash != job(settings=SETTINGS._replace(n_envs=5)).settings_hash
    assert job().settings_hash != job()._replace(stochastic=True).settings_hash
    assert job().run_hash != job(reference=arms.Reference(0.1, 2.0)).run_hash
