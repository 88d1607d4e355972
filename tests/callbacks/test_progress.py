"""When something is due again, in one training and in many short ones."""

from __future__ import annotations

from sb3_budget.callbacks.progress import Every


def due(every: Every, *steps: int) -> list[int]:
    return [step for step in steps if every.is_due(step)]


def test_it_is_due_after_so_many_steps_and_again_after_as_many():
    every = Every(10)
    every.begin(0)
    assert due(every, 4, 8, 12, 16, 20, 24) == [12, 24]


def test_short_trainings_that_count_on_have_it_as_often_as_a_long_one():
    every, found = Every(10), []
    for start in range(0, 40, 4):
        every.begin(start)
        found += due(every, start + 4)
    assert found == [12, 24, 36]


def test_a_training_that_counts_anew_waits_anew():
    every = Every(10)
    every.begin(0)
    assert due(every, 8) == []
    every.begin(0)
    assert due(every, 4, 8, 12) == [12]


def test_what_a_training_has_dropped_is_due_at_once_in_the_next_but_not_in_the_first():
    every = Every(10)
    every.begin(0, at_once=True)
    assert due(every, 4, 12) == [12]
    every.begin(12, at_once=True)
    assert due(every, 13, 16, 23) == [13, 23]
