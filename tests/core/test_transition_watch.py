"""A watch pools what never varies, once, and tells who listens what it saw."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from sb3_budget.core import transition_watch
from sb3_budget.core.cells import QuantisedCells
from sb3_budget.core.determinism import DeterminismDetector, Verdict
from sb3_budget.core.transition_keys import TransitionKeys
from sb3_budget.core.transition_pool import TransitionPool
from sb3_budget.core.transition_watch import TransitionWatch

FIELDS = {
    "observations": ((1,), np.float32),
    "next_observations": ((1,), np.float32),
    "actions": ((1,), np.int64),
    "rewards": ((), np.float32),
    "dones": ((), np.float32),
}


def make(min_count=2, cells=None, whitelist=None):
    pool, detector = TransitionPool(10, FIELDS), DeterminismDetector(min_count)
    return TransitionWatch("Test", detector, pool, TransitionKeys(cells), whitelist)


def columns(*states, rewards=None):
    column = np.array(states, dtype=np.float32)[:, None]
    return {
        "observations": column,
        "next_observations": column + 1,
        "actions": np.zeros((len(states), 1), dtype=np.int64),
        "rewards": np.array(states if rewards is None else rewards, dtype=np.float32),
        "dones": np.zeros(len(states), dtype=np.float32),
    }


def pooled(watch):
    return sorted(watch.pool.take(np.arange(len(watch.pool)))["observations"].ravel().tolist())


def test_rows_of_one_step_share_their_evidence_and_one_contradiction_is_for_ever():
    watch = make()
    watch.add(columns(1, 1, 2), [False] * 3, step=3)
    assert pooled(watch) == [1.0]
    watch.add(columns(1, 2, rewards=[5, 2]), [False] * 2, step=5)
    assert pooled(watch) == [2.0] and watch.detector.n_withdrawn == 1
    watch.add(columns(1, 1, 1), [False] * 3, step=8)
    assert pooled(watch) == [2.0]


def test_ages_are_those_of_the_latest_visit():
    watch = make()
    for step, states in enumerate([(1, 2), (1, 2), (1, 3)]):
        watch.add(columns(*states), [False] * 2, step=step, version=10 * step)
    assert watch.pool.ages(2).tolist() == [0, 1] and watch.pool.version_ages(20).tolist() == [0, 10]


def test_who_listens_is_shown_what_was_watched_and_is_not_pickled():
    watch, seen = make(), []
    watch.listener = seen.append
    keys = watch.add(columns(1, 2), [False, True], step=7, version=3)
    (found,) = seen
    assert found.keys == keys and found.cut == [False, True] and (found.step, found.version) == (7, 3)
    assert found.transitions["observations"].ravel().tolist() == [1.0, 2.0]
    assert watch.detector.verdict(keys[0]) == Verdict.UNKNOWN
    again = pickle.loads(pickle.dumps(watch))
    assert again.listener is None and again.detector.n_observed == 1


def test_cells_gather_before_they_count():
    watch = make(cells=QuantisedCells(bins_per_std=1.0))
    assert watch.add(columns(-1, 1), [False] * 2, step=0, gather=True) == []
    assert watch.detector.n_observed == 0
    assert len(watch.add(columns(-1, 1), [False] * 2, step=0)) == 2


@pytest.mark.parametrize("trusts", [False, True])
def test_where_nothing_repeats_it_ends_unless_something_is_known_without(monkeypatch, trusts):
    monkeypatch.setattr(transition_watch, "TRIAL", 50)
    watch = make(whitelist=lambda observations, actions: np.full(len(actions), trusts))
    for step in range(24):
        watch.add(columns(2 * step, 2 * step + 1), [False] * 2, step)
    if trusts:
        watch.add(columns(48, 49), [False] * 2, step=25)
    else:
        with pytest.warns(UserWarning, match="Test switched itself off: of 50 transitions, 0 repeated"):
            watch.add(columns(48, 49), [False] * 2, step=25)
    assert watch.enabled == trusts and (len(watch.pool) > 0) == trusts


def test_of_what_has_left_the_pool_a_contradiction_is_heard_too():
    watch = make()
    for _ in range(2):
        watch.add(columns(1), [False], step=0)
    watch.pool.discard(next(iter(watch.pool.keys())))
    assert len(watch.pool) == 0 == watch.detector.n_withdrawn
    watch.add(columns(1, rewards=[5]), [False], step=1)
    assert watch.detector.n_withdrawn == 1


def test_where_an_episode_terminated_the_state_it_led_to_is_no_outcome():
    watch = make()
    for place in (2.0, 3.0):
        found = columns(1)
        found["dones"][:], found["next_observations"][:] = 1.0, place
        watch.add(found, [False], step=0)
    assert pooled(watch) == [1.0]


def test_a_trial_is_held_also_if_what_another_watch_knows_jumps_over_its_end(monkeypatch):
    monkeypatch.setattr(transition_watch, "TRIAL", 10)
    watches = make(), make()
    for number, watch in enumerate(watches):
        for step in range(8):
            watch.add(columns(100 * number + step), [False], step)
    watches[0].merge(watches[1])
    with pytest.warns(UserWarning, match="switched itself off"):
        watches[0].add(columns(50), [False], step=9)
