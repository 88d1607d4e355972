"""Where episodes began, update by update."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class StartTable(NamedTuple):
    """
    :param steps: The model's steps at the end of each update's rollout, shape (n_updates,).
    :param own: Episodes that began where the environment does, shape (n_updates,).
    :param updates: Update in which each episode from an archived cell began, shape (n_episodes,).
    :param cells: Its cell, shape (n_episodes,); cells are numbered in order of their first start.
    :param places: An observation in each cell if it is one number or two, shape (n_cells, 1 or 2); otherwise (n_cells, 0).
    """

    steps: NDArray[np.int64]
    own: NDArray[np.int64]
    updates: NDArray[np.int64]
    cells: NDArray[np.int64]
    places: NDArray[np.float64]

    @property
    def totals(self) -> NDArray[np.int64]:
        """Episodes that began in each archived cell, shape (n_cells,)."""
        return np.bincount(self.cells, minlength=len(self.places)).astype(np.int64)


class StartLog:
    """Counts the starts of episodes by archived cell and by update."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._places: list[NDArray[np.float64]] = []
        self._steps: list[int] = []
        self._own: list[int] = []
        self._updates: list[int] = []
        self._cells: list[int] = []
        self._present_own = 0

    def add(self, cell: Hashable, observation: Any) -> None:
        """
        :param cell: Name of an archived cell that an episode begins in.
        :param observation: Of the state in it.
        """
        number = self._numbers.setdefault(cell, len(self._numbers))
        if number == len(self._places):
            self._places.append(_place(observation))
        self._updates.append(len(self._steps))
        self._cells.append(number)

    def add_own(self) -> None:
        """An episode begins where the environment does."""
        self._present_own += 1

    def close_update(self, num_timesteps: int, least_steps: int = 1) -> None:
        """
        :param num_timesteps: The model's steps so far.
        :param least_steps: Steps since the latest update without which the present one goes on.
        """
        if num_timesteps - (self._steps[-1] if self._steps else 0) < least_steps:
            return
        self._steps.append(num_timesteps)
        self._own.append(self._present_own)
        self._present_own = 0

    def table(self) -> StartTable:
        """
        :return: Everything up to the latest update that was closed.
        """
        steps, own, updates, cells = (
            np.array(numbers, dtype=np.int64) for numbers in (self._steps, self._own, self._updates, self._cells)
        )
        closed = updates < len(steps)
        places = np.stack(self._places) if self._places else np.zeros((0, 0))
        return StartTable(steps, own, updates[closed], cells[closed], places)


def save_table(table: StartTable, path: str | Path) -> None:
    """
    :param table: What to write.
    :param path: An ``.npz`` file.
    """
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **table._asdict())


def load_table(path: str | Path) -> StartTable:
    """
    :param path: An ``.npz`` file that :func:`save_table` wrote.
    :return: What is in it.
    :raises ValueError: if it is none.
    """
    try:
        with np.load(path, allow_pickle=False) as found:
            return StartTable(*(found[name] for name in StartTable._fields))
    except (KeyError, OSError, ValueError, AttributeError) as error:
        raise ValueError(f"{path} is no file of starts, as record_starts of BudgetAllocatorCallback writes it") from error


def _place(observation: Any) -> NDArray[np.float64]:
    """Coordinates for a picture, as far as an observation is one."""
    if isinstance(observation, (dict, tuple)):
        return np.zeros(0)
    numbers = np.asarray(observation, dtype=np.float64).ravel()
    return numbers if numbers.size <= 2 else np.zeros(0)
