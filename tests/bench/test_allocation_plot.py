"""Pictures of where the budget went."""

from __future__ import annotations

import numpy as np
import pytest

from sb3_budget.bench import allocation_plot, cli
from sb3_budget.core.start_log import StartLog, StartTable, save_table

PNG = b"\x89PNG"


def table(observations, n_updates=5):
    log, rng = StartLog(), np.random.default_rng(0)
    for update in range(1, n_updates + 1):
        for number in rng.integers(len(observations), size=6).tolist():
            log.add(number, observations[number])
        log.add_own()
        log.close_update(100 * update)
    return log.table()


@pytest.mark.parametrize(
    ("observations", "columns"),
    [
        (np.arange(16), 4),
        (np.arange(16), None),
        (np.random.default_rng(0).normal(size=(16, 2)), None),
        (np.zeros((16, 9)), None),
    ],
)
def test_every_kind_of_cells_is_drawn(tmp_path, observations, columns):
    pytest.importorskip("matplotlib")
    save_table(table(observations), tmp_path / "starts.npz")
    arguments = [] if columns is None else ["--columns", str(columns)]
    assert cli.main(["plot", str(tmp_path / "starts.npz"), *arguments]) == 0
    assert (tmp_path / "starts.png").read_bytes().startswith(PNG)


def test_numbers_of_states_become_rows_and_columns():
    places = allocation_plot._plane(np.array([[0.0], [5.0], [7.0]]), 4)
    assert places.tolist() == [[0, 0], [1, 1], [3, 1]]
    assert allocation_plot._plane(np.zeros((3, 1)), None) is None
    assert allocation_plot._plane(np.zeros((3, 0)), 4) is None


def test_bins_begin_where_updates_do():
    assert allocation_plot._borders(np.array([10, 20, 30, 40]), np.array([0, 2])).tolist() == [0, 20, 40]


def test_without_archived_starts_and_without_a_file_it_says_so(tmp_path):
    empty = StartTable(np.array([10]), np.array([3]), np.zeros(0, dtype=int), np.zeros(0, dtype=int), np.zeros((0, 0)))
    with pytest.raises(ValueError, match="No episode began in an archived state"):
        allocation_plot.plot_starts(empty, tmp_path / "starts.png")
    with pytest.raises(SystemExit):
        cli.main(["plot", str(tmp_path / "missing.npz")])
