"""Starts are counted by cell and update."""

from __future__ import annotations

import numpy as np
import pytest

from sb3_budget.core.start_log import StartLog, load_table, save_table


def test_counts_by_hand_and_after_a_round_trip(tmp_path):
    log = StartLog()
    log.add("a", np.array([1.0, 2.0]))
    log.add("b", np.array([3.0, 4.0]))
    log.add("a", np.array([1.5, 2.0]))
    log.close_update(64)
    log.add_own()
    log.add("b", np.array([3.0, 4.0]))
    log.close_update(128)
    log.add("c", np.array([5.0, 6.0]))  # of an update that has not ended
    save_table(log.table(), tmp_path / "new" / "starts.npz")
    table = load_table(tmp_path / "new" / "starts.npz")
    assert table.steps.tolist() == [64, 128] and table.own.tolist() == [0, 1]
    assert table.updates.tolist() == [0, 0, 0, 1] and table.cells.tolist() == [0, 1, 0, 1]
    assert table.totals.tolist() == [2, 2, 0]
    assert table.places.tolist() == [[1, 2], [3, 4], [5, 6]]


@pytest.mark.parametrize(("observation", "n"), [(7, 1), (np.zeros(3), 0), ({"a": 1}, 0), ((1, 2), 0), (np.zeros(2), 2)])
def test_places_are_what_a_picture_can_show(observation, n):
    log = StartLog()
    log.add("a", observation)
    assert log.table().places.shape == (1, n)


def test_the_table_grows_with_the_episodes_and_not_with_updates_times_cells():
    log = StartLog()
    for number in range(5000):
        log.add(number, number)
        log.close_update(64 * (number + 1))
    assert sum(column.nbytes for column in log.table()) == 5000 * 5 * 8


def test_without_starts_the_table_is_empty(tmp_path):
    table = StartLog().table()
    assert table.totals.shape == (0,) and table.places.shape == (0, 0)
    with pytest.raises(ValueError, match="is no file of starts"):
        load_table(tmp_path / "missing.npz")
    np.savez(tmp_path / "other.npz", a=1)
    with pytest.raises(ValueError, match="is no file of starts"):
        load_table(tmp_path / "other.npz")
