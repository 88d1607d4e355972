"""A pool of starts as the start rule of groups."""

from __future__ import annotations

import copy
import pickle

import cloudpickle
import numpy as np
import pytest
from stable_baselines3.common.env_util import make_vec_env

from sb3_budget import (
    GRPO,
    DiscardRule,
    EpisodeControlVecEnv,
    LevelReplayRule,
    RecycleRule,
    SkipRule,
    Start,
    StartPool,
)
from sb3_budget.core.start_rules import PRESETS
from sb3_budget.vec_env.group_starts import GroupStarts
from tests.vec_env.slot_envs import NoisyEnv, episode_ends, make_venv

SIGNAL, EASY, HARD = [0.0, 1.0], [1.0, 1.0], [0.0, 0.0]


def give(pool, group, episode):
    return pool(group, episode, np.random.default_rng([3, group, episode]))


def train(pool, first, n=10):
    """Rollouts of four groups whose returns follow from start and episode; all that the pool says about them."""
    told = []
    for episode in range(first, first + n):
        starts = [give(pool, group, episode) for group in range(4)]
        returns = [np.random.default_rng([start.seed, episode]).integers(2, size=2) for start in starts]
        used = pool.record([(group, episode, returns[group]) for group in (2, 0, 3, 1)])
        told.append((starts, used.tolist(), repr(pool.statistics)))
    return told


def test_a_number_makes_starts_with_seeds_of_their_own():
    pool = StartPool(500, seed=0)
    assert len(pool) == 500 and [start.id for start in pool.starts] == list(range(500))
    assert len({start.seed for start in pool.starts}) == 500
    assert pool.starts == StartPool(500, seed=0).starts != StartPool(500, seed=1).starts
    assert StartPool(5).starts != StartPool(5).starts


def test_given_starts_are_taken_as_they_are():
    starts = [Start("a", seed=3), Start("b", options={"step": 2}), Start(("c", 1), seed=4, horizon=9)]
    pool = StartPool(starts)
    assert pool.starts == tuple(starts)
    # Between two records none is drawn twice.
    assert sorted(str(give(pool, group, 0).id) for group in range(3)) == sorted(str(start.id) for start in starts)


@pytest.mark.parametrize("rule", sorted(PRESETS))
def test_draws_follow_from_the_generators_and_records(rule):
    assert train(StartPool(6, rule, seed=0), 0) == train(StartPool(6, rule, seed=0), 0)


def pickled(pool):
    return pickle.loads(pickle.dumps(pool))


def cloudpickled(pool):
    return cloudpickle.loads(cloudpickle.dumps(pool))


@pytest.mark.parametrize("duplicate", [copy.deepcopy, pickled, cloudpickled])
@pytest.mark.parametrize("rule", sorted(PRESETS))
def test_a_copy_goes_on_like_the_original_and_apart_from_it(duplicate, rule):
    pool = StartPool(6, rule, seed=0, good_return=0.5)
    train(pool, 0)
    give(pool, 0, 10)
    twin, third = duplicate(pool), duplicate(pool)
    assert train(pool, 11) == train(twin, 11)
    assert third.entries.visits.sum() == 40
    assert third.record([(0, 10, SIGNAL)]).tolist() == [True]


def test_saved_and_loaded_with_a_function_as_rule(tmp_path):
    pool = StartPool(6, lambda entries, rng: int(rng.integers(len(entries.weights))), seed=0)
    train(pool, 0)
    pool.save(tmp_path / "pool.pkl")
    loaded = StartPool.load(tmp_path / "pool.pkl")
    assert loaded.starts == pool.starts and train(loaded, 10) == train(pool, 10)
    (tmp_path / "other.pkl").write_bytes(pickle.dumps(3))
    with pytest.raises(ValueError, match="holds a int, not a StartPool"):
        StartPool.load(tmp_path / "other.pkl")


def test_a_group_is_recorded_under_the_start_that_its_episode_began_in():
    pool = StartPool(8, seed=0)
    starts = {key: give(pool, *key) for key in [(0, 0), (1, 0), (1, 1)]}
    # The second group is an episode ahead, and finishes first.
    used = pool.record([(1, 0, HARD), (0, 0, SIGNAL)])
    assert used.tolist() == [False, True]
    assert pool.entries.visits[[starts[0, 0].id, starts[1, 0].id, starts[1, 1].id]].tolist() == [1, 1, 0]
    assert pool.entries.weights[[starts[0, 0].id, starts[1, 0].id]].tolist() == [0.0, 1.0]
    assert pool.record([(1, 1, EASY)]).tolist() == [True]  # the only one of its rollout
    assert pool.entries.visits[starts[1, 1].id] == 1
    assert pool.record([]).tolist() == []


def test_episodes_that_a_reset_broke_off_are_forgotten():
    pool = StartPool(8, seed=0)
    for episode in range(3):
        give(pool, 0, episode)
    give(pool, 1, 0)
    pool.record([(0, 1, HARD)])
    # Episode 0 may have a slow member.
    assert sorted(pool._given) == [(0, 0), (0, 2), (1, 0)]
    pool.forget([2, 0])
    assert sorted(pool._given) == [(0, 2), (1, 0)] and not pool.gave(0, 0)
    with pytest.raises(ValueError, match="Episode 0 of group 0 has no start of this pool that is not recorded yet"):
        pool.record([(0, 0, HARD)])


def test_a_pool_goes_on_with_fewer_groups():
    pool = StartPool(8, seed=0)
    for group in range(3):
        give(pool, group, 0)
    pool.forget([0])
    assert sorted(pool._given) == [(0, 0)]


