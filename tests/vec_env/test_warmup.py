"""Warm-up: slots are at their phases from the first step on, and the ledger shows what that took."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.vec_env import SubprocVecEnv

from sb3_budget import StaggeredResetVecEnv, Start
from sb3_budget.vec_env.warmup import parse_warmup_actions
from tests.vec_env.slot_envs import SPACES, assert_same, encode, episode_ends, make_venv, step


def warmed(n_envs=4, time_limits=8, kind="box", vec_env_cls=None, length=None, **kwargs):
    below = {} if vec_env_cls is None else {"vec_env_cls": vec_env_cls}
    venv = make_venv(n_envs, time_limits=time_limits, kind=kind, length=length, **below)
    return StaggeredResetVecEnv(venv, mode="warmup", **kwargs)


@pytest.mark.parametrize("actions", ["random", "noop"])
def test_slots_are_at_their_offsets_after_the_reset(actions):
    venv = warmed(warmup_actions=actions)
    assert venv.reset()[:, 2].tolist() == [0.0, 2.0, 4.0, 6.0]
    assert venv.ages.tolist() == [0, 2, 4, 6]
    assert (venv.ledger.warmup_steps, venv.ledger.learning_steps, venv.ledger.total_steps) == (12, 0, 12)
    assert venv.diagnose().dispersion == pytest.approx(1.0)
    # No first episode is cut: each runs on to its own end.
    assert [[(end["reason"], end["length"]) for end in ends] for ends in episode_ends(venv, 8)] == [[("time_limit", 8)]] * 4


def test_the_return_of_a_warmed_up_episode_is_that_of_all_its_steps():
    venv = warmed(2)
    venv.reset()
    assert episode_ends(venv, 4)[1][0]["return"] == sum(10 + elapsed for elapsed in range(1, 9))


@pytest.mark.parametrize("kind", SPACES)
def test_every_kind_of_observation(kind):
    first = warmed(2, kind=kind).reset()
    first = first if isinstance(first, (dict, tuple)) else (first,)
    expected = encode(kind, 1, episode=0, step=4)
    expected = expected if isinstance(expected, (dict, tuple)) else (expected,)
    for key in expected if isinstance(expected, dict) else range(len(expected)):
        assert_same(first[key][1], expected[key])


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_dummy_and_subproc_do_the_same():
    venvs = [warmed(3, seed=0), warmed(3, seed=0, vec_env_cls=SubprocVecEnv)]
    assert_same(*[venv.reset() for venv in venvs])
    for _ in range(9):
        outcomes = [(step(venv), venv.reset_infos) for venv in venvs]
        assert_same(*outcomes)
    venvs[1].close()


def test_every_reset_warms_up_again():
    venv = warmed()
    venv.reset()
    step(venv)
    assert venv.reset()[:, 2].tolist() == [0.0, 2.0, 4.0, 6.0]
    assert venv.ledger.warmup_steps == 24


def test_an_episode_that_ends_on_the_way_starts_again_where_the_sampler_says():
    venv = warmed(4, time_limits=8, length=3)
    venv.set_start_sampler(lambda slot: Start(venv.ledger.resets))
    obs = venv.reset()
    assert venv.ages.tolist() == [0, 2, 1, 0]
    assert obs[:, 1].tolist() == [0.0, 0.0, 1.0, 2.0]
    assert venv.ledger.resets == 4 + 3
    assert [info["episode_begun"] for info in venv.reset_infos] == [0, 0, 1, 2]
    assert episode_ends(venv, 2)[2][0]["start_id"] == 4 + 1


def test_a_limit_holds_during_warm_up_too():
    venv = warmed(2, horizon_budget=lambda n, rng: np.full(n, 3), full_fraction=0.0)
    venv.reset()
    assert venv.ages.tolist() == [0, 1]
    assert [end["length"] for end in episode_ends(venv, 5)[1]] == [3, 3]


def test_a_policy_chooses_the_actions_from_raw_observations():
    seen = []

    def policy(obs):
        seen.append(obs[:, 2].tolist())
        return np.ones(len(obs), dtype=np.int64)

    warmed(2, time_limits=4, warmup_actions=policy).reset()
    assert seen == [[0.0, 0.0], [0.0, 1.0]]


@pytest.mark.parametrize("late", [False, True])
def test_random_actions_follow_the_seed_also_a_later_one(late):
    def actions(seed):
        venv = warmed(2, seed=None if late else seed)
        if late:
            venv.seed(seed)
        return [int(venv._warmup_actions(np.zeros((2, 3)))[slot]) for _ in range(20) for slot in range(2)]

    assert actions(3) == actions(3) != actions(4)


def test_the_environments_own_action_space_is_left_alone():
    for rule in ("random", "noop"):
        space = spaces.Box(-1.0, 1.0, (2,), seed=1)
        parse_warmup_actions(rule, space, seed=0)(np.zeros((3, 1)))
        assert space.np_random.bit_generator.state == spaces.Box(-1.0, 1.0, (2,), seed=1).np_random.bit_generator.state


@pytest.mark.parametrize("space", [spaces.Box(-1.0, 1.0, (2,)), spaces.Discrete(3), spaces.MultiBinary(4)])
def test_noop_is_zero(space):
    actions = parse_warmup_actions("noop", space, seed=0)(np.zeros((3, 1)))
    assert len(actions) == 3 and not actions.any() and all(space.contains(action) for action in actions)


def test_bad_rules_are_refused_at_construction():
    with pytest.raises(ValueError, match="not 'random', 'noop' or a callable"):
        warmed(warmup_actions="policy")
    with pytest.raises(ValueError, match="contains zero"):
        parse_warmup_actions("noop", spaces.Box(1.0, 2.0, (1,)), seed=0)


@pytest.mark.filterwarnings("ignore:Staggered resets cannot help:UserWarning")
def test_one_slot_takes_no_step():
    venv = warmed(1)
    venv.reset()
    assert venv.ledger.warmup_steps == 0
