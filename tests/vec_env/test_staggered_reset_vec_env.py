"""Staggering: which offsets slots get, and that environments really are where the labels say."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from stable_baselines3.common.vec_env import VecEnvWrapper, VecNormalize

from sb3_budget import StaggeredResetVecEnv
from sb3_budget.core.staggering import phase_coverage, phase_histogram
from tests.vec_env.slot_envs import episode_ends, make_venv, step

HORIZON = 40


def staggered(n_envs=8, horizon=HORIZON, length=None, **kwargs):
    return StaggeredResetVecEnv(make_venv(n_envs, time_limits=horizon, length=length), **kwargs)


class CounterOnlyStagger(VecEnvWrapper):
    """What staggering must not be: slots are labelled with shifted ages, and nothing moves."""

    def reset(self):
        self.ages = np.arange(self.num_envs) * HORIZON // self.num_envs
        return self.venv.reset()

    def step_wait(self):
        self.ages = (self.ages + 1) % HORIZON
        return self.venv.step_wait()


def observed_and_labelled_coverage(venv, n_steps=4):
    """Phase coverage of one short rollout after two episodes, by the environments' own clock and by the wrapper's."""
    venv.reset()
    episode_ends(venv, 2 * HORIZON)
    steps, ages = [], []
    for _ in range(n_steps):
        steps.append(step(venv)[0][:, 2])
        ages.append(venv.ages.copy())
    return tuple(phase_coverage(phase_histogram(clock, HORIZON, HORIZON // n_steps)) for clock in (steps, ages))


@pytest.mark.parametrize("mode", ["first_episode", "warmup"])
def test_a_short_rollout_covers_every_block_of_the_horizon(mode):
    venv = staggered(20, mode=mode, seed=0)
    assert observed_and_labelled_coverage(venv) == (1.0, 1.0)
    assert venv.diagnose().phase_coverage == 1.0


def test_shifted_labels_alone_would_not():
    observed, labelled = observed_and_labelled_coverage(CounterOnlyStagger(make_venv(20, time_limits=HORIZON)))
    assert labelled == 1.0 and observed < 0.3


def test_only_the_first_episode_is_cut_and_no_step_is_added():
    venv = staggered(4)
    venv.reset()
    ends = episode_ends(venv, 2 * HORIZON)
    assert venv.offsets.tolist() == [0, 10, 20, 30]
    assert [[(end["reason"], end["length"]) for end in slot] for slot in ends] == [
        [("time_limit", 40), ("time_limit", 40)],
        [("stagger", 30), ("time_limit", 40)],
        [("stagger", 20), ("time_limit", 40)],
        [("stagger", 10), ("time_limit", 40)],
    ]
    assert venv.ledger.total_steps == 4 * 2 * HORIZON
    # A reset of everything puts slots in step again, so that their next episodes are shifted again.
    venv.reset()
    assert [end["reason"] for end in episode_ends(venv, 10)[3]] == ["stagger"]


@pytest.mark.parametrize(
    ("kwargs", "expected"),
    [
        ({}, [0, 6, 13, 20, 26, 33]),
        ({"offsets": "blocks", "n_steps": 14}, [0, 13, 26, 0, 13, 26]),
        ({"offsets": "blocks", "n_blocks": 2}, [0, 20, 0, 20, 0, 20]),
        ({"offsets": "blocks", "n_steps": 14, "block_multiplier": 2}, [0, 6, 13, 20, 26, 33]),
        ({"offsets": "blocks", "n_blocks": 2, "block_weights": [2, 1]}, [0, 20, 0, 20, 0, 0]),
        ({"offsets": lambda n, horizon, rng: np.full(n, horizon - 1)}, [39] * 6),
    ],
    ids=["even", "blocks", "n_blocks", "multiplier", "weights", "callable"],
)
def test_offsets_follow_the_rule(kwargs, expected):
    assert staggered(6, **kwargs).offsets.tolist() == expected


def test_random_offsets_follow_the_seed_also_a_later_one():
    def drawn(seed, late=False, **kwargs):
        venv = staggered(16, seed=None if late else seed, **kwargs)
        if late:
            venv.seed(seed)
        venv.reset()
        return venv.offsets.tolist()

    for kwargs in ({"offsets": "random"}, {"random_fraction": 0.5}):
        assert drawn(1, **kwargs) == drawn(1, **kwargs) == drawn(1, late=True, **kwargs) != drawn(2, **kwargs)
    even = staggered(16).offsets
    assert 1 <= np.sum(even != drawn(1, random_fraction=0.5)) <= 8


def test_a_later_seed_reaches_the_first_episodes():
    venv = VecNormalize(staggered(16, offsets="random"))
    venv.seed(3)
    venv.reset()
    ends = episode_ends(venv, HORIZON)
    assert [end[0]["length"] for end in ends] == (HORIZON - venv.venv.offsets).tolist()


@pytest.mark.parametrize("offsets", ["even", "blocks"])
def test_processes_share_one_set_of_offsets(offsets):
    ranks = [staggered(4, offsets=offsets, n_blocks=8, rank=rank, world_size=2).offsets.tolist() for rank in (0, 1)]
    assert ranks == [[0, 10, 20, 30], [5, 15, 25, 35]]


def test_jitter_cuts_every_later_episode_within_its_range():
    venv = staggered(4, mode="jitter", jitter_fraction=0.25, seed=0)
    venv.reset()
    ends = [end for slot in episode_ends(venv, 10 * HORIZON) for end in slot[1:]]
    lengths = [end["length"] for end in ends]
    assert min(lengths) == 30 and max(lengths) == 40 and len(set(lengths)) > 8
    assert all(end["reason"] == ("jitter" if end["length"] < 40 else "time_limit") for end in ends)


def test_jitter_drives_slots_apart_that_begin_in_step():
    dispersions = {}
    for mode in ("first_episode", "jitter"):
        venv = staggered(16, mode=mode, offsets=lambda n, horizon, rng: np.zeros(n), jitter_fraction=0.5, seed=0)
        venv.reset()
        episode_ends(venv, 6 * HORIZON + 3)
        dispersions[mode] = venv.diagnose().dispersion
    assert dispersions["first_episode"] == pytest.approx(0.0) and dispersions["jitter"] > 0.5


def test_new_offsets_take_effect_at_the_next_episodes():
    venv = staggered(2)
    venv.reset()
    venv.reassign([10, 0])
    ends = episode_ends(venv, 2 * HORIZON)
    assert [end["length"] for end in ends[0]] == [40, 30]
    assert [end["length"] for end in ends[1]] == [20, 40]
    venv.reassign()
    assert venv.offsets.tolist() == [0, 20]
    for wrong in ([0], [0, HORIZON], [-1, 0]):
        with pytest.raises(ValueError, match="Offsets must be 2 numbers"):
            venv.reassign(wrong)


def test_offsets_are_redrawn_every_so_many_episodes():
    venv = staggered(2, offsets=lambda n, horizon, rng: np.full(n, 10), reassign_every=2)
    venv.reset()
    assert [end["length"] for end in episode_ends(venv, 180)[0]] == [30, 40, 30, 40, 30]


def test_group_reset_ends_the_episodes_of_the_block_too():
    venv = StaggeredResetVecEnv(
        make_venv(3, time_limits=[3, HORIZON, HORIZON]), HORIZON, offsets=lambda *_: [0, 0, 20], group_reset=True
    )
    venv.reset()
    ends = episode_ends(venv, 4)
    assert [end["reason"] for end in ends[0]] == ["time_limit"]
    assert [(end["reason"], end["length"]) for end in ends[1]] == [("stagger", 4)]
    assert ends[2] == []


@pytest.mark.filterwarnings("ignore:Staggered resets cannot help:UserWarning")
@pytest.mark.parametrize("mode", ["first_episode", "warmup", "jitter"])
def test_one_slot_is_left_alone(mode):
    venv = staggered(1, mode=mode, offsets=lambda *_: [20], reassign_every=1)
    venv.reset()
    ends = episode_ends(venv, 3 * HORIZON)[0]
    assert [(end["reason"], end["length"]) for end in ends] == [("time_limit", HORIZON)] * 3


@pytest.mark.parametrize(
    ("n_envs", "kwargs", "message"),
    [(1, {}, "there is one slot"), (4, {"n_steps": HORIZON}, "rollout of 40 steps covers the horizon of 40")],
)
def test_a_warning_says_at_once_when_staggering_cannot_help(n_envs, kwargs, message):
    with pytest.warns(UserWarning, match=f"cannot help here: .*{message}"):
        venv = staggered(n_envs, **kwargs)
    assert message in venv.diagnose().advice[0]


def test_a_warning_says_once_when_episodes_are_dispersed_by_themselves():
    venv = staggered(4, length=3)
    venv.reset()
    with pytest.warns(UserWarning, match="100% of the first episodes ended by themselves"):
        episode_ends(venv, 4)
    episode_ends(venv, 12)
    diagnosis = venv.diagnose()
    assert diagnosis.early_end_ratio == 1.0 and len(diagnosis.advice) == 1


def test_diagnose_measures_since_the_last_call():
    venv = staggered(20)
    venv.reset()
    at_first = venv.diagnose()
    assert (at_first.phase_coverage, at_first.phase_entropy, at_first.dispersion) == (0.0, 0.0, 0.0)
    step(venv)
    in_step = venv.diagnose()
    assert in_step.phase_coverage == 1 / 20 and in_step.dispersion == pytest.approx(0.0)
    episode_ends(venv, 2 * HORIZON)
    venv.diagnose()
    step(venv)
    spread = venv.diagnose(n_steps=4)
    assert spread.phase_coverage == 1.0 and spread.phase_entropy == 1.0 and spread.dispersion == pytest.approx(1.0)
    assert spread.advice == () and len(venv.diagnose(n_steps=HORIZON).advice) == 1
    # Where nothing was seen since, as after a training whose callback has measured, the last measurement stands.
    assert venv.diagnose()[:3] == spread[:3]


def test_blocks_are_counted_where_offsets_put_them():
    # 40 steps in 3 blocks begin at 0, 13 and 26: a slot at step 13 is in the second block.
    venv = staggered(3, n_blocks=3)
    venv.reset()
    venv.ages[:] = [12, 12, -1]
    step(venv)
    assert venv.diagnose().phase_coverage == pytest.approx(2 / 3)


def test_disabled_it_plans_nothing_and_needs_no_horizon_until_enabled():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        venv = StaggeredResetVecEnv(make_venv(1), enabled=False)
    venv.reset()
    for method in (venv.reassign, venv.diagnose):
        with pytest.raises(ValueError, match="enabled=False"):
            method()
    with pytest.raises(ValueError, match="pass horizon="):
        venv.enable()
    assert not venv.enabled


def test_enabled_later_the_running_first_episodes_are_shifted():
    venv = staggered(4, enabled=False)
    venv.reset()
    venv.enable()
    assert [[end["length"] for end in slot] for slot in episode_ends(venv, HORIZON)] == [[40], [30], [20], [10]]


def test_a_warm_up_needs_a_reset_to_come():
    venv = staggered(4, mode="warmup", enabled=False)
    venv.enable()
    venv.reset()
    assert venv.ages.tolist() == [0, 10, 20, 30]
    venv = staggered(4, mode="warmup", enabled=False)
    venv.reset()
    with pytest.raises(ValueError, match=r"steps the slots at a reset.* enabled=True, or take mode='first_episode'"):
        venv.enable()
    assert not venv.enabled


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"mode": "late"}, "mode='late'"),
        ({"offsets": "odd"}, "offsets='odd'"),
        ({"offsets": "blocks"}, "needs n_steps"),
        ({"offsets": "blocks", "n_blocks": 2, "block_weights": [1, 2, 3]}, "block_weights"),
        ({"n_blocks": 2, "block_weights": [1, 2]}, "with offsets='even' and mode='first_episode' they do nothing"),
        ({"offsets": lambda n, horizon, rng: np.full(n, horizon)}, "Offsets must be 8 numbers"),
        ({"offsets": lambda n, horizon, rng: [0]}, "Offsets must be 8 numbers"),
        ({"horizon": 0}, "horizon=0"),
        ({"n_steps": 0}, "n_steps"),
        ({"n_blocks": 0}, "n_blocks=0"),
        ({"n_blocks": HORIZON + 1}, "n_blocks=41"),
        ({"random_fraction": 1.5}, "random_fraction=1.5"),
        ({"jitter_fraction": 1.0}, "jitter_fraction=1.0"),
        ({"full_fraction": -0.1}, "full_fraction=-0.1"),
        ({"reassign_every": 0}, "reassign_every=0"),
        ({"horizon_budget": "half"}, "horizon_budget='half'"),
        ({"horizon_budget": "discount", "gamma": 1.5}, "gamma"),
        ({"rank": 2, "world_size": 2}, "rank"),
    ],
)
def test_wrong_arguments_are_refused_at_construction(kwargs, message):
    horizon = kwargs.pop("horizon", HORIZON)
    with pytest.raises(ValueError, match=message):
        StaggeredResetVecEnv(make_venv(8, time_limits=HORIZON), horizon, **kwargs)


def test_a_wrapper_below_is_refused():
    with pytest.raises(ValueError, match=r"VecNormalize\(StaggeredResetVecEnv\(venv\)\)"):
        StaggeredResetVecEnv(VecNormalize(make_venv(2, time_limits=HORIZON)))


def test_blocks_are_dealt_over_all_processes():
    parts = [staggered(4, rank=rank, world_size=2) for rank in range(2)]
    for venv in parts:
        venv.reassign_blocks(8)
    assert sorted(np.concatenate([venv.offsets for venv in parts]).tolist()) == [0, 5, 10, 15, 20, 25, 30, 35]
