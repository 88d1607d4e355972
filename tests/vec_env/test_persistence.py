"""Pickled, copied, saved and put on other environments, as SB3's own wrappers can be."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from sb3_budget import EpisodeControlVecEnv, StaggeredResetVecEnv, Start
from tests.vec_env.slot_envs import CounterEnv, assert_same, episode_ends, make_venv


def staggered(**kwargs):
    return StaggeredResetVecEnv(make_venv(4, time_limits=20), offsets="random", horizon_budget="discount", seed=0, **kwargs)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda venv: pickle.loads(pickle.dumps(venv))])
@pytest.mark.parametrize("mode", ["first_episode", "warmup"])
def test_a_copy_goes_on_like_the_original(duplicate, mode):
    venv = staggered(mode=mode)
    venv.reset()
    episode_ends(venv, 7)
    twin = duplicate(venv)
    assert twin.venv is None and venv.venv is not None
    # A shallow copy shares its generators with the original, as any shallow copy does.
    twin = pickle.loads(pickle.dumps(twin))
    twin.set_venv(make_venv(4, time_limits=20))
    assert twin.ages.tolist() == [0] * 4 and twin.ledger == venv.ledger
    assert_same(venv.reset()[:, 2], twin.reset()[:, 2])
    assert episode_ends(venv, 45) == episode_ends(twin, 45)


def test_saved_and_loaded(tmp_path):
    venv = staggered()
    venv.reset()
    episode_ends(venv, 5)
    venv.save(tmp_path / "venv.pkl")
    loaded = StaggeredResetVecEnv.load(tmp_path / "venv.pkl", make_venv(4, time_limits=20))
    assert loaded.offsets.tolist() == venv.offsets.tolist() and loaded.ledger.learning_steps == 20
    venv.reset()
    loaded.reset()
    assert episode_ends(venv, 45) == episode_ends(loaded, 45)


def test_functions_are_saved_and_a_failing_save_spares_the_file(tmp_path):
    path = tmp_path / "venv.pkl"
    base = make_venv(4, time_limits=20)
    rules = {"offsets": lambda n, horizon, rng: np.arange(n), "horizon_budget": lambda n, rng: np.full(n, 7)}
    venv = StaggeredResetVecEnv(base, **rules, full_fraction=0.0)
    venv.save(path)
    loaded = StaggeredResetVecEnv.load(path, make_venv(4, time_limits=20))
    loaded.reset()
    assert {end["length"] for ends in episode_ends(loaded, 20) for end in ends} == {7}
    generator = (n for n in range(3))
    broken = StaggeredResetVecEnv(base, offsets=lambda n, horizon, rng: [next(generator)] * n)
    with pytest.raises(TypeError):
        broken.save(path)
    StaggeredResetVecEnv.load(path, make_venv(4, time_limits=20))


def test_a_horizon_that_was_found_must_fit_the_new_environments(tmp_path):
    staggered().save(tmp_path / "found.pkl")
    with pytest.raises(ValueError, match="the horizon of 20 steps that its environments had, the given ones have 50"):
        StaggeredResetVecEnv.load(tmp_path / "found.pkl", make_venv(4, time_limits=50))
    staggered(horizon=20).save(tmp_path / "given.pkl")
    assert StaggeredResetVecEnv.load(tmp_path / "given.pkl", make_venv(4, time_limits=50)).horizon == 20


def test_a_file_of_something_else_is_refused(tmp_path):
    EpisodeControlVecEnv(make_venv()).save(tmp_path / "venv.pkl")
    with pytest.raises(ValueError, match="holds a EpisodeControlVecEnv, not a StaggeredResetVecEnv"):
        StaggeredResetVecEnv.load(tmp_path / "venv.pkl", make_venv())


def test_a_sampler_stays_with_the_one_who_set_it():
    venv = EpisodeControlVecEnv(make_venv())
    venv.set_start_sampler(lambda slot: Start("a"), owner="allocator")
    twin = pickle.loads(pickle.dumps(venv))
    twin.set_venv(make_venv())
    twin.set_start_sampler(lambda slot: None, owner="user")
    twin.reset()


def forbidding():
    return Monitor(CounterEnv(), allow_early_resets=False)


def test_set_venv_checks_what_the_constructor_checks():
    venv = EpisodeControlVecEnv(make_venv())
    with pytest.raises(ValueError, match="already initialized"):
        venv.set_venv(make_venv())
    twin = copy.copy(venv)
    with pytest.raises(ValueError, match="saved with 2 slots, the given VecEnv has 3"):
        twin.set_venv(make_venv(3))
    with pytest.raises(ValueError, match="directly on the base VecEnv"):
        twin.set_venv(VecNormalize(make_venv()))
    with pytest.raises(ValueError, match="allow_early_resets=True"):
        twin.set_venv(DummyVecEnv([forbidding, forbidding]))
    with pytest.raises(AssertionError):
        twin.set_venv(make_venv(kind="image"))
    other_actions = make_venv()
    other_actions.action_space = spaces.Discrete(17)
    with pytest.raises(ValueError, match=r"saved with the actions .*, the given VecEnv has Discrete\(17\)"):
        twin.set_venv(other_actions)
    twin.set_venv(make_venv())
    twin.reset()
    assert twin.env_is_wrapped(Monitor) == [False, False]


def test_construction_leaves_the_seeds_of_the_first_reset_alone():
    inner = make_venv(2, time_limits=5)
    inner.seed(11)
    venv = StaggeredResetVecEnv(inner, mode="warmup")
    venv.reset()
    assert [seeds[0] for seeds in venv.get_attr("seeds")] == [11, 12]


def test_the_same_seed_gives_the_same_steps():
    def run(seed):
        venv = StaggeredResetVecEnv(make_venv(4, time_limits=20), mode="jitter", offsets="random", horizon_budget="discount")
        assert venv.seed(seed) == [seed, seed + 1, seed + 2, seed + 3]
        venv.reset()
        return [[end["length"] for end in ends] for ends in episode_ends(venv, 60)]

    assert run(1) == run(1) != run(2)


def test_a_seed_of_none_keeps_what_was_drawn():
    venv = staggered()
    offsets = venv.offsets.tolist()
    venv.seed(None)
    assert venv.offsets.tolist() == offsets == staggered().offsets.tolist()
