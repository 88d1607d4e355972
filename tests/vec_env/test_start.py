"""Where episodes start: by seed, by options, under a name, and with a length of their own."""

from __future__ import annotations

import numpy as np
import pytest

from sb3_budget import EpisodeControlVecEnv, Start
from tests.vec_env.slot_envs import NoisyEnv, episode_ends, make_venv, step


def test_options_decide_every_start_the_first_and_the_automatic_ones_included():
    venv = EpisodeControlVecEnv(make_venv(2, time_limits=3))
    asked = []

    def sampler(slot):
        asked.append(slot)
        return Start(f"at{slot}", options={"step": 100 * (slot + 1)})

    venv.set_start_sampler(sampler)
    assert venv.reset()[:, 2].tolist() == [100.0, 200.0]
    venv.request_stop(1)
    assert step(venv)[0][:, 2].tolist() == [101.0, 200.0]
    step(venv)
    obs, _, dones, infos = step(venv)
    assert dones.tolist() == [True, False] and obs[:, 2].tolist() == [100.0, 202.0]
    assert infos[0]["sb3_budget"]["start_id"] == "at0"
    assert asked == [0, 1, 1, 0]
    # Slots are first reset by the base VecEnv or for the stop, then again for the start.
    assert venv.ledger.resets == 2 * 4
    assert [info["episode_begun"] for info in venv.reset_infos] == [3, 3]


def noisy(sampler, n_envs=2):
    venv = EpisodeControlVecEnv(make_venv(n_envs, make=NoisyEnv), seed=0)
    venv.seed(1)
    venv.set_start_sampler(sampler)
    return venv, venv.reset()


def test_one_seed_gives_one_start_but_different_noise_and_later_resets():
    starts = {0: Start("a", seed=7), 1: Start("b", seed=7)}
    venv, obs = noisy(lambda slot: starts.pop(slot, None))
    assert obs[0, 0] == obs[1, 0] == np.random.default_rng(np.random.PCG64(7)).random()
    noise = step(venv)[0][:, 1]
    assert noise[0] != noise[1]
    venv.request_stop([0, 1])
    later = step(venv)[0][:, 0]
    assert later[0] != later[1]


def test_the_noise_after_a_seeded_start_follows_from_the_wrappers_seed():
    def episode():
        venv, _ = noisy(lambda slot: Start("a", seed=7))
        return np.stack([step(venv)[0] for _ in range(3)])

    np.testing.assert_array_equal(episode(), episode())


def test_repeated_episodes_from_one_seed_share_the_start_and_not_the_noise():
    venv, obs = noisy(lambda slot: Start("a", seed=7), n_envs=1)
    first_noise = step(venv)[0][0, 1]
    venv.request_stop(0)
    again = step(venv)[0]
    assert again[0, 0] == obs[0, 0]
    assert step(venv)[0][0, 1] != first_noise


def test_none_is_the_environments_own_reset_and_costs_no_second_one():
    venv = EpisodeControlVecEnv(make_venv(2, time_limits=3))
    venv.set_start_sampler(lambda slot: None if slot == 0 else Start("named"))
    venv.reset()
    ends = episode_ends(venv, 3)
    assert [ends[slot][0]["start_id"] for slot in (0, 1)] == [None, "named"]
    assert venv.get_attr("episode") == [1, 1] and venv.ledger.resets == 4


def test_a_starts_horizon_limits_that_episode_only():
    venv = EpisodeControlVecEnv(make_venv(1, time_limits=5))
    starts = [Start("short", horizon=2), None, Start("long", horizon=9)]
    venv.set_start_sampler(lambda slot: starts.pop(0) if starts else None)
    venv.reset()
    ends = episode_ends(venv, 12)[0]
    assert [(end["reason"], end["length"]) for end in ends] == [("horizon", 2), ("time_limit", 5), ("time_limit", 5)]


def test_two_owners_are_refused_until_the_first_lets_go():
    venv = EpisodeControlVecEnv(make_venv())
    venv.set_start_sampler(lambda slot: Start("first"), owner="allocator")
    venv.set_start_sampler(lambda slot: Start("second"), owner="allocator")
    with pytest.raises(ValueError, match="belongs to 'allocator'; 'user' cannot replace it"):
        venv.set_start_sampler(lambda slot: None)
    with pytest.raises(ValueError, match="cannot replace"):
        venv.set_start_sampler(None, owner="GRPO")
    venv.set_start_sampler(None, owner="allocator")
    venv.set_start_sampler(lambda slot: None, owner="allocator")
    # The user may take any away.
    venv.set_start_sampler(None)
    venv.set_start_sampler(lambda slot: None)


def test_a_removed_sampler_leaves_no_name_on_later_episodes():
    venv = EpisodeControlVecEnv(make_venv(1, time_limits=2))
    venv.set_start_sampler(lambda slot: Start("a"))
    venv.reset()
    venv.set_start_sampler(None)
    assert [end["start_id"] for end in episode_ends(venv, 4)[0]] == ["a", None]


@pytest.mark.parametrize(
    ("start", "message"),
    [
        (("a", 1), "Start or None, not tuple"),
        (Start("a", keep_time=False), "no snapshot"),
        (Start("a", horizon=0), "at least 1 step"),
    ],
)
def test_starts_that_make_no_sense_are_refused(start, message):
    venv = EpisodeControlVecEnv(make_venv())
    venv.set_start_sampler(lambda slot: start)
    with pytest.raises(ValueError, match=message):
        venv.reset()


def test_a_seed_and_options_go_together():
    venv = EpisodeControlVecEnv(make_venv(1), seed=0)
    venv.set_start_sampler(lambda slot: Start("both", seed=3, options={"step": 50}))
    assert venv.reset()[0, 2] == 50.0
    assert venv.get_attr("seeds")[0][-1] == 3
