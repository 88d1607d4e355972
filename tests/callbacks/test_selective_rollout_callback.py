"""When stops happen, what they are marked as, and that nothing else changes."""

from __future__ import annotations

import copy

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium.wrappers import TimeLimit
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecNormalize

from sb3_budget.buffers.selective_rollout_buffer import SelectiveRolloutBuffer
from sb3_budget.callbacks.selective_rollout_callback import SelectiveRolloutCallback
from sb3_budget.core.gates import QuantileGate, RandomGate
from sb3_budget.policies.ensemble_actor_critic import EnsembleActorCriticPolicy
from sb3_budget.vec_env.episode_control_vec_env import EpisodeControlVecEnv
from tests.callbacks.clock import GAMMA, Clock, StopAt, assert_same_parameters, clocks, collect, collector, eager, never, value

pytestmark = pytest.mark.filterwarnings("ignore:The gate takes")  # these environments cost less than any gate


def trpo(*args, **kwargs):
    return pytest.importorskip("sb3_contrib").TRPO(*args, **kwargs)


@pytest.mark.parametrize("algorithm", [PPO, A2C, trpo])
def test_a_gate_that_never_stops_is_stock_bit_for_bit(algorithm):
    def train(wrap, callback=None, **kwargs):
        venv = VecNormalize(wrap(make_vec_env("CartPole-v1", n_envs=2, seed=0)))
        sizes = {PPO: {"batch_size": 20, "n_epochs": 2}, trpo: {"batch_size": 20}}.get(algorithm, {})
        return algorithm("MlpPolicy", venv, n_steps=30, seed=3, device="cpu", **sizes, **kwargs).learn(180, callback=callback)

    stock = train(lambda venv: venv)
    callback = SelectiveRolloutCallback(never, warmup=0, audit_fraction=0.0)
    ours = train(EpisodeControlVecEnv, callback, rollout_buffer_class=SelectiveRolloutBuffer)
    assert callback.n_looks > 0 and callback.n_stops == 0
    assert_same_parameters(stock, ours)


# ---------------------------------------------------------------------- timing


def test_a_stop_is_decided_by_the_past_and_served_at_the_next_step():
    gate = StopAt(5, slots=[0])
    recorder, model = collect(eager(gate), clocks(2))
    view = gate.views[0]
    # The rewards of a clock are 1, 2, 3 ...: five of them lie before the state of age 5.
    assert view.returns[0] == pytest.approx(sum((1 + k) * GAMMA**k for k in range(5)))
    assert view.obs.ravel().tolist() == [5.0, 5.0]
    assert recorder.reasons()[:2] == [(0, "stopped", 7), (0, "stopped", 7)]
    assert recorder.ends[0][1]["return"] == sum(range(1, 8)) and not recorder.ends[0][1]["audited"]
    stops = recorder.stops[0]
    assert np.flatnonzero(stops[:, 0]).tolist() == [6, 13] and not stops[:, 1].any()
    assert model.rollout_buffer.episode_starts[:, 0].nonzero()[0].tolist() == [0, 7, 14]


def test_values_of_a_view_are_those_of_the_present_state():
    gate = StopAt(5)
    model = collector(clocks(1))
    expected = value(model.policy, 5.0)
    model.learn(16, callback=eager(gate))
    np.testing.assert_allclose(gate.views[0].values, expected, rtol=1e-5)
    np.testing.assert_allclose(gate.views[0].initial_values, value(collector(clocks(1)).policy, 0.0), rtol=1e-5)


@pytest.mark.parametrize("age", [5, 6])
def test_a_natural_end_keeps_its_reason_and_clears_the_request(age):
    recorder, _ = collect(eager(StopAt(age)), clocks(1, horizon=7), n_steps=21)
    assert recorder.reasons() == [(0, "time_limit", 7)] * 3
    assert not recorder.stops[0].any()
    recorder, _ = collect(eager(StopAt(age)), clocks(1, length=7), n_steps=21)
    assert recorder.reasons() == [(0, "terminated", 7)] * 3


def test_a_request_on_the_last_step_is_served_in_the_next_rollout():
    recorder, _ = collect(eager(StopAt(5)), clocks(1), n_steps=6, n_rollouts=2)
    assert not recorder.stops[0].any()
    assert np.flatnonzero(recorder.stops[1]).tolist() == [0]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"check_interval": 3, "grace": 10}, [12, 15, 18, 21, 24, 27]),
        ({"check_interval": 0.1, "grace": 0.2, "horizon": 300}, [60, 90, 120]),
        ({"check_interval": 0.1, "grace": 0.2, "horizon": 50}, [40, 60, 80, 100, 120]),
    ],
    ids=["steps", "fractions", "fractions are 20 and 40 steps at least"],
)
def test_looks_come_at_the_interval_and_not_before_the_grace(given, expected):
    looked = []

    def gate(view):
        looked.extend(view.lengths[view.look].tolist())
        return never(view)

    steps = 30 if "horizon" not in given else 130
    collect(SelectiveRolloutCallback(gate, **given), clocks(1, horizon=200), n_steps=steps)
    assert looked == expected


