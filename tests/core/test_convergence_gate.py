"""A group is cut as a whole once its members do the same, where that has been a sign of equal returns."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sb3_budget.core import convergence_gate as core
from tests.core.group_views import group_view

EXAMPLES = settings(max_examples=25, deadline=None, derandomize=True)
#: Cuts the first group that is alike.
AT_ONCE = {"threshold": 0.0, "calibration_groups": 0, "arm_at": 0.0, "audit_fraction": 0.0}


class Slots:
    """Slots of one group or several that take one step at a time."""

    def __init__(self, gate, n_envs=4, group_size=4, seed=0, **fields):
        self.gate, self.fields, self.group_size = gate, {"rng": np.random.default_rng(seed), **fields}, group_size
        self.ages, self.episodes = np.zeros(n_envs, dtype=np.int64), np.zeros(n_envs, dtype=np.int64)
        gate.start_training(group_size)

    def step(self, actions, values=None, ended=(), returns=0.0, reason="terminated", **fields):
        """
        One step of all slots; the episodes of the ended ones are over afterwards.

        :return: Slots that the gate asks to stop.
        """
        actions = np.asarray(actions)
        values = np.zeros(len(actions)) if values is None else values
        given_ = {"look": np.zeros(len(actions), bool), **self.fields, **fields}
        stop = self.gate(group_view(values, self.ages, self.episodes, self.group_size, actions=actions, **given_))
        slots = np.array(ended, dtype=np.int64)
        if len(slots):
            returns = np.broadcast_to(returns, len(slots)).astype(float)
            self.gate.end_episodes(slots, returns, self.ages[slots] + 1, [reason] * len(slots))
        self.ages += 1
        self.ages[slots] = 0
        self.episodes[slots] += 1
        return np.flatnonzero(stop).tolist()

    def episode(self, distance_of_10=0, returns=0.0, **kwargs):
        """
        An episode of ten equal steps and an eleventh, of which the first member differs in some.

        :return: What the gate asked to stop.
        """
        n = len(self.ages)
        for step in range(10):
            actions = np.zeros(n, dtype=np.int64)
            actions[0] = step < distance_of_10
            assert self.step(actions) == []
        stop = self.step(np.zeros(n, dtype=np.int64), ended=range(n), returns=returns, **kwargs)
        return stop


# ---------------------------------------------------------------------- the decision


def test_a_group_is_cut_when_its_members_have_done_the_same():
    slots = Slots(core.ConvergenceGate(3, **AT_ONCE), 8)
    for step in range(3):
        assert slots.step([step % 2] * 7 + [1]) == []
    assert slots.step([0] * 8) == [0, 1, 2, 3]
    assert slots.step([0] * 8) == []
    assert slots.gate.n_cut == 1


def test_the_last_member_decides_and_who_has_gone_on_is_not_stopped():
    slots = Slots(core.ConvergenceGate(2, **AT_ONCE))
    slots.step([7, 7, 7, 7], ended=[0, 1, 2])
    assert slots.step([1, 1, 1, 7]) == []
    assert slots.step([2, 2, 2, 7], ended=[3]) == []
    # Members 0 to 2 come to age 2 of episode 1 where member 3 begins it; then member 1 goes on to episode 2.
    assert slots.step([3, 4, 5, 1]) == []
    assert slots.step([3, 4, 5, 2], ended=[1]) == []
    assert slots.step([6, 0, 7, 0]) == [0, 2, 3]


def test_a_group_of_which_a_member_ended_earlier_runs_on():
    slots = Slots(core.ConvergenceGate(2, **AT_ONCE))
    slots.step([1] * 4)
    slots.step([1] * 4, ended=[2])
    assert slots.step([1] * 4) == []
    # Member 2 is at age 2 of its next episode, where the others are not yet.
    assert slots.step([1] * 4) == []
    assert slots.gate.n_cut == 0


def test_an_episode_that_was_under_way_when_training_began_is_not_compared():
    slots = Slots(core.ConvergenceGate(2, **AT_ONCE))
    slots.ages[0] = 1
    assert [slots.step([1] * 4) for _ in range(4)] == [[]] * 4


def test_nothing_is_cut_while_stops_are_not_carried_out():
    slots = Slots(core.ConvergenceGate(2, **AT_ONCE), active=False)
    assert [slots.step([1] * 4) for _ in range(4)] == [[]] * 4
    assert slots.gate.n_cut == 0


def test_members_are_compared_in_the_policys_own_noise():
    actions = np.array([[0.1], [0.1], [0.3], [0.1]])
    for std, expected in ((1.0, [0, 1, 2, 3]), (0.05, [])):
        slots = Slots(core.ConvergenceGate(1, **AT_ONCE), action_std=np.full((4, 1), std))
        slots.step(actions)
        assert slots.step(actions) == expected


def test_returns_are_compared_with_those_of_all_groups():
    gate = core.ConvergenceGate(1, **{**AT_ONCE, "threshold": 0.2}, distance="returns")
    slots = Slots(gate, 8)
    different = np.arange(8)  # actions do not count
    slots.step(different)
    assert slots.step(different, values=[0.0, 0.1, 0.0, 0.1, 5.0, 9.0, 5.0, 9.0]) == []
    slots = Slots(gate, 8)
    slots.step(different)
    assert slots.step(different, values=[0.0, 0.1, 0.0, 0.1, 5.0, 9.0, 5.0, 9.0]) == [0, 1, 2, 3]


def test_a_distance_of_ones_own():
    seen = []
    gate = core.ConvergenceGate(2, **AT_ONCE, distance=lambda prefixes: seen.append(prefixes) or 0.0)
    slots = Slots(gate)
    slots.step([[1, 2]] * 4)
    slots.step([[3, 4]] * 4)
    assert slots.step([[0, 0]] * 4, values=[1, 2, 3, 4]) == [0, 1, 2, 3]
    assert seen[0].actions.tolist() == [[[1, 2], [3, 4]]] * 4 and seen[0].stds is None
    assert seen[0].scores.tolist() == [1, 2, 3, 4] and seen[0].scale == np.std([1, 2, 3, 4])


# ---------------------------------------------------------------------- calibration and audit


def test_it_watches_first_and_then_cuts_at_what_was_precise():
    gate = core.ConvergenceGate(10, calibration_groups=4, arm_at=0.3, audit_fraction=1e-9)
    slots = Slots(gate)
    # Distances are half of what one of four differs in.
    assert slots.episode(0) == [] and slots.episode(2) == []
    assert slots.episode(6, returns=[0, 1, 0, 1]) == [] and slots.episode(8, returns=[0, 1, 0, 1]) == []
    assert gate.calibration.threshold == pytest.approx(0.1)
    assert slots.episode(4) == []
    assert gate.calibration.threshold == pytest.approx(0.2)
    assert slots.episode(4, reason="stopped") == [0, 1, 2, 3]
    assert slots.episode(6, returns=[0, 1, 0, 1]) == []
    assert gate.n_cut == 1 and len(gate.calibration) == 6
    logged = gate.log_values()
    assert logged["budget/gate_groups_cut"] == 1.0 and logged["budget/gate_zero_variance"] == 0.5
    assert logged["budget/gate_threshold"] == pytest.approx(0.2) and logged["budget/gate_distance"] == pytest.approx(0.25)


def test_groups_under_audit_run_on_whole_and_stand_for_those_that_do_not():
    gate = core.ConvergenceGate(10, calibration_groups=1, arm_at=0.0, audit_fraction=0.25)
    slots = Slots(gate)
    slots.episode(0)
    cut = [bool(slots.episode(0)) for _ in range(400)]
    # Standard error 0.022.
    assert np.mean(cut) == pytest.approx(0.75, abs=0.09)
    assert len(gate.calibration) == 1 + cut.count(False)
    assert {outcome.weight for outcome in list(gate.calibration._outcomes)[1:]} == {4.0}


def test_a_false_threshold_is_found_out_by_its_audits():
    gate = core.ConvergenceGate(10, calibration_groups=5, arm_at=0.0, audit_fraction=0.3)
    slots = Slots(gate)
    for _ in range(5):
        slots.episode(0)
    assert gate.calibration.threshold == 0.0
    # Now equal actions are no sign any more.
    while gate.calibration.threshold is not None:
        slots.episode(0, returns=[0, 1, 0, 1])
        assert gate.n_cut < 100
    assert slots.episode(0) == []


def test_members_that_were_stopped_by_others_tell_nothing():
    gate = core.ConvergenceGate(10)
    slots = Slots(gate)
    slots.episode(0, reason="stopped")
    assert len(gate.calibration) == 0
    slots.episode(0, reason="time_limit")
    assert len(gate.calibration) == 1


def test_a_group_that_could_not_be_compared_counts_in_the_share_and_is_at_no_distance():
    slots = Slots(core.ConvergenceGate(10))
    slots.step([0] * 4, ended=range(4), returns=1.0)
    assert slots.gate.calibration.zero_variance == 1.0 and np.isnan(slots.gate.calibration.median_distance)
    assert "budget/gate_distance" not in slots.gate.log_values()


def test_equal_returns_are_equal_up_to_a_tolerance():
    for tolerance, expected in ((0.0, 0.0), (0.01, 0.5)):
        slots = Slots(core.ConvergenceGate(10, tolerance=tolerance))
        # Deviations of all returns are about 50.
        slots.episode(0, returns=[0.0, 100.0, 0.0, 100.0])
        slots.episode(0, returns=[100.0, 100.4, 100.0, 100.0])
        assert slots.gate.calibration.zero_variance == expected


def test_episodes_that_were_stopped_do_not_enter_what_returns_are_compared_with():
    slots = Slots(core.ConvergenceGate(10, tolerance=0.01))
    slots.episode(0, returns=[0.0, 1e6, 0.0, 1e6], reason="stopped")
    slots.episode(0, returns=[100.0, 100.4, 100.0, 100.0])
    assert slots.gate.calibration.zero_variance == 0.0


def test_what_was_learnt_is_kept_and_what_is_open_is_not():
    gate = core.ConvergenceGate(10)
    slots = Slots(gate)
    slots.episode(0)
    slots.step([0] * 4, ended=[0])
    copy = pickle.loads(pickle.dumps(gate))
    assert len(copy.calibration) == 1 and copy._open == {} and gate._open
    gate.start_training(4)
    assert len(gate.calibration) == 1 and gate._open == {}


@EXAMPLES
@given(st.integers(0, 2**32 - 1), st.integers(2, 4), st.integers(1, 3))
def test_whoever_is_stopped_is_stopped_with_all_mates_in_that_episode(seed, group_size, steps):
    rng = np.random.default_rng(seed)
    gate = core.ConvergenceGate(steps, **{**AT_ONCE, "threshold": 0.3, "audit_fraction": 0.2})
    slots, n = Slots(gate, 3 * group_size, group_size, seed), 3 * group_size
    asked = np.zeros(n, dtype=bool)
    for _ in range(60):
        ended = np.flatnonzero(asked | (rng.random(n) < 0.1))
        ages, episodes = slots.ages.copy(), slots.episodes.copy()
        stop = np.isin(np.arange(n), slots.step(rng.random(n) < 0.2, ended=ended))
        for group in range(3):
            members = slice(group * group_size, (group + 1) * group_size)
            if stop[members].any():
                episode = episodes[members][stop[members]]
                assert len(set(episode)) == 1
                assert stop[members].tolist() == (episodes[members] == episode[0]).tolist()
                assert ages[members][stop[members]].min() == steps
        asked = stop & ~np.isin(np.arange(n), ended)
    # What is open is what not all members have ended.
    assert all(len(group.returns) < group_size for group in gate._open.values())


# ---------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ({"steps": 0}, "steps=0 must be at least 1"),
        ({"calibration_groups": -1}, "calibration_groups=-1 not negative"),
        ({"precision_floor": 1.1}, r"precision_floor=1.1 must lie in \[0, 1\]"),
        ({"arm_at": -0.1}, r"arm_at=-0.1 must lie in \[0, 1\]"),
        ({"audit_fraction": 0.0}, "give a threshold, or let some run on"),
        ({"calibration_groups": 0}, "give a threshold, or let some run on"),
        ({"threshold": 0.0, "audit_fraction": 0.0}, "let some run on, or set arm_at=0"),
        ({"tolerance": -1.0}, "tolerance=-1.0 must not be negative"),
        ({"distance": "states"}, "distance='states' is not one of"),
        ({"fate": "keep"}, "fate='keep' is neither 'stop' nor 'drop'"),
    ],
)
def test_bad_arguments_are_refused(given_, message):
    with pytest.raises(ValueError, match=message):
        core.ConvergenceGate(**given_)


def test_groups_and_a_known_noise_are_needed():
    with pytest.raises(ValueError, match="compares at least 2 members of a group, but group_size=1"):
        core.ConvergenceGate().start_training(1)
    slots = Slots(core.ConvergenceGate(1))
    with pytest.raises(ValueError, match="use distance='returns'"):
        slots.step(np.full((4, 1), 0.5))
    # Bits are floating-point numbers too.
    Slots(core.ConvergenceGate(1)).step(np.ones((4, 2), dtype=np.float32))


def test_members_that_one_slot_plays_in_turn_are_compared_and_counted():
    gate = core.ConvergenceGate(1, **AT_ONCE)
    gate.start_training(2)

    def step(ages, members, ended):
        view = group_view([0.0, 0.0], ages, [0, 0], 2, look=[0, 0], actions=np.zeros(2, dtype=np.int64))
        stop = gate(view._replace(members=np.array(members)))
        slots = np.array(ended, dtype=np.int64)
        gate.end_episodes(slots, np.ones(len(slots)), np.ones(len(slots), dtype=np.int64), ["terminated"] * len(slots))
        return np.flatnonzero(stop).tolist()

    # Both members of start 0 are played by slot 1, one after the other, while slot 0 is in another start's episode.
    assert step([5, 0], [0, 0], []) == []
    assert step([6, 1], [0, 0], [1]) == []
    assert len(gate._open) == 1
    assert step([7, 0], [0, 1], []) == []
    assert step([8, 1], [0, 1], []) == [0, 1]
