"""How long episodes run: the horizon that is found, and the budgets that shorten it."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

from sb3_budget import StaggeredResetVecEnv, Start
from sb3_budget.core.horizons import discount_survival, mean_length
from sb3_budget.vec_env.horizon import find_horizon
from tests.vec_env.slot_envs import CounterEnv, episode_ends, make_venv


def unshifted(n_envs, horizon, **kwargs):
    return StaggeredResetVecEnv(
        make_venv(n_envs, time_limits=horizon), offsets=lambda n, horizon, rng: np.zeros(n), seed=0, **kwargs
    )


def lengths_of(venv, n_steps):
    venv.reset()
    return np.array([end["length"] for ends in episode_ends(venv, n_steps) for end in ends])


def spec_only():
    env = CounterEnv()
    env.spec = gym.spec("CartPole-v1")
    return env


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_the_time_limit_is_the_horizon():
    for vec_env_cls in (DummyVecEnv, SubprocVecEnv):
        venv = make_venv(2, vec_env_cls, time_limits=7, monitor=True)
        assert find_horizon(venv, None) == 7
        assert find_horizon(venv, 5) == 5, "the user's own wins"
        venv.close()


def test_without_a_time_limit_the_spec_says_it():
    assert find_horizon(DummyVecEnv([spec_only, spec_only]), None) == 500


def test_an_unknown_horizon_is_an_error_that_says_what_to_pass():
    with pytest.raises(ValueError, match=r"no TimeLimit and no spec with max_episode_steps: pass horizon="):
        StaggeredResetVecEnv(make_venv(2))
    assert StaggeredResetVecEnv(make_venv(2), horizon=9).horizon == 9


def test_different_horizons_are_an_error():
    with pytest.raises(ValueError, match=r"different episode lengths \[7, 9\]: pass horizon="):
        StaggeredResetVecEnv(make_venv(2, time_limits=[9, 7]))


def test_the_discount_budget_spends_a_tenth_of_the_horizon_per_episode():
    venv = unshifted(16, 1000, horizon_budget="discount", gamma=0.99, full_fraction=0.0)
    lengths = lengths_of(venv, 1000)
    expected = mean_length(discount_survival(0.99, 1000))
    assert expected == pytest.approx(100, abs=2)
    # The standard error of the mean of some 150 lengths is about 7 steps.
    assert len(lengths) > 100 and lengths.mean() == pytest.approx(expected, abs=25)


def test_a_share_of_the_episodes_runs_in_full():
    venv = unshifted(16, 20, horizon_budget=lambda n, rng: np.full(n, 5), full_fraction=0.25)
    lengths = lengths_of(venv, 400)
    assert set(lengths.tolist()) == {5, 20}
    # The standard error of the share of some 700 episodes is 0.016.
    assert np.mean(lengths == 20) == pytest.approx(0.25, abs=0.06)


def test_a_cut_by_the_budget_is_a_truncation_named_horizon():
    venv = unshifted(2, 20, horizon_budget=lambda n, rng: np.full(n, 4), full_fraction=0.0)
    venv.reset()
    assert [(end["reason"], end["length"]) for end in episode_ends(venv, 8)[0]] == [("horizon", 4)] * 2


def test_a_budget_of_the_full_length_cuts_nothing():
    for budget in ("full", lambda n, rng: np.full(n, 50)):
        venv = unshifted(2, 20, horizon_budget=budget, full_fraction=0.0)
        venv.reset()
        assert [end["reason"] for end in episode_ends(venv, 40)[0]] == ["time_limit"] * 2


def test_one_slot_has_a_budget_too_and_no_warning():
    venv = StaggeredResetVecEnv(make_venv(1, time_limits=20), horizon_budget=lambda n, rng: [3], full_fraction=0.0)
    venv.reset()
    assert [end["length"] for end in episode_ends(venv, 6)[0]] == [3, 3]


@pytest.mark.parametrize("lengths", [[3], [3, 0], [[3], [3]]])
def test_lengths_that_make_no_sense_are_refused(lengths):
    venv = unshifted(2, 20, horizon_budget=lambda n, rng: lengths)
    with pytest.raises(ValueError, match="2 lengths of at least 1 step"):
        venv.reset()


@pytest.mark.parametrize(
    ("offset", "budget", "start", "stop_at", "expected"),
    [
        (5, 20, None, None, ("stagger", 15)),
        (5, 12, None, None, ("horizon", 12)),
        (5, 12, 8, None, ("horizon", 8)),
        (15, 12, 8, None, ("stagger", 5)),
        (15, 12, 8, 2, ("stopped", 3)),
        (5, 12, 8, 9, ("horizon", 8)),
        (0, 20, None, None, ("time_limit", 20)),
        (0, 20, 25, None, ("time_limit", 20)),
    ],
)
def test_the_smallest_limit_wins_and_names_the_reason(offset, budget, start, stop_at, expected):
    venv = StaggeredResetVecEnv(
        make_venv(2, time_limits=20),
        offsets=lambda n, horizon, rng: [0, offset],
        horizon_budget=lambda n, rng: np.full(n, budget),
        full_fraction=0.0,
    )
    if start is not None:
        venv.set_start_sampler(lambda slot: Start("here", horizon=start))
    venv.reset()
    ends = []
    while not ends:
        if venv.ages[1] == stop_at:
            venv.request_stop(1)
        ends = episode_ends(venv, 1)[1]
    assert (ends[0]["reason"], ends[0]["length"]) == expected


def test_lengths_follow_the_seed():
    def lengths(seed):
        venv = StaggeredResetVecEnv(make_venv(4, time_limits=50), horizon_budget="discount", gamma=0.9, seed=seed)
        return lengths_of(venv, 60).tolist()

    assert lengths(1) == lengths(1) != lengths(2)