@pytest.mark.parametrize(("gamma", "first"), [(0.98, 40), (0.99, 40), (0.995, 80), (0.998, 200)])
def test_a_fraction_is_not_shorter_than_what_the_discount_factor_looks_at(gamma, first):
    looked = []

    def gate(view):
        looked.extend(view.lengths[view.look].tolist())
        return never(view)

    venv = clocks(1, horizon=500)
    model = PPO("MlpPolicy", venv, n_steps=300, batch_size=300, n_epochs=1, gamma=gamma, device="cpu", seed=0)
    model.learn(300, callback=SelectiveRolloutCallback(gate, warmup=0))
    assert looked[0] == first


@pytest.mark.parametrize(
    ("horizon", "gamma", "message"),
    [
        (100, 0.9999, r"10000 steps that gamma=0\.9999 looks ahead.* at most 100 steps is not judged before step 4000"),
        (40, 0.9, r"grace=0\.04 stands for at least 40 steps.* at most 40 steps is not judged before step 40"),
    ],
)
def test_a_gate_that_its_grace_silences_says_so_once_and_steps_overrule_it(horizon, gamma, message):
    def looks(**given):
        callback = SelectiveRolloutCallback(never, warmup=0, **given)
        model = PPO("MlpPolicy", clocks(1, horizon=horizon), n_steps=64, gamma=gamma, device="cpu", seed=0)
        model.learn(128, callback=callback)
        model.learn(128, callback=callback)
        return callback.n_looks

    with pytest.warns(UserWarning, match=message) as warned:
        assert looks() == 0
    assert len(warned) == 1
    assert looks(grace=20) > 0


def test_a_horizon_that_was_found_is_found_anew_in_another_environment():
    callback, model = SelectiveRolloutCallback(never, check_interval=0.5, warmup=0), collector(clocks(1, horizon=100))
    model.learn(16, callback=callback)
    assert callback._times.interval == 50
    model.set_env(clocks(1, horizon=1000))
    model.learn(16, callback=callback)
    assert callback._times.interval == 500


def test_a_schedule_sees_the_present_progress_in_each_training():
    seen = []

    def gate(view):
        seen.append(view.progress_remaining)
        return never(view)

    callback, model = eager(gate), collector(clocks(1), n_steps=8)
    for _ in range(2):
        seen.clear()
        model.learn(32, callback=callback)
        np.testing.assert_allclose(seen, 1.0 - np.arange(1, 33) / 32)
    seen.clear()
    model.learn(32, callback=callback, reset_num_timesteps=False)
    np.testing.assert_allclose(seen, 1.0 - np.arange(33, 65) / 64)


def test_a_continued_training_knows_the_latest_info_and_a_new_callback_waits_for_it():
    class Notes(gym.Wrapper):
        def step(self, action):
            *step, _ = self.env.step(action)
            return *step, {"age": self.env.unwrapped.age}

    def gate(view):
        seen.append([info.get("age") for info, looked in zip(view.infos, view.look, strict=True) if looked])
        return never(view)

    seen = []
    venv = EpisodeControlVecEnv(DummyVecEnv([lambda: Notes(Clock())]))
    callback, model = eager(gate), collector(venv, n_steps=4)
    model.learn(4, callback=callback)
    model.learn(4, callback=callback, reset_num_timesteps=False)
    model.learn(4, callback=eager(gate), reset_num_timesteps=False)
    # No episode is judged at its first step, nor by a callback that has not seen it yet.
    assert seen == [[], *[[age] for age in range(1, 8)], [], [9], [10], [11]]


# ---------------------------------------------------------------------- bootstrap


@pytest.mark.parametrize("rule", ["critic", "target", "none"])
def test_the_last_reward_holds_what_the_rule_says(rule):
    venv = clocks(1)
    model = collector(venv)
    initial, final = copy.deepcopy(model.policy), copy.deepcopy(model.policy)
    with th.no_grad():
        for first, last in zip(initial.parameters(), final.parameters(), strict=True):
            first.add_(0.01 * 0.25)  # the target after one update
            last.add_(0.01)
    model.learn(32, callback=eager(StopAt(5), bootstrap=rule, tau=0.25))
    row = int(np.flatnonzero(model.rollout_buffer.stops)[0])
    age = recorded_age(model, row)
    worth = {"critic": value(final, age)[0], "target": value(initial, age)[0], "none": 0.0}[rule]
    assert model.rollout_buffer.rewards[row, 0] == pytest.approx(age + GAMMA * worth, rel=1e-5)


def recorded_age(model, row):
    """The age that the step of a row led to."""
    return float(model.rollout_buffer.observations[row].item()) + 1.0