def test_groups_beyond_the_wanted_ones_are_left_out_and_can_come_again():
    pool = StartPool(8, RecycleRule(max_discarded=1.0), oversampling=2.0, seed=0)
    entries = [give(pool, group, 0).id for group in range(4)]
    used = pool.record([(group, 0, SIGNAL) for group in range(4)])
    assert used.tolist() == [True, True, False, False]
    assert pool.entries.weights[entries].tolist() == [0.0, 0.0, 1.0, 1.0]
    assert pool.statistics.pool_consumed == 2 / 8


def test_scores_reach_the_rule():
    pool = StartPool(2, LevelReplayRule(), seed=0)
    entries = [give(pool, group, 0).id for group in range(2)]
    pool.record([(0, 0, SIGNAL), (1, 0, SIGNAL)], scores=[1.0, 9.0])
    assert pool.entries.scores[entries].tolist() == [1.0, 9.0]


@pytest.mark.parametrize(
    ("starts", "message"),
    [
        (0, "starts=0 must be at least 1"),
        (-3, "starts=-3 must be at least 1"),
        ([], "A pool of 0 starts has none to draw"),
        ([Start("a", seed=1), Start("a", seed=2)], "Two starts of the pool have the id 'a'"),
        ([Start(["a"], seed=1)], r"The id \['a'\] of a start cannot be hashed"),
        ([Start("a")], "Start 'a' has no seed, options or snapshot"),
        ([Start("a", horizon=0, seed=1)], "must be at least 1 step"),
        ([1, 2], "of a number of starts or of Start objects, not of a int"),
        (None, "of a number of starts or of Start objects, not of a NoneType"),
    ],
)
def test_bad_starts_are_refused(starts, message):
    with pytest.raises(ValueError, match=message):
        StartPool(starts)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rule": "greso"}, "rule='greso' is not one of 'recycle', 'discard', 'skip', 'plr'"),
        ({"oversampling": 0.0}, r"oversampling=0\.0"),
        ({"oversampling": 2.0, "rule": "plr"}, "leaves groups out"),
        ({"tolerance": -0.1}, r"tolerance=-0\.1"),
        ({"good_return": np.nan}, "good_return=nan"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        StartPool(4, **arguments)


def test_an_episode_is_recorded_once():
    pool = StartPool(4, seed=0)
    give(pool, 0, 0)
    with pytest.raises(ValueError, match="is given twice"):
        pool.record([(0, 0, HARD), (0, 0, HARD)])
    pool.record([(0, 0, HARD)])
    with pytest.raises(ValueError, match="Episode 0 of group 0 has no start of this pool"):
        pool.record([(0, 0, HARD)])


def test_members_of_a_group_begin_in_the_starts_of_the_pool():
    pool = StartPool(3, DiscardRule(), seed=0)
    venv = EpisodeControlVecEnv(make_venv(4, time_limits=2, make=NoisyEnv), seed=0)
    venv.set_start_sampler(GroupStarts(4, 2, seed=0, rule=pool))
    obs = venv.reset()
    assert (obs[::2, 0] == obs[1::2, 0]).all()
    ends = episode_ends(venv, 6)
    ids = [[end["start_id"] for end in ends[slot]] for slot in range(4)]
    assert ids[0] == ids[1] and ids[2] == ids[3]
    # Two groups, three episodes each: two passes.
    assert sorted(ids[0] + ids[2]) == [0, 0, 1, 1, 2, 2]


def test_it_is_trained_with_and_saved_with_the_model(tmp_path):
    pool = StartPool(5, SkipRule(), seed=0)
    small = {"n_steps": 16, "batch_size": 32, "n_epochs": 1, "seed": 0, "device": "cpu", "policy_kwargs": {"net_arch": [8]}}
    model = GRPO("MlpPolicy", make_vec_env("CartPole-v1", 4), group_size=2, start_rule=pool, **small)
    model.learn(128)
    model.save(tmp_path / "model.zip")
    loaded = GRPO.load(tmp_path / "model.zip", make_vec_env("CartPole-v1", 4), device="cpu")
    assert loaded.start_rule is not pool and loaded.start_rule.starts == pool.starts
    np.testing.assert_array_equal(loaded.start_rule.entries.weights, pool.entries.weights)
    loaded.learn(64, reset_num_timesteps=False)


def test_without_a_seed_the_starts_follow_the_model():
    def pools(**kwargs):
        pool = StartPool(5, **kwargs)
        venv = make_vec_env("CartPole-v1", 2, seed=0)
        return pool, GRPO("MlpPolicy", venv, group_size=2, start_rule=pool, n_steps=8, batch_size=16, seed=3)

    (one, _), (other, _) = pools(), pools()
    assert one.starts == other.starts == StartPool(5, seed=3).starts
    assert pools(seed=1)[0].starts == StartPool(5, seed=1).starts
    # The first model decides, whether it has been trained yet or not, and what a pool has been through.
    GRPO("MlpPolicy", make_vec_env("CartPole-v1", 2), group_size=2, start_rule=one, n_steps=8, batch_size=16, seed=4)
    assert one.starts == other.starts
    used = StartPool(5)
    give(used, 0, 0)
    before = used.starts
    used.follow_seed(3)
    assert used.starts == before
    assert StartPool(5).starts != StartPool(5).starts


def test_given_starts_follow_nobody():
    pool = StartPool([Start("a", seed=1), Start("b", seed=2)])
    pool.follow_seed(3)
    assert [start.seed for start in pool.starts] == [1, 2]
