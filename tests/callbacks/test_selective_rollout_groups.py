"""Gates that know groups, in a training: groups are stopped whole, and go on together."""

from __future__ import annotations

import numpy as np
import pytest
import torch as th
from gymnasium.wrappers import TimeLimit
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv

from sb3_budget import (
    GRPO,
    ConvergenceGate,
    EpisodeControlVecEnv,
    GroupQuantileGate,
    GroupRolloutBuffer,
    SelectiveRolloutBuffer,
    SelectiveRolloutCallback,
)
from sb3_budget.vec_env.group_starts import GroupStarts
from tests.callbacks.clock import Clock, eager, never

pytestmark = pytest.mark.filterwarnings("ignore:The gate takes")  # these environments cost less than any gate

AT_ONCE = {"threshold": 0.0, "calibration_groups": 0, "arm_at": 0.0, "audit_fraction": 0.0}
HORIZON = 12


class Noisy(Clock):
    """Members have rewards of their own, and now and then an end."""

    def step(self, action):
        observation, _, terminated, *rest = super().step(action)
        rng = self.np_random
        return observation, float(rng.normal()), terminated or bool(rng.random() < 0.04), *rest


class Still(GRPO):
    """GRPO that trains nothing, with a policy that always does the same."""

    def train(self):
        self._n_updates += 1


def still(env=Clock, n_envs=8, group_size=4, n_steps=24, **kwargs):
    venv = DummyVecEnv([lambda: TimeLimit(env(), HORIZON) for _ in range(n_envs)])
    small = {"policy_kwargs": {"net_arch": [4]}, "seed": 0, "device": "cpu", "batch_size": n_steps * n_envs}
    model = Still("MlpPolicy", venv, group_size=group_size, n_steps=n_steps, **small, **kwargs)
    with th.no_grad():
        model.policy.action_net.weight.zero_()
        model.policy.action_net.bias.copy_(th.tensor([50.0, -50.0]))
    return model


class Ends(BaseCallback):
    """Keeps when and why episodes of each start ended, and what was logged."""

    def __init__(self):
        super().__init__()
        self.by_start, self.logs = {}, []

    def _on_step(self):
        for slot, info in enumerate(self.locals["infos"]):
            if "sb3_budget" in info:
                end = info["sb3_budget"]
                self.by_start.setdefault(end["start_id"], []).append((slot, self.n_calls, end["reason"], end["length"]))
        return True

    def _on_rollout_end(self):
        self.logs.append(dict(self.logger.name_to_value))


def reasons(ends):
    return {reason for _, _, reason, _ in ends}


# ---------------------------------------------------------------------- convergence


