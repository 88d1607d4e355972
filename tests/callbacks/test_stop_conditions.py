"""When a gate may stop episodes."""

import numpy as np
import pytest
from gymnasium.wrappers import TimeLimit
from stable_baselines3.common.vec_env import DummyVecEnv

from sb3_budget.callbacks.selective_rollout_callback import SelectiveRolloutCallback
from sb3_budget.core.gates import HeuristicGate, QuantileGate, RandomGate
from sb3_budget.vec_env.episode_control_vec_env import EpisodeControlVecEnv
from tests.callbacks.clock import Clock, clocks, collect, eager

# Steps of these environments take no time.
pytestmark = pytest.mark.filterwarnings("ignore:The gate takes")
#: Two of the rollouts below, in which episodes show how they end.
WARMUP = 128
WAITS = "The gate waits: as episodes end now, 0% of them would reach their limit of 50 steps"


def mixed(lengths, horizon=50):
    """Slots whose episodes end by themselves after so many steps; the limit is ``horizon``."""
    return EpisodeControlVecEnv(DummyVecEnv([lambda n=n: TimeLimit(Clock(n), horizon) for n in lengths]))


def test_a_quantile_gate_waits_where_episodes_end_by_themselves_and_says_so_once():
    callback = eager(QuantileGate(0.5), warmup=WARMUP)
    with pytest.warns(UserWarning, match=WAITS) as warned:
        recorder, model = collect(callback, clocks(4, length=8), n_rollouts=5)
        model.learn(64, callback=callback, reset_num_timesteps=False)
    assert len(warned) == 1
    assert callback.n_stops == 0
    # It looks on, so that its window is full when the time comes.
    assert callback.gate._windows[-1].scores.size > 0
    assert recorder.logs[-1]["budget/survival"] < 0.01


def test_it_does_not_where_they_reach_their_limit():
    callback = eager(QuantileGate(0.5), warmup=WARMUP)
    recorder, _ = collect(callback, clocks(4, length=51), n_rollouts=5)
    assert callback.n_stops > 0
    assert recorder.logs[-1]["budget/survival"] == 1.0


@pytest.mark.parametrize(("min_survival", "stops"), [(0.0, True), (0.1, True), (0.3, False)])
def test_the_share_is_the_one_asked_for(min_survival, stops):
    """Of seven episodes that begin within 50 steps six end after 25, two in each of three slots, and one lives."""
    lengths = [25, 25, 25, 10**6]
    callback = eager(RandomGate(0.5), min_survival=min_survival, warmup=800)
    if stops:
        recorder, _ = collect(callback, mixed(lengths), n_rollouts=16)
    else:
        with pytest.warns(UserWarning, match="The gate waits"):
            recorder, _ = collect(callback, mixed(lengths), n_rollouts=16)
        assert recorder.logs[-1]["budget/survival"] == pytest.approx(1 / 7, abs=0.03)
    assert (callback.n_stops > 0) == stops


def test_it_begins_once_episodes_live_on():
    venv = mixed([8] * 4)
    callback = eager(RandomGate(0.5), min_survival=0.5, warmup=WARMUP)
    with pytest.warns(UserWarning, match=WAITS):
        _, model = collect(callback, venv, n_rollouts=4)
    assert callback.n_stops == 0
    for env in venv.venv.envs:
        env.unwrapped.length = 10**6
    model.learn(50 * 32 * 8, callback=callback, reset_num_timesteps=False)
    assert callback.n_stops > 0


@pytest.mark.parametrize("gate", [HeuristicGate(lambda obs, info: True), RandomGate(1.0)])
def test_gates_with_a_reason_of_their_own_do_not_wait(gate):
    callback = eager(gate, warmup=WARMUP)
    recorder, _ = collect(callback, clocks(4, length=8), n_rollouts=4)
    assert callback.n_stops > 0
    assert "budget/survival" not in recorder.logs[-1]
    waiting = eager(gate, warmup=WARMUP, min_survival=0.5)
    with pytest.warns(UserWarning, match=WAITS):
        collect(waiting, clocks(4, length=8), n_rollouts=4)
    assert waiting.n_stops == 0


def test_without_a_time_limit_nothing_is_waited_for_unless_it_was_asked_for():
    def endless():
        return EpisodeControlVecEnv(DummyVecEnv([lambda: Clock(8) for _ in range(4)]))

    callback = eager(QuantileGate(0.5))
    collect(callback, endless(), n_rollouts=2)
    assert callback.n_stops > 0
    with pytest.raises(ValueError, match="no TimeLimit"):
        collect(eager(QuantileGate(0.5), min_survival=0.5), endless())


def test_what_is_known_of_the_ends_is_saved_and_another_horizon_starts_anew(tmp_path):
    callback = eager(QuantileGate(0.5), warmup=WARMUP)
    with pytest.warns(UserWarning, match=WAITS):
        collect(callback, clocks(4, length=8), n_rollouts=4)
    callback.save(tmp_path / "gate.pkl")
    other = eager(QuantileGate(0.5))
    other.load(tmp_path / "gate.pkl")
    with pytest.warns(UserWarning, match=WAITS):
        collect(other, clocks(4, length=8))
    assert other.n_stops == 0
    other.load(tmp_path / "gate.pkl")
    # A limit that all of them reach; what was known is of another.
    collect(other, clocks(4, length=9, horizon=8))
    assert other.n_stops > 0


@pytest.mark.parametrize("share", [-0.1, 1.1, np.nan])
def test_bad_input(share):
    with pytest.raises(ValueError, match="min_survival"):
        SelectiveRolloutCallback(min_survival=share)
