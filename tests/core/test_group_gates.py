"""Members of a group are judged by what their mates scored at the same age of the same episode."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sb3_budget.core import group_gates as core
from tests.core.group_views import group_view

EXAMPLES = settings(max_examples=40, deadline=None, derandomize=True)


# ---------------------------------------------------------------------- the cap


def test_stops_of_each_group_are_limited_by_hand():
    stop = np.array([True, True, True, False, True, True, True, True])
    scores = np.array([3.0, 1.0, 2.0, 0.0, 4.0, 6.0, 5.0, 7.0])
    groups = np.repeat([0, 7], 4)
    already = np.repeat([0, 1], 4)
    limited = core.limit_group_stops(stop, scores, groups, already, 2, np.random.default_rng(0))
    assert limited.tolist() == [False, True, True, False, True, False, False, False]


@EXAMPLES
@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(-1, 6))
def test_caps_of_groups_are_kept_and_used_up_by_the_lowest(seed, n_groups, cap):
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, n_groups, 20)
    stop, scores = rng.random(20) < 0.6, rng.integers(0, 5, 20).astype(float)
    before = rng.integers(0, 4, n_groups)
    limited = core.limit_group_stops(stop, scores, groups, before[groups], cap, rng)
    assert not (limited & ~stop).any()
    for group in range(n_groups):
        members = groups == group
        asked, taken = stop & members, limited & members
        assert taken.sum() == min(asked.sum(), max(0, cap - before[group]))
        if taken.any() and (asked & ~taken).any():
            assert scores[taken].max() <= scores[asked & ~taken].min()


def test_ties_within_a_group_are_broken_at_random():
    rng, stop, nobody = np.random.default_rng(0), np.ones(3, bool), np.zeros(3, dtype=np.int64)
    counts = sum(core.limit_group_stops(stop, np.zeros(3), nobody, nobody, 1, rng).astype(int) for _ in range(300))
    assert counts.min() > 60


# ---------------------------------------------------------------------- rungs


def test_the_lowest_of_enough_mates_is_stopped():
    gate = core.GroupQuantileGate(0.25)
    # Two groups in step: the lowest of three peers' 0.25 is below all of them.
    assert gate(group_view([1, 0, 2, 3, 13, 12, 11, 10], 20)).tolist() == [False, True, False, False] * 1 + [False] * 3 + [
        True
    ]


def test_mates_that_came_by_earlier_are_peers_and_those_to_come_are_not():
    gate = core.GroupQuantileGate(0.5)
    ages = [20, 20, 20, 10]
    assert not gate(group_view([1, 2, 3, -9], ages)).any()
    # The last member comes to the rung after the others have left it; its own score at 10 counts nowhere else.
    assert gate(group_view([0, 0, 0, 2.5], [30, 30, 30, 20], look=[0, 0, 0, 1])).tolist() == [False] * 4
    gate = core.GroupQuantileGate(0.5)
    gate(group_view([1, 2, 3, -9], ages))
    assert gate(group_view([0, 0, 0, 0.5], [30, 30, 30, 20], look=[0, 0, 0, 1])).tolist() == [False, False, False, True]


@pytest.mark.parametrize("other", [{"episodes": [0, 0, 0, 1]}, {"group_size": 2}, {"lengths": [20, 20, 20, 25]}])
def test_other_episodes_groups_and_ages_are_no_peers(other):
    given_ = {"lengths": 20, **other}
    assert not core.GroupQuantileGate(1.0)(group_view([1, 2, 3, -9], **given_)).any()
    assert core.GroupQuantileGate(1.0)(group_view([1, 2, 3, -9], 20)).any()


def test_where_all_members_are_equal_none_is_stopped():
    assert not core.GroupQuantileGate(1.0)(group_view(np.ones(8), 20)).any()


def test_audited_members_are_peers_and_not_stopped():
    gate = core.GroupQuantileGate(0.5)
    audited = group_view([0, 1, 2, 3], 20, look=[0, 1, 1, 1], due=np.ones(4, bool))
    assert gate(audited).tolist() == [False, True, False, False]
    gate = core.GroupQuantileGate(0.5)
    assert not gate(group_view([0, 1, 2, 3], 20, look=[0, 1, 1, 1])).any()


def test_scores_by_name_and_by_function():
    fields = {"returns": np.array([5.0, 0, 0, 0]), "initial_values": np.array([0, 0, 0, 9.0])}
    stops = {
        score: core.GroupQuantileGate(0.25, score=score)(group_view([0, 1, 2, 3], 20, **fields)).nonzero()[0].tolist()
        for score in ("return", "value", "surprise")
    }
    assert stops == {"return": [1], "value": [0], "surprise": [3]}
    assert core.GroupQuantileGate(0.25, score=lambda view: -view.values)(group_view([0, 1, 2, 3], 20))[3]


def test_the_quantile_may_be_a_schedule():
    gate = core.GroupQuantileGate(lambda progress: 1.0 - progress, group_cap=1.0)
    assert not gate(group_view([0, 1, 2, 3], 20)).any()
    assert gate(group_view([0, 1, 2, 3], 30, progress_remaining=0.0)).tolist() == [True, True, True, False]


def test_what_the_callback_spares_is_asked_for_again_and_counts_once():
    gate = core.GroupQuantileGate(0.25, group_cap=0.25)
    for age in (20, 40, 60):
        assert gate(group_view([0, 1, 2, 3], age)).tolist() == [True, False, False, False]
    assert not gate(group_view([9, 1, 2, 3], 80)).any()


def test_during_the_warm_up_nothing_counts_against_the_cap():
    gate = core.GroupQuantileGate(0.25, group_cap=0.25)
    assert not gate(group_view([0, 1, 2, 3], 20, active=False)).any()
    assert gate(group_view([9, 1, 2, 3], 40)).tolist() == [False, True, False, False]


def test_rungs_are_forgotten_once_all_members_are_past_the_episode():
    gate = core.GroupQuantileGate()
    gate(group_view(np.zeros(8), 20))
    gate(group_view(np.zeros(8), 20, episodes=[1, 1, 1, 0, 1, 1, 1, 1]))
    assert [sorted(races) for races in gate._open.values()] == [[0, 1], [1]]
    assert pickle.loads(pickle.dumps(gate))._open == {}
    gate.start_training(4)
    assert gate._open == {}


def test_a_slot_that_plays_several_members_in_turn_is_a_mate_of_its_own_earlier_episodes():
    gate = core.GroupQuantileGate(0.25, min_peers=2)
    stops = []
    for member, score in ((1, 5.0), (2, 6.0), (3, 1.0), (0, 0.5)):
        view = group_view([0, score, 0, 0], 20, look=[0, 1, 0, 0])
        stops.append(gate(view._replace(members=np.array([0, member, 0, 0]))).tolist())
    # The third has two mates that did better, and so has the fourth, which is none of those that were asked to stop.
    assert stops == [[False] * 4] * 2 + [[False, True, False, False]] * 2


class Race:
    """Slots that walk through their episodes at their own pace, with scores that tell who left them and when."""

    def __init__(self, seed, n_groups, group_size):
        self.rng = np.random.default_rng(seed)
        self.n_envs, self.group_size = n_groups * group_size, group_size
        self.ages, self.episodes = np.zeros(self.n_envs, dtype=np.int64), np.zeros(self.n_envs, dtype=np.int64)

    def steps(self, gate, n_steps):
        """Yield each step's view and what the gate asks for, which is done."""
        for _ in range(n_steps):
            look = (self.ages > 0) & (self.ages % 2 == 0)
            scores = self.rng.integers(0, 6, self.n_envs).astype(float)
            view = group_view(scores, self.ages, self.episodes, self.group_size, look, rng=self.rng)
            stop = gate(view)
            yield view, stop
            ended = stop | (self.rng.random(self.n_envs) < 0.1)
            self.ages = np.where(ended, 0, self.ages + 1)
            self.episodes = self.episodes + ended


