"""The audit's record, the logs, and what survives saving, loading and a second call of learn."""

from __future__ import annotations

import numpy as np
import pytest
import torch as th
from stable_baselines3.common.callbacks import BaseCallback

from sb3_budget.callbacks.selective_rollout_callback import SelectiveRolloutCallback
from sb3_budget.core.gates import QuantileGate
from sb3_budget.vec_env.staggered_reset_vec_env import StaggeredResetVecEnv
from tests.callbacks.clock import GAMMA, StopAt, clocks, collect, collector, eager, never, value

pytestmark = pytest.mark.filterwarnings("ignore:The gate takes")  # these environments cost less than any gate


def audited(gate, **kwargs):
    return eager(gate, audit_fraction=1.0, audit_step_fraction=1.0, **kwargs)


def discounted(first, last):
    """Discounted rewards of a clock from one age to another."""
    return sum((1 + age) * GAMMA ** (age - first) for age in range(first, last))


@pytest.mark.parametrize("end", [{"length": 8}, {"horizon": 8}])
def test_an_audit_of_everything_stops_nothing_and_measures_exactly(end):
    venv = clocks(1, **end)
    callback, untrained = audited(StopAt(5)), collector(venv).policy
    recorder, _ = collect(callback, venv, n_steps=16)
    assert [(info["reason"], info["length"], info["audited"]) for _, info in recorder.ends] == [
        ("terminated" if "length" in end else "time_limit", 8, True)
    ] * 2
    assert callback.n_stops == 0
    at_5, at_8 = value(untrained, 5.0, 8.0)
    tail = discounted(5, 8) + (0.0 if "length" in end else GAMMA**3 * at_8)
    statistics = callback._audit.statistics()
    assert statistics.n == 2
    assert statistics.value_bias == pytest.approx(at_5 - tail, rel=1e-5)
    assert statistics.value_rmse == pytest.approx(abs(at_5 - tail), rel=1e-5)
    # With one slot the reference is its own value.
    assert statistics.precision == float(tail < at_5)


@pytest.mark.parametrize("rule", ["critic", "target", "none"])
def test_an_audited_episode_that_the_user_stops_is_completed_once(rule):
    venv = clocks(1)

    class Stop(BaseCallback):
        def _on_step(self):
            if self.num_timesteps == 7:
                venv.request_stop(0)
            return True

    callback, model = audited(StopAt(5), bootstrap=rule, tau=1.0), collector(venv, n_steps=8)
    at_8 = value(model.policy, 8.0)[0]
    model.learn(8, callback=[callback, Stop()])
    assert callback._audit._records[0].tail == pytest.approx(discounted(5, 8) + GAMMA**3 * at_8)


def test_an_episode_is_drawn_once_at_its_first_rejection():
    callback = eager(StopAt(5, 6, 7, 8), audit_fraction=0.5, audit_step_fraction=1.0, seed=0)
    recorder, _ = collect(callback, clocks(400, length=12), n_steps=12)
    first = {}
    for slot, end in recorder.ends:
        first.setdefault(slot, end)
    assert {(end["length"], end["audited"]) for end in first.values()} == {(7, False), (12, True)}
    assert 150 < sum(end["audited"] for end in first.values()) < 250


def test_audited_steps_stay_below_their_share():
    callback = eager(StopAt(2), audit_fraction=1.0, audit_step_fraction=0.1)
    collect(callback, clocks(8, length=20), n_rollouts=8)
    assert 0.0 < callback._audit.steps / callback._audit.total_steps < 0.15
    assert callback.n_stops > 0


def test_a_second_learn_resets_what_belongs_to_the_episodes():
    venv = clocks(2, length=30)
    callback, model = audited(StopAt(5)), collector(venv, n_steps=8)
    model.learn(16, callback=callback)
    assert callback._audit.running.all()
    model.learn(16, callback=callback, reset_num_timesteps=False)
    assert callback._audit.running.all() and callback._tracker.lengths.tolist() == [16, 16]
    model.learn(16, callback=audited(never))
    model.learn(16, callback=callback)
    assert callback._tracker.lengths.tolist() == [8, 8] and callback._audit.statistics().n == 0


def test_log_keys_are_short_distinct_and_ours():
    venv = StaggeredResetVecEnv(clocks(4, wrapper=None, horizon=12), horizon=12)
    callback = eager(StopAt(5), audit_fraction=0.5, audit_step_fraction=1.0, seed=0)
    recorder, _ = collect(callback, venv, n_rollouts=3, rollout_buffer_kwargs={"early_weight": 0.5})
    log = {key: entry for key, entry in recorder.logs[-1].items() if key.startswith("budget/")}
    expected = """env_steps_total resets gate_time_fraction terminated_ratio time_limit_ratio stopped_ratio
        lifetime lifetime_mean lifetime_min lifetime_max complete_return_mean audit_n audit_precision
        audit_value_bias audit_value_rmse effective_samples weight_mean adv_mean_stopped adv_mean_complete adv_distance"""
    assert {f"budget/{key}" for key in expected.split()} <= set(log)
    assert all(len(key) <= 36 for key in log)
    assert len({key[:36] for key in log}) == len(log)
    lifetimes = log.pop("budget/lifetime")
    assert isinstance(lifetimes, th.Tensor) and lifetimes.min() == log["budget/lifetime_min"]
    assert all(np.isfinite(entry) for entry in log.values())
    assert log["budget/env_steps_total"] == 3 * 16 * 4


def test_a_costly_gate_is_reported_once():
    with pytest.warns(UserWarning, match="The gate takes .* of the time of collecting rollouts") as caught:
        collect(eager(lambda view: np.linalg.svd(np.ones((150, 150)))[1][:1] > 1e9), clocks(1), n_steps=2, n_rollouts=15)
    assert len(caught) == 1


def test_save_and_load_keep_window_record_counters_and_generator(tmp_path):
    # All episodes end by themselves here.
    anyway = {"min_survival": 0.0, "bootstrap": "target", "tau": 0.5}
    callback = eager(QuantileGate(0.6), audit_fraction=0.3, audit_step_fraction=1.0, **anyway)
    collect(callback, clocks(8, length=12), n_rollouts=3)
    callback.save(tmp_path / "gate.pkl")
    other = eager(0.1, **anyway)
    other.load(tmp_path / "gate.pkl")
    np.testing.assert_array_equal(other.gate._windows[-1].scores, callback.gate._windows[-1].scores)
    assert other.gate.quantile == 0.6
    assert (other.n_stops, other.n_looks) == (callback.n_stops, callback.n_looks) != (0, 0)
    assert other._audit.statistics() == callback._audit.statistics()
    model = collector(clocks(8, length=12))
    other.init_callback(model)
    for key, weights in callback.bootstrap.target_state().items():
        assert th.equal(weights, other.bootstrap.target_state()[key])
    assert other._rng.random() == callback._rng.random()
    collect(other, clocks(8, length=12))


def test_a_model_with_the_buffer_saves_and_goes_on(tmp_path):
    venv = clocks(4, length=12)
    callback = eager(0.5)
    _, model = collect(callback, venv, n_rollouts=2, rollout_buffer_kwargs={"early_weight": 0.5})
    model.save(tmp_path / "model.zip")
    loaded = type(model).load(tmp_path / "model.zip", env=venv, device="cpu")
    loaded.learn(64, callback=callback, reset_num_timesteps=False)
    assert callback.n_stops > 0


def test_a_number_is_the_quantile_of_a_quantile_gate():
    assert isinstance(SelectiveRolloutCallback(0.3).gate, QuantileGate)
    assert SelectiveRolloutCallback(0.3).gate.quantile == 0.3
