"""Episode ends on request: when, with which observations, and for every kind of observation."""

from __future__ import annotations

import numpy as np
import pytest
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    SubprocVecEnv,
    VecFrameStack,
    VecMonitor,
    VecNormalize,
    VecTransposeImage,
)

from sb3_budget import EpisodeControlVecEnv
from tests.vec_env.slot_envs import SPACES, assert_same, encode, episode_ends, make_venv, step

fork_in_threads = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def slot_of(obs, slot):
    if isinstance(obs, dict):
        return {key: value[slot] for key, value in obs.items()}
    if isinstance(obs, tuple):
        return tuple(value[slot] for value in obs)
    return obs[slot]


@pytest.mark.parametrize("kind", SPACES)
def test_a_stop_is_a_truncation_with_the_true_last_observation(kind):
    venv = EpisodeControlVecEnv(make_venv(3, kind=kind))
    venv.reset()
    step(venv)
    venv.request_stop([0, 2])
    obs, rewards, dones, infos = step(venv)
    assert dones.dtype == bool and dones.tolist() == [True, False, True]
    assert rewards.dtype == np.float32 and rewards.tolist() == [2.0, 12.0, 22.0]
    for slot in (0, 2):
        assert infos[slot]["TimeLimit.truncated"] is True
        assert_same(infos[slot]["terminal_observation"], encode(kind, slot, episode=0, step=2))
        assert_same(slot_of(obs, slot), encode(kind, slot, episode=1, step=0))
        assert infos[slot]["sb3_budget"] == {
            "reason": "stopped",
            "length": 2,
            "return": 20.0 * slot + 3.0,
            "start_id": None,
            "audited": False,
        }
    assert infos[1] == {"TimeLimit.truncated": False}
    assert_same(slot_of(obs, 1), encode(kind, 1, episode=0, step=2))
    obs, _, dones, _ = step(venv)
    assert not dones.any()
    assert_same(slot_of(obs, 2), encode(kind, 2, episode=1, step=1))


@pytest.mark.parametrize("kind", SPACES)
@fork_in_threads
def test_dummy_and_subproc_do_the_same(kind):
    venvs = [
        EpisodeControlVecEnv(make_venv(3, cls, kind=kind, time_limits=[4, 5, 6], monitor=True))
        for cls in (DummyVecEnv, SubprocVecEnv)
    ]
    assert_same(*[venv.reset() for venv in venvs])
    for elapsed in range(12):
        outcomes = []
        for venv in venvs:
            venv.request_stop([elapsed % 3] if elapsed % 4 == 1 else [])
            obs, rewards, dones, infos = step(venv)
            assert rewards.dtype == np.float32 and dones.dtype == bool
            for info in infos:
                info.get("episode", {}).pop("t", None)
            outcomes.append((obs, rewards, dones, infos, venv.reset_infos, venv.ages))
        assert_same(*outcomes)
    for venv in venvs:
        venv.close()


@pytest.mark.parametrize(("limits", "reason", "truncated"), [({"length": 3}, "terminated", False), ({}, "time_limit", True)])
def test_a_natural_end_wins_over_a_request_and_clears_it(limits, reason, truncated):
    venv = EpisodeControlVecEnv(make_venv(2, time_limits=3 if truncated else None, **limits))
    venv.reset()
    step(venv)
    step(venv)
    venv.request_stop(0)
    obs, _, dones, infos = step(venv)
    assert dones.all() and infos[0]["TimeLimit.truncated"] is truncated
    assert infos[0]["sb3_budget"]["reason"] == reason
    assert obs[0].tolist() == [0.0, 1.0, 0.0], "one reset, not two"
    _, _, dones, _ = step(venv)
    assert not dones.any()


def test_a_reset_of_everything_clears_requests():
    venv = EpisodeControlVecEnv(make_venv())
    venv.reset()
    venv.request_stop([0, 1])
    venv.reset()
    assert not step(venv)[2].any()
    assert venv.ages.tolist() == [1, 1]


def test_an_audited_episode_says_so_at_its_end_and_the_next_does_not():
    venv = EpisodeControlVecEnv(make_venv(2, time_limits=3))
    venv.reset()
    venv.mark_audited(np.int64(1))
    ends = episode_ends(venv, 6)
    assert [end["audited"] for end in ends[0]] == [False, False]
    assert [end["audited"] for end in ends[1]] == [True, False]


def test_the_ledger_counts_steps_and_resets():
    venv = EpisodeControlVecEnv(make_venv(2, time_limits=4))
    venv.reset()
    venv.request_stop(0)
    episode_ends(venv, 5)
    # Both at first, slot 0 after 1 and 5 steps, slot 1 after 4.
    assert (venv.ledger.learning_steps, venv.ledger.resets, venv.ledger.warmup_steps) == (10, 5, 0)