def test_heads_that_did_not_judge_complete_the_return():
    gate = StopAt(5)
    model = collector(clocks(1), policy=EnsembleActorCriticPolicy, policy_kwargs={"net_arch": [4], "n_critics": 3})
    with th.no_grad():
        at_5, at_7 = model.policy.predict_value_heads(th.tensor([[5.0], [7.0]])).T.numpy()
    model.learn(16, callback=eager(gate, bootstrap="heads", gate_head=1))
    np.testing.assert_allclose(gate.views[0].values, [at_5[1]], rtol=1e-5)
    assert model.rollout_buffer.rewards[6, 0] == pytest.approx(7.0 + GAMMA * (at_7[0] + at_7[2]) / 2, rel=1e-5)


# ---------------------------------------------------------------------- caps, coins, warm-up


@pytest.mark.parametrize("cap", [{"max_stops_per_check": 1}, {"min_active": 3}, {"max_stops_per_rollout": 1}])
def test_caps_bound_the_stops(cap):
    recorder, _ = collect(eager(StopAt(5), **cap), clocks(4), n_steps=8)
    assert [reason for _, reason, _ in recorder.reasons()] == ["stopped"]


def test_repeated_cuts_leave_min_active_slots_and_keep_the_caps():
    venv, sizes = clocks(8), []
    request = venv.request_stop
    venv.request_stop = lambda slots: sizes.append(len(slots)) or request(slots)
    rng = np.random.default_rng(0)
    gate = QuantileGate(0.9, score=lambda view: rng.normal(size=len(view.values)))
    callback = eager(gate, min_active=5, max_stops_per_rollout=7)
    collect(callback, venv, n_rollouts=4)
    assert max(sizes) == 3 and sum(sizes) == callback.n_stops == 4 * 7


def test_one_slot_can_be_stopped():
    recorder, _ = collect(eager(StopAt(2)), clocks(1))
    assert recorder.reasons()[0] == (0, "stopped", 4)


def test_survivors_weigh_what_the_coin_took_from_the_row_on_that_owes_it():
    callback = eager(StopAt(5, 6), stop_probability=0.5, min_active=0, seed=1)
    recorder, model = collect(callback, clocks(200, horizon=12), n_steps=12)
    factors, starts = recorder.factors[0], model.rollout_buffer.episode_starts.astype(bool)
    whole = ~starts[1:].any(axis=0)
    assert (factors[:7] == 1.0).all()
    # Row 7 owes its existence to the toss at age 5, row 8 to those at 5 and 6: the ages of the first episode are its rows.
    assert 20 < whole.sum() < 80
    assert (factors[7, whole] == 2.0).all() and (factors[8:, whole] == 4.0).all()
    stopped = recorder.stops[0]
    assert (factors[7][stopped[7]] == 2.0).all() and (factors[8:, stopped[:8].any(axis=0)] == 1.0).all()


def test_what_a_cap_spares_has_not_survived_a_toss():
    recorder, _ = collect(eager(StopAt(5), stop_probability=0.01, max_stops_per_check=2), clocks(8), n_steps=10)
    assert (recorder.factors[0][7] != 1.0).sum() == 2


def test_no_stop_before_the_warm_up_is_over():
    for warmup in (24, 0.5):
        recorder, _ = collect(eager(StopAt(5), warmup=warmup), clocks(1), n_rollouts=3)
        # Age 5 comes at step 6 of the only episode.
        assert recorder.reasons() == []
    assert collect(eager(StopAt(5), warmup=6), clocks(1))[0].reasons()


def test_no_stop_while_the_critic_explains_too_little():
    assert not collect(eager(StopAt(5), min_explained_variance=0.99), clocks(1, horizon=8), n_rollouts=3)[0].stops[-1].any()
    assert collect(eager(StopAt(5), min_explained_variance=-1e9), clocks(1, horizon=8), n_rollouts=3)[0].stops[-1].any()


# ---------------------------------------------------------------------- randomness


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")  # a fork is quick and safe here
def test_same_seed_same_parameters_on_either_kind_of_vec_env():
    def train(vec_env, seed):
        env_fns = [lambda: TimeLimit(Clock(reward=lambda age: float(age % 3)), 20) for _ in range(2)]
        kwargs = {"start_method": "fork"} if vec_env is SubprocVecEnv else {}
        venv = EpisodeControlVecEnv(vec_env(env_fns, **kwargs))
        model = PPO(
            "MlpPolicy",
            venv,
            n_steps=32,
            batch_size=16,
            n_epochs=2,
            seed=seed,
            device="cpu",
            rollout_buffer_class=SelectiveRolloutBuffer,
            rollout_buffer_kwargs={"early_weight": 0.3},
        )
        callback = eager(RandomGate(0.2), audit_fraction=0.2, stop_probability=0.7)
        model.learn(192, callback=callback)
        venv.close()
        assert callback.n_stops > 0
        return model

    first = train(DummyVecEnv, 1)
    assert_same_parameters(first, train(DummyVecEnv, 1))
    assert_same_parameters(first, train(SubprocVecEnv, 1))
    with pytest.raises(AssertionError):
        assert_same_parameters(first, train(DummyVecEnv, 2))


def test_stock_buffers_work_without_weights():
    recorder, _ = collect(eager(StopAt(5)), clocks(1), rollout_buffer_class=RolloutBuffer)
    assert recorder.reasons()[0] == (0, "stopped", 7)
