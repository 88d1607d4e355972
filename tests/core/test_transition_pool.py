"""A pool never mixes two transitions, and forgets in the order it was asked to."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sb3_budget.core.transition_pool import LINE, Eviction, TransitionPool

FIELDS = {"observations": ((2,), np.float32), "rewards": ((), np.float32), "actions": ((1,), np.int64)}


def transition(number):
    return {"observations": [number, -number], "rewards": number, "actions": [number]}


def make(capacity=3, eviction=Eviction.FIFO, keys=()):
    pool = TransitionPool(capacity, FIELDS, eviction)
    for step, key in enumerate(keys):
        pool.put(key, transition(key), step, version=step // 2)
    return pool


def whole(pool):
    """The keys in the pool, after a check that each row is the transition of its key."""
    for key, found in pool.items():
        assert found["observations"].tolist() == [key, -key] and found["rewards"] == key and found["actions"] == [key]
    taken = pool.take(range(len(pool)))
    assert taken["rewards"].tolist() == pool.keys() and pool.rows(pool.keys()).tolist() == list(range(len(pool)))
    return set(pool.keys())


def test_the_first_that_came_leaves_first():
    pool = make(keys=[1, 2, 3, 1, 4])
    assert whole(pool) == {2, 3, 4}


def test_the_one_that_was_not_seen_for_longest_leaves_first():
    pool = make(eviction=Eviction.LRU, keys=[1, 2, 3, 1, 4])
    assert whole(pool) == {1, 3, 4}


def test_the_lowest_priority_leaves_first_and_new_ones_stay():
    pool = make(eviction=Eviction.PRIORITY, keys=[1, 2, 3])
    pool.set_priorities([1, 2, 3, 99], [5.0, 1.0, 3.0, 0.0])
    pool.put(4, transition(4))
    assert whole(pool) == {1, 3, 4}
    pool.put(5, transition(5))
    assert whole(pool) == {1, 4, 5}


@pytest.mark.parametrize("eviction", [Eviction.FIFO, Eviction.LRU])
def test_a_pool_larger_than_a_line_is_left_in_order_too(eviction):
    pool = make(2 * LINE, eviction, keys=range(2 * LINE))
    # One leaves, so that a line is made; then one is shown again, one goes and comes back, one goes.
    pool.put(10_000, transition(10_000))
    pool.renew(1, 0)
    pool.discard(2)
    pool.put(2, transition(2))
    pool.discard(3)
    pool.put(10_001, transition(10_001))
    gone = []
    for key in range(20_000, 20_000 + 3 * LINE // 2):
        before = set(pool.keys())
        pool.put(key, transition(key))
        gone += before - set(pool.keys())
    first = [1] if eviction is Eviction.FIFO else []
    assert gone == [*first, *range(4, 4 + len(gone) - len(first))]
    whole(pool)


def test_new_priorities_count_at_once():
    pool = make(eviction=Eviction.PRIORITY, keys=[1, 2, 3])
    pool.set_priorities([1, 2, 3], [1.0, 2.0, 3.0])
    pool.put(4, transition(4))
    pool.set_priorities([4], [0.0])
    pool.put(5, transition(5))
    assert whole(pool) == {2, 3, 5}
    pool.set_priorities([2, 3, 5], [9.0, 8.0, 7.0])
    pool.put(6, transition(6))
    assert whole(pool) == {2, 3, 6}


def test_ages_count_from_the_last_time_and_the_old_leave():
    pool = make(keys=[1, 2, 3, 1])
    assert dict(zip(pool.keys(), pool.ages(10), strict=True)) == {1: 7, 2: 9, 3: 8}
    assert dict(zip(pool.keys(), pool.version_ages(1), strict=True)) == {1: 0, 2: 1, 3: 0}
    assert pool.purge(10, max_age=8) == 1
    assert whole(pool) == {1, 3}
    assert pool.purge(100, max_age=0) == 2 and len(pool) == 0
    pool.put(7, transition(7))
    assert whole(pool) == {7}


def test_the_first_transition_of_a_key_stays():
    pool = make(keys=[1])
    pool.put(1, transition(9))
    assert whole(pool) == {1}


def test_merged_pools_have_each_key_once_with_its_latest_date():
    pool, other = make(5, keys=[1, 2]), make(5, keys=[9, 9, 9, 2, 3])
    other.discard(9)
    pool.merge(other, lambda key: True)
    assert whole(pool) == {1, 2, 3}
    assert dict(zip(pool.keys(), pool.ages(10), strict=True)) == {1: 10, 2: 7, 3: 6}
    later = make(5, keys=[1])
    later.merge(other, lambda key: key == 3, later=100)
    assert dict(zip(later.keys(), later.ages(110), strict=True)) == {1: 110, 3: 6}
    other.merge(pool, lambda key: True)
    assert whole(other) == {1, 2, 3}
    with pytest.raises(ValueError, match="fields"):
        pool.merge(TransitionPool(5, {"rewards": ((), np.float32)}), lambda key: True)


def test_what_is_taken_or_exported_is_a_copy():
    pool = make(keys=[1])
    pool.take([0])["observations"][:] = 9.0
    for _, found in pool.items():
        found["observations"][:] = 9.0
    assert whole(pool) == {1}


def test_rows_that_are_not_in_use_cannot_be_taken():
    with pytest.raises(IndexError, match="2"):
        make(keys=[1, 2]).take([2])
    assert make().take([])["observations"].shape == (0, 2)
    assert set(make(keys=[1]).take([0], ["rewards"])) == {"rewards"}


def test_only_wanted_keys_are_kept():
    pool = make(5, keys=range(5))
    pool.keep(lambda key: key % 2 == 0)
    assert whole(pool) == {0, 2, 4}


def test_a_pickle_has_the_rows_in_use_only_and_goes_on_as_before():
    big = TransitionPool(100_000, FIELDS)
    for key in range(3):
        big.put(key, transition(key), step=key)
    data = pickle.dumps(big)
    assert len(data) < 3_000
    again = pickle.loads(data)
    assert whole(again) == {0, 1, 2} and again.ages(5).tolist() == [5, 4, 3]
    again.put(3, transition(3))
    assert whole(again) == {0, 1, 2, 3} and whole(big) == {0, 1, 2}


OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["put", "put", "put", "discard", "purge", "pickle", "rank"]), st.integers(0, 12)), max_size=60
)


@settings(max_examples=150, deadline=None)
@given(OPERATIONS, st.integers(1, 6), st.sampled_from(Eviction))
def test_after_any_operations_every_row_is_one_transition(operations, capacity, eviction):
    pool, model = make(capacity, eviction), {}
    for step, (operation, key) in enumerate(operations):
        if operation == "put":
            full = len(pool) == capacity and key not in pool
            pool.put(key, transition(key), step)
            if full:
                (gone,) = set(model) - set(pool.keys())
                if eviction is Eviction.LRU:
                    assert gone == min(model, key=model.__getitem__)
                del model[gone]
            model[key] = step
        elif operation == "discard":
            pool.discard(key)
            model.pop(key, None)
        elif operation == "purge":
            pool.purge(step, max_age=key)
            model = {one: date for one, date in model.items() if step - date <= key}
        elif operation == "pickle":
            pool = pickle.loads(pickle.dumps(pool))
        else:
            pool.set_priorities(list(model), [float(one) for one in model])
        assert whole(pool) == set(model) and len(pool) <= capacity


def test_arguments_out_of_range_are_refused():
    with pytest.raises(ValueError, match="capacity=0"):
        TransitionPool(0, FIELDS)
    with pytest.raises(ValueError, match="priorities"):
        make(keys=[1]).set_priorities([1], [np.nan])


def test_new_entries_reach_their_key_and_nobody_else():
    pool = make(keys=[1, 2, 3])
    pool.discard(1)
    pool.write([3, 1, 2, 3], {"rewards": [30.0, 10.0, 20.0, 31.0]})
    assert {key: float(found["rewards"]) for key, found in pool.items()} == {2: 20.0, 3: 31.0}
    assert pool.take([0])["observations"].tolist() == [[3.0, -3.0]]


def test_what_entered_is_counted_once():
    pool = make(capacity=2, keys=[1, 2, 1, 3, 1])
    assert pool.n_entered == 4 and len(pool) == 2