@EXAMPLES
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 3),
    st.integers(2, 6),
    st.sampled_from([0.25, 0.5, 1.0]),
    st.sampled_from([0.0, 0.3, 0.5, 1.0]),
    st.integers(0, 2),
)
def test_stops_keep_the_caps_and_no_slot_is_its_own_peer(seed, n_groups, group_size, quantile, cap, min_active):
    min_peers = 1 + seed % (group_size - 1)
    gate = core.GroupQuantileGate(quantile, min_peers=min_peers, group_cap=cap, min_active=min_active)
    stopped, rungs = {}, {}
    for view, stop in Race(seed, n_groups, group_size).steps(gate, 60):
        places = [(slot // group_size, int(view.episodes[slot]), int(view.lengths[slot])) for slot in range(len(stop))]
        for slot in view.look.nonzero()[0].tolist():
            rungs.setdefault(places[slot], []).append((slot, view.values[slot]))
        for slot in stop.nonzero()[0].tolist():
            assert view.look[slot]
            race = places[slot][:2]
            stopped[race] = stopped.get(race, 0) + 1
            # Each slot comes by once, so that its mates' scores are all that are not its own.
            mates = [score for other, score in rungs[places[slot]] if other != slot]
            assert len(mates) >= min_peers and len(mates) == len(rungs[places[slot]]) - 1
            assert sum(score <= view.values[slot] for score in mates) < quantile * len(mates)
    assert all(n <= min(cap * group_size, group_size - min_active) for n in stopped.values())


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match=r"quantile=1.5 must lie in \[0, 1\]"):
        core.GroupQuantileGate(1.5)
    with pytest.raises(ValueError, match=r"group_cap=-0.1 must lie in \[0, 1\]"):
        core.GroupQuantileGate(group_cap=-0.1)
    with pytest.raises(ValueError, match="min_peers=0 must be at least 1"):
        core.GroupQuantileGate(min_peers=0)
    with pytest.raises(ValueError, match="min_active=-1 not negative"):
        core.GroupQuantileGate(min_active=-1)
    with pytest.raises(ValueError, match="score='advantage' is not one of"):
        core.GroupQuantileGate(score="advantage")
    with pytest.raises(ValueError, match="compares at least 4 members of a group, but group_size=1"):
        core.GroupQuantileGate().start_training(1)
    with pytest.raises(ValueError, match="leave no member of group_size=4"):
        core.GroupQuantileGate(group_cap=0.2).start_training(4)