def test_groups_that_do_the_same_are_stopped_whole_and_go_on_together():
    ends, callback = Ends(), SelectiveRolloutCallback(ConvergenceGate(5, **AT_ONCE), warmup=0)
    model = still()
    model.learn(8 * 72, callback=[callback, ends])
    # Decided at age 5, which is step 6, and served at the next.
    for (group, episode), found in ends.by_start.items():
        assert found == [(slot, 7 * (episode + 1), "stopped", 7) for slot in range(4 * group, 4 * group + 4)]
    assert len(ends.by_start) == 2 * (72 // 7) and callback.n_stops == 8 * (72 // 7)
    assert callback.gate.n_cut == 2 * (72 // 7) == ends.logs[-1]["budget/gate_groups_cut"]
    starts = model.rollout_buffer.episode_starts
    assert (starts == starts[:, :1]).all()


def test_during_the_warm_up_groups_run_on():
    ends, callback = Ends(), SelectiveRolloutCallback(ConvergenceGate(5, **AT_ONCE), warmup=8 * 24)
    still().learn(8 * 48, callback=[callback, ends])
    assert [reasons(ends.by_start[0, episode]) for episode in range(3)] == [{"time_limit"}, {"time_limit"}, {"stopped"}]


def test_a_threshold_is_calibrated_and_groups_under_audit_run_on_whole():
    gate, ends = ConvergenceGate(5, calibration_groups=4, audit_fraction=0.3), Ends()
    still().learn(8 * 480, callback=[SelectiveRolloutCallback(gate, warmup=0), ends])
    assert all(len(reasons(found)) == 1 for found in ends.by_start.values())
    whole = [start for start, found in ends.by_start.items() if reasons(found) == {"time_limit"}]
    # All returns are alike, and so are all actions.
    assert {(0, 0), (0, 1), (1, 0), (1, 1)} < set(whole)
    assert 0.1 < len(whole) / len(ends.by_start) < 0.5
    logged = ends.logs[-1]
    assert logged["budget/gate_threshold"] == logged["budget/gate_distance"] == 0.0
    assert logged["budget/gate_zero_variance"] == 1.0


def test_groups_whose_returns_differ_are_never_cut():
    gate, ends = ConvergenceGate(3, calibration_groups=5), Ends()
    still(Noisy).learn(8 * 240, callback=[SelectiveRolloutCallback(gate, warmup=0), ends])
    assert len(gate.calibration) > 20 and gate.calibration.zero_variance == 0.0 and gate.n_cut == 0


def test_members_that_drift_apart_are_stopped_with_those_that_are_still_there():
    ends, callback = Ends(), SelectiveRolloutCallback(ConvergenceGate(5, **AT_ONCE), warmup=0)
    still(Noisy).learn(8 * 480, callback=[callback, ends])
    stopped = [found for found in ends.by_start.values() if "stopped" in reasons(found)]
    assert len(stopped) > 20
    for found in stopped:
        steps = {step for _, step, reason, _ in found if reason == "stopped"}
        # All in one step, and with those that had ended before it nobody is missing.
        assert len(steps) == 1 and len(found) == 4
        assert max(step for _, step, _, _ in found) == steps.pop()
        assert min(length for _, _, _, length in found) > 5


def test_a_group_may_be_dropped_by_a_buffer_that_can():
    calls = []

    class Dropping(GroupRolloutBuffer):
        def drop_episodes(self, pairs):
            calls.append((self.pos, sorted(pairs)))
            super().drop_episodes(pairs)

    gate = ConvergenceGate(5, **AT_ONCE, fate="drop")
    model = still(rollout_buffer_class=Dropping)
    model.learn(8 * 24, callback=SelectiveRolloutCallback(gate, warmup=0))
    assert calls == [(5, [(0, 0), (1, 0)]), (12, [(0, 1), (1, 1)]), (19, [(0, 2), (1, 2)])]
    # Three episodes of seven steps are out, and what has come of the fourth is not.
    np.testing.assert_array_equal(model.rollout_buffer.weights, np.repeat([0.0, 1.0], [21, 3])[:, None] * np.ones(8))


def test_rows_that_were_carried_on_are_dropped_with_their_group():
    weights = []

    class Weights(BaseCallback):
        def _on_step(self):
            return True

        def _on_rollout_start(self):
            if self.model.rollout_buffer.finished:
                weights.append(self.model.rollout_buffer._ready.columns["weight"])

    gate = ConvergenceGate(5, **AT_ONCE, fate="drop")
    # An episode of seven steps spans two or three rollouts of four, and is trained on when it is finished.
    model = still(n_steps=4, advantage="outcome")
    model.learn(8 * 32, callback=[SelectiveRolloutCallback(gate, warmup=0), Weights()])
    assert len(weights) == 4 and all(len(found) == 8 * 7 and not found.any() for found in weights)
    assert model.rollout_buffer.empty


# ---------------------------------------------------------------------- quantiles within groups


def test_members_are_stopped_one_by_one_and_no_more_than_the_cap():
    ends, callback = Ends(), eager(GroupQuantileGate(0.5, min_peers=2), min_active=0)
    still(Noisy).learn(8 * 240, callback=[callback, ends])
    stops = [sum(reason == "stopped" for _, _, reason, _ in found) for found in ends.by_start.values()]
    assert max(stops) == 2 and sum(stops) > 20
    assert callback.n_stops >= sum(stops)


# ---------------------------------------------------------------------- what a gate is shown


class Watching:
    """Keeps what a view says of groups and actions."""

    def __init__(self):
        self.views = []

    def __call__(self, view):
        self.views.append(view._replace(lengths=view.lengths.copy()))
        return never(view)


def test_a_view_tells_the_episodes_and_actions_that_the_buffer_holds():
    gate, model = Watching(), still(Noisy, n_steps=48)
    model.learn(2 * 8 * 48, callback=eager(gate))
    last = gate.views[-48:]
    buffer = model.rollout_buffer
    assert {view.group_size for view in last} == {4} and last[0].action_std is None
    np.testing.assert_array_equal([view.episodes for view in last], buffer.episodes)
    np.testing.assert_array_equal([view.lengths for view in last], buffer.times)
    np.testing.assert_array_equal([view.actions for view in last], buffer.actions[:, :, 0].reshape(48, 8))
    assert len(np.unique(last[-1].episodes)) > 1


def test_without_groups_there_are_none():
    gate = Watching()
    venv = EpisodeControlVecEnv(make_vec_env("Pendulum-v1", 2, seed=0))
    model = PPO("MlpPolicy", venv, n_steps=16, batch_size=32, seed=0, device="cpu")
    initial = model.policy.log_std.exp().numpy(force=True)
    model.learn(64, callback=eager(gate, grace=3, warmup=32))
    first, last = gate.views[0], gate.views[-1]
    assert (first.group_size, first.episodes) == (1, None)
    np.testing.assert_array_equal(first.action_std, [initial, initial])
    assert (last.action_std != first.action_std).all()
    # Before they are clipped, which they are to [-2, 2].
    by_slot = np.stack([view.actions for view in gate.views[16:]], axis=1)
    assert np.abs(by_slot).max() > 2.0
    np.testing.assert_array_equal(by_slot.reshape(32, 1), model.rollout_buffer.actions)
    assert not first.active and last.active
    assert gate.views[3].due.all() and not gate.views[2].due.any()


def test_noise_that_depends_on_the_state_is_not_shown():
    gate = Watching()
    venv = EpisodeControlVecEnv(make_vec_env("Pendulum-v1", 2, seed=0))
    PPO("MlpPolicy", venv, n_steps=8, batch_size=16, use_sde=True, device="cpu").learn(16, callback=eager(gate))
    assert gate.views[0].action_std is None


# ---------------------------------------------------------------------- misuse


def test_what_cannot_work_is_refused_before_the_first_step():
    model = PPO("MlpPolicy", EpisodeControlVecEnv(DummyVecEnv([Clock] * 4)), n_steps=8, batch_size=32, device="cpu")
    for gate in (ConvergenceGate(), GroupQuantileGate()):
        with pytest.raises(ValueError, match="group_size=1: train with GRPO"):
            model.learn(32, callback=SelectiveRolloutCallback(gate, horizon=50))
    with pytest.raises(ValueError, match="compares at least 4 members of a group, but group_size=2"):
        still(group_size=2).learn(32, callback=SelectiveRolloutCallback(GroupQuantileGate()))
    for cap in ({"stop_probability": 0.5}, {"max_stops_per_check": 1}, {"max_stops_per_rollout": 1}):
        with pytest.raises(ValueError, match="ConvergenceGate stops whole groups: leave them out"):
            SelectiveRolloutCallback(ConvergenceGate(), **cap)


def test_a_buffer_that_drops_nothing_is_refused():
    venv = EpisodeControlVecEnv(DummyVecEnv([Clock] * 4))
    venv.set_start_sampler(GroupStarts(4, 2, seed=0))
    model = PPO("MlpPolicy", venv, n_steps=8, batch_size=32, device="cpu", rollout_buffer_class=SelectiveRolloutBuffer)
    with pytest.raises(ValueError, match="SelectiveRolloutBuffer cannot do, as it has no drop_episodes"):
        model.learn(32, callback=SelectiveRolloutCallback(ConvergenceGate(fate="drop"), horizon=50))
