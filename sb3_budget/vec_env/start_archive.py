"""Saved states, one for each cell of the state space, to begin episodes in."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sb3_budget.core.ranges import require_share
from sb3_budget.states.state import State

#: Of so many cells drawn at random the one that was visited most makes room for a new one.
CANDIDATES = 16
#: Visits of cells that had to make room are remembered for so many times as many cells as have a state.
REMEMBERED = 10


class StartArchive:
    """
    Keeps one state for each of a bounded number of cells (Go-Explore; Ecoffet et al., 2021,
    https://arxiv.org/abs/2004.12919). Cells are numbered by the row that they have in the arrays.

    :param capacity: Number of states, at least 1.
    :param refresh: Chance that a visit to a known cell replaces its state, so that old ones make way for the present policy's.
    :param rng: Source of randomness.
    :raises ValueError: if an argument is out of range.
    """

    def __init__(self, capacity: int, refresh: float, rng: np.random.Generator):
        if capacity < 1:
            raise ValueError(f"archive_size={capacity} must be at least 1")
        require_share("refresh", refresh)
        self.capacity = capacity
        self.refresh = refresh
        self._rng = rng
        self._rows: dict[Hashable, int] = {}
        self._keys: list[Hashable] = []
        #: Visits of cells that had to make room.
        self._remembered: dict[Hashable, int] = {}
        self.states: list[State] = []
        self.observations: list[Any] = []
        self._visits = np.zeros(capacity, dtype=np.int64)
        self._chosen = np.zeros(capacity, dtype=np.int64)
        #: How often each row has changed hands.
        self._versions = np.zeros(capacity, dtype=np.int64)
        #: How often a cell without a state was visited.
        self._n_new = 0

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def visits(self) -> NDArray[np.int64]:
        """Steps that ended in each cell, and episodes that began in it, shape (len(self),)."""
        return self._visits[: len(self)]

    @property
    def chosen(self) -> NDArray[np.int64]:
        """How often each cell was chosen, shape (len(self),)."""
        return self._chosen[: len(self)]

    @property
    def versions(self) -> NDArray[np.int64]:
        """How often the cell of each row was another one before, shape (len(self),)."""
        return self._versions[: len(self)]

    def rows(self, keys: Sequence[Hashable]) -> NDArray[np.int64]:
        """
        :param keys: Cells.
        :return: Their rows, -1 where a cell has no state.
        """
        return np.array([self._rows.get(key, -1) for key in keys], dtype=np.int64)

    def visit(self, keys: Sequence[Hashable]) -> list[int]:
        """
        Count a visit to each of some cells.

        :param keys: The cells, one per slot.
        :return: Slots whose state is wanted: those in a cell without a state, all of them while there is room, and by chance
            others.
        """
        wanted, new = [], set()
        draws = self._rng.random(len(keys))
        for slot, key in enumerate(keys):
            row = self._rows.get(key)
            if row is not None:
                self._visits[row] += 1
                if draws[slot] < self.refresh:
                    wanted.append(slot)
            elif key not in new:
                new.add(key)
                self._n_new += 1
                # Once it is full a sample of the new cells will do: saving states costs time.
                if len(self) < self.capacity or draws[slot] < self.capacity / self._n_new:
                    wanted.append(slot)
        return wanted

    def keep(self, key: Hashable, state: State, observation: Any) -> None:
        """
        :param key: A cell.
        :param state: A state in it.
        :param observation: What is seen there.
        """
        row = self._rows.get(key)
        if row is None:
            row = len(self) if len(self) < self.capacity else self._make_room()
            self._rows[key] = row
            self._visits[row], self._chosen[row] = self._remembered.pop(key, 0) + 1, 0
            if row == len(self):
                self._keys.append(key)
                self.states.append(state)
                self.observations.append(observation)
            self._keys[row] = key
        self.states[row], self.observations[row] = state, observation

    def _make_room(self) -> int:
        candidates = self._rng.integers(len(self), size=CANDIDATES)
        row = int(candidates[np.argmax(self._visits[candidates])])
        gone = self._keys[row]
        del self._rows[gone]
        self._remembered[gone] = int(self._visits[row])
        if len(self._remembered) > REMEMBERED * self.capacity:
            del self._remembered[next(iter(self._remembered))]
        self._versions[row] += 1
        return row

    def choose(self, row: int) -> State:
        """
        :param row: A cell.
        :return: Its state, in which an episode begins.
        """
        self._chosen[row] += 1
        return self.states[row]
