"""Where the budget went: the starts of episodes as a picture, by cell and by update."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from sb3_budget.core.start_log import StartTable

NEEDS_MATPLOTLIB = "the picture needs matplotlib: pip install 'sb3-budget[plots]'"
#: Updates are drawn in so many columns at most.
MOST_COLUMNS = 60


def plot_starts(table: StartTable, path: Path, columns: int | None = None) -> None:
    """
    On the left the starts of the whole training by cell: over the plane, if cells are places in it, and otherwise by rank. On
    the right their share by update, for cells from the most to the least chosen, with the environment's own starts below.

    :param table: the starts
    :param path: the PNG
    :param columns: width of the grid, where cells are numbers of states that a grid has row by row; ``None`` for no grid
    :raises ValueError: if no episode began in an archived state
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(NEEDS_MATPLOTLIB) from error
    if not table.cells.size:
        raise ValueError("No episode began in an archived state: there is nothing to draw")
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    places = _plane(table.places, columns)
    totals = table.totals
    if places is None:
        left.bar(np.arange(1, len(totals) + 1), np.sort(totals)[::-1], width=1.0)
        left.set_xlabel("rank of the archived cell")
        left.set_ylabel("episodes that began there")
    else:
        _draw_plane(figure, left, places, totals, columns)
    left.set_title(f"{totals.sum()} episodes from {len(totals)} archived cells,\n{table.own.sum()} from own starts")
    _draw_updates(figure, right, table)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120, metadata={"Software": None})


def _plane(places: np.ndarray, columns: int | None) -> np.ndarray | None:
    """Two coordinates of each cell, ``None`` where it has none."""
    if places.shape[1] == 2:
        return places
    if places.shape[1] == 1 and columns is not None:
        numbers = places[:, 0].astype(np.int64)
        return np.stack([numbers % columns, numbers // columns], axis=1)
    return None


def _draw_plane(figure: Any, axis: Any, places: np.ndarray, totals: np.ndarray, columns: int | None) -> None:
    if columns is not None:
        grid = np.zeros((int(places[:, 1].max()) + 1, columns))
        np.add.at(grid, (places[:, 1].astype(int), places[:, 0].astype(int)), totals)
        drawn = axis.imshow(np.where(grid > 0, grid, np.nan), cmap="viridis")
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.set_xlabel("column")
        axis.set_ylabel("row")
    else:
        order = np.argsort(totals)
        drawn = axis.scatter(*places[order].T, c=totals[order], s=12, cmap="viridis")
        axis.set_xlabel("first number of the observation")
        axis.set_ylabel("second number of the observation")
    figure.colorbar(drawn, ax=axis, label="episodes that began there")


def _draw_updates(figure: Any, axis: Any, table: StartTable) -> None:
    """Shares of own starts and of ten groups of cells, in bins of updates."""
    edges = np.linspace(0, len(table.steps), min(MOST_COLUMNS, len(table.steps)) + 1).astype(int)[:-1]
    order = np.argsort(-table.totals, kind="stable")
    groups = [part for part in np.array_split(order, 10) if part.size]
    group_of = np.empty(len(order), dtype=np.int64)
    group_of[order] = np.repeat(np.arange(len(groups)), [part.size for part in groups])
    counts = np.zeros((len(groups), len(table.steps)), dtype=np.int64)
    np.add.at(counts, (group_of[table.cells], table.updates), 1)
    rows = [table.own, *counts]
    binned = np.stack([np.add.reduceat(row, edges) for row in rows]).astype(np.float64)
    # Nothing is drawn where no episode began.
    sums = binned.sum(axis=0)
    binned = binned / np.where(sums > 0.0, sums, np.nan)
    drawn = axis.pcolormesh(_borders(table.steps, edges), np.arange(len(rows) + 1), binned, cmap="viridis", vmin=0.0)
    axis.set_yticks(np.arange(len(rows)) + 0.5, ["own starts", *(f"{rank}." for rank in range(1, len(groups) + 1))])
    axis.set_xlabel("steps")
    axis.set_ylabel("archived cells in tenths, most chosen first", fontsize="small")
    axis.set_title("share of the episodes by update")
    figure.colorbar(drawn, ax=axis, label="share of the episodes")


def _borders(steps: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Steps at which bins of updates begin, and the last one ends."""
    began = np.concatenate([[0], steps[:-1]])
    return np.concatenate([began[edges], steps[-1:]])