@fork_in_threads
def test_integer_rewards_arrive_as_floats():
    stock = make_venv(2, SubprocVecEnv, integer_rewards=True)
    venv = EpisodeControlVecEnv(stock)
    venv.reset()
    assert step(venv)[1].dtype == np.float32
    venv.close()


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("kind", ["box", "discrete", "dict", "tuple"])
def test_without_requests_the_steps_are_those_of_the_bare_venv(enabled, kind):
    options = {"kind": kind, "time_limits": [3, 5], "monitor": True}
    stock, venv = make_venv(**options), EpisodeControlVecEnv(make_venv(**options), enabled=enabled)
    assert_same(stock.reset(), venv.reset())
    for _ in range(11):
        expected, outcome = step(stock), step(venv)
        for infos in (expected[3], outcome[3]):
            for info in infos:
                info.get("episode", {}).pop("t", None)
                info.pop("sb3_budget", None)
        assert_same(expected, outcome)
        assert_same(stock.reset_infos, venv.reset_infos)


def test_a_disabled_wrapper_hands_on_the_very_objects_and_refuses_control():
    inner = make_venv(2, time_limits=3)
    venv = EpisodeControlVecEnv(inner, enabled=False)
    venv.reset()
    outcome = (np.zeros((2, 3)), np.ones(2, dtype=np.int64), np.zeros(2, dtype=bool), [{}, {}])
    inner.step_wait = lambda: outcome
    assert all(given is passed for given, passed in zip(outcome, step(venv), strict=True))
    with pytest.raises(ValueError, match="enabled=False"):
        venv.request_stop(0)
    with pytest.raises(ValueError, match="enabled=False"):
        venv.set_start_sampler(lambda slot: None)


def test_enable_switches_a_disabled_wrapper_on():
    venv = EpisodeControlVecEnv(make_venv(2, time_limits=4), enabled=False)
    venv.reset()
    venv.enable()
    venv.enable()
    step(venv)
    venv.request_stop(1)
    _, _, dones, infos = step(venv)
    assert dones.tolist() == [False, True] and infos[1]["sb3_budget"]["length"] == 2


@pytest.mark.parametrize(
    ("slots", "message"),
    [
        (2, "must lie in"),
        (-1, "must lie in"),
        ([True, False], "boolean mask"),
        (np.array([True]), "boolean"),
        (0.5, "int"),
    ],
)
def test_slots_that_do_not_exist_are_refused(slots, message):
    venv = EpisodeControlVecEnv(make_venv())
    for method in (venv.request_stop, venv.mark_audited):
        with pytest.raises(ValueError, match=message):
            method(slots)


@pytest.mark.parametrize(
    "wrap",
    [VecNormalize, VecMonitor, lambda venv: VecFrameStack(venv, 2), VecTransposeImage, EpisodeControlVecEnv],
    ids=["normalize", "monitor", "stack", "transpose", "itself"],
)
def test_any_wrapper_below_is_refused_with_the_right_order(wrap):
    below = wrap(make_venv(2, kind="image"))
    name = type(below).__name__
    with pytest.raises(ValueError, match=rf"directly on the base VecEnv.*write {name}\(EpisodeControlVecEnv"):
        EpisodeControlVecEnv(below)


def test_a_monitor_that_forbids_early_resets_is_refused():
    make_some = [lambda: Monitor(make_venv(1).envs[0], allow_early_resets=False), lambda: make_venv(1).envs[0]]
    with pytest.raises(ValueError, match="allow_early_resets=True"):
        EpisodeControlVecEnv(DummyVecEnv(make_some))
    venv = EpisodeControlVecEnv(DummyVecEnv(make_some), enabled=False)
    with pytest.raises(ValueError, match="allow_early_resets=True"):
        venv.enable()
    assert not venv.enabled


def test_monitor_reports_only_episodes_that_ran_to_their_own_end():
    venv = EpisodeControlVecEnv(make_venv(2, time_limits=4, monitor=True))
    venv.reset()
    venv.request_stop(0)
    assert "episode" not in step(venv)[3][0]
    episodes = [info["episode"] for _ in range(4) for info in step(venv)[3] if "episode" in info]
    assert [(episode["l"], episode["r"]) for episode in episodes] == [(4, 50.0), (4, 10.0)]


def test_atari_lives_a_stop_begins_a_new_game():
    pytest.importorskip("ale_py")
    pytest.importorskip("cv2")
    from stable_baselines3.common.env_util import make_atari_env

    venv = EpisodeControlVecEnv(make_atari_env("ALE/Breakout-v5", n_envs=2, seed=0))
    venv.reset()
    games = venv.get_attr("ale")
    for _ in range(200):
        if games[0].lives() < 5:
            break
        _, _, dones, infos = step(venv)
    assert dones[0] and infos[0]["sb3_budget"]["reason"] == "terminated", "a lost life ends an episode"
    assert games[0].lives() == 4, "whose next one goes on with the same game"
    venv.request_stop(0)
    _, _, dones, infos = step(venv)
    assert dones[0] and infos[0]["TimeLimit.truncated"]
    assert games[0].lives() == 5
    venv.close()
