"""A bounded pool of transitions, one for each key."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from sb3_budget.core.packing import narrow

#: So many transitions are lined up to leave at once.
LINE = 256
#: Columns of the pool: the shape and type of one entry, by name.
Fields = Mapping[str, tuple[tuple[int, ...], DTypeLike]]


class Eviction(Enum):
    """
    Which transition leaves a full pool.

    - ``FIFO``: the one that came first;
    - ``LRU``: the one that the environment has not shown for longest;
    - ``PRIORITY``: the one with the lowest priority. New ones have the highest.
    """

    FIFO = "fifo"
    LRU = "lru"
    PRIORITY = "priority"


class TransitionPool:
    """
    Copies of transitions, so that no other memory has to live as long as the pool. Rows ``0`` to ``len(pool) - 1`` are in
    use, in no particular order.

    :param capacity: Largest number of transitions, at least 1.
    :param fields: Columns of a transition.
    :param eviction: Which one leaves when the pool is full.
    :raises ValueError: if the capacity is not positive.
    """

    def __init__(self, capacity: int, fields: Fields, eviction: Eviction = Eviction.FIFO):
        if capacity < 1:
            raise ValueError(f"capacity={capacity} must be at least 1 transition")
        self.capacity, self.fields, self.eviction = capacity, dict(fields), eviction
        self._allocate()
        self._keys: list[Hashable] = []
        self._rows: dict[Hashable, int] = {}
        self._n_dates = 0
        #: Those with the lowest ranks, the lowest last: key, and rank when they were lined up.
        self._line: list[tuple[Hashable, float]] = []
        #: Transitions that came so far, those that left again included.
        self.n_entered = 0

    def _allocate(self) -> None:
        self._columns = {name: np.zeros((self.capacity, *shape), dtype) for name, (shape, dtype) in self.fields.items()}
        self._steps = np.zeros(self.capacity, dtype=np.int64)
        self._versions = np.zeros(self.capacity, dtype=np.int64)
        #: The lowest leaves: the date of arrival, the date it was last shown, or the priority.
        self._ranks = np.zeros(self.capacity)

    # ------------------------------------------------------------------ in and out

    def put(self, key: Hashable, transition: Mapping[str, ArrayLike], step: int = 0, version: int = 0) -> None:
        """
        Keep a transition. Of a key that is here already the first one stays, and is young again.

        :param key: What the transition is known by.
        :param transition: One entry per field.
        :param step: When it happened, for its age.
        :param version: Version of the policy that acted, for its age.
        """
        if key in self._rows:
            self.renew(key, step, version)
            return
        if len(self) == self.capacity:
            self.discard(self._next_to_leave())
        row = len(self._keys)
        for name, column in self._columns.items():
            column[row] = transition[name]
        self._steps[row], self._versions[row], self._ranks[row] = step, version, self._newest()
        self._keys.append(key)
        self._rows[key] = row
        self.n_entered += 1

    def write(self, keys: Sequence[Hashable], columns: Mapping[str, ArrayLike]) -> None:
        """
        Replace what is not part of the environment, such as an advantage. Of a key that is named twice the last one stays.

        :param keys: Keys of transitions; those that are not here are passed over.
        :param columns: New entries of some fields, shapes (n, ...).
        """
        for number, row in enumerate(self.rows(keys).tolist()):
            for name, column in columns.items() if row >= 0 else ():
                self._columns[name][row] = np.asarray(column)[number]

    def renew(self, key: Hashable, step: int, version: int = 0) -> None:
        """
        :param key: Key of a transition that happened again.
        :param step: When it did.
        :param version: Version of the policy that acted.
        """
        row = self._rows[key]
        self._steps[row], self._versions[row] = step, version
        if self.eviction is Eviction.LRU:
            self._ranks[row] = self._newest()

    def discard(self, key: Hashable) -> None:
        """
        :param key: Key of a transition to drop, if it is here. The last row takes its place.
        """
        row = self._rows.pop(key, None)
        if row is None:
            return
        last, moved = len(self._keys) - 1, self._keys.pop()
        if row != last:
            for column in (*self._columns.values(), self._steps, self._versions, self._ranks):
                column[row] = column[last]
            self._keys[row] = moved
            self._rows[moved] = row

    def purge(self, step: int, max_age: int) -> int:
        """
        :param step: The present.
        :param max_age: Steps after which a transition leaves that did not happen again.
        :return: How many left.
        """
        old = [self._keys[row] for row in np.flatnonzero(self.ages(step) > max_age)]
        for key in old:
            self.discard(key)
        return len(old)

    def keep(self, wanted: Callable[[Hashable], bool]) -> None:
        """
        :param wanted: Whether the transition of a key may stay.
        """
        for key in [key for key in self._keys if not wanted(key)]:
            self.discard(key)

    def merge(self, other: TransitionPool, wanted: Callable[[Hashable], bool], later: int = 0, newer: int = 0) -> None:
        """
        Take over what another pool has. Of a key that both have, the first one stays, with the latest date.

        :param other: A pool with the same fields.
        :param wanted: Whether the transition of a key is to be taken over.
        :param later: By how many steps the present of this pool is ahead of the other's, so that ages stay what they are.
        :param newer: The same of versions.
        :raises ValueError: if the fields differ.
        """
        self.require_fields_of(other)
        for row, (key, transition) in enumerate(other.items()):
            if not wanted(key):
                continue
            step, version = int(other._steps[row]) + later, int(other._versions[row]) + newer
            if key in self._rows:
                mine = self._rows[key]
                step, version = max(step, int(self._steps[mine])), max(version, int(self._versions[mine]))
            self.put(key, transition, step, version)

    def require_fields_of(self, other: TransitionPool) -> None:
        """
        :param other: A pool.
        :raises ValueError: if its fields are others.
        """
        if self.fields != other.fields:
            raise ValueError(
                f"A pool with the fields {list(self.fields)} cannot take over {list(other.fields)}, or types differ"
            )

    # ------------------------------------------------------------------ what is here

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._rows

    def items(self) -> Iterator[tuple[Hashable, dict[str, NDArray[Any]]]]:
        """
        :return: Each key with a copy of its transition, row by row: data for a world model, or another pool.
        """
        for row, key in enumerate(list(self._keys)):
            yield key, {name: column[row].copy() for name, column in self._columns.items()}

    def keys(self, rows: ArrayLike | None = None) -> list[Hashable]:
        """
        :param rows: Rows in use, shape (n,). By default all.
        :return: Their keys.
        """
        return list(self._keys) if rows is None else [self._keys[row] for row in np.asarray(rows).tolist()]

    def rows(self, keys: Sequence[Hashable]) -> NDArray[np.int64]:
        """
        :param keys: Any keys.
        :return: Row of each, -1 for those that are not here, shape (n,).
        """
        return np.array([self._rows.get(key, -1) for key in keys], dtype=np.int64)

    def take(self, rows: ArrayLike, names: Sequence[str] | None = None) -> dict[str, NDArray[Any]]:
        """
        :param rows: Rows in use, shape (n,).
        :param names: Which columns. By default all.
        :return: A copy of each column, shape (n, ...).
        :raises IndexError: if a row is not in use.
        """
        chosen = np.asarray(rows, dtype=np.int64)
        # As natural numbers, those below zero are above all others.
        if chosen.size and chosen.view(np.uint64).max() >= len(self):
            raise IndexError(f"Rows {chosen.min()} to {chosen.max()} are not all among the {len(self)} in use")
        return {name: self._columns[name].take(chosen, axis=0) for name in (self.fields if names is None else names)}

    def ages(self, step: int) -> NDArray[np.int64]:
        """
        :param step: The present.
        :return: Steps since each row's transition happened last, shape (len(pool),).
        """
        return step - self._steps[: len(self)]

    def version_ages(self, version: int) -> NDArray[np.int64]:
        """
        :param version: The policy's present version.
        :return: Versions since each row's transition happened last, shape (len(pool),).
        """
        return version - self._versions[: len(self)]

    # ------------------------------------------------------------------ priorities

    def set_priorities(self, keys: Sequence[Hashable], priorities: ArrayLike) -> None:
        """
        :param keys: Keys of transitions; those that left are passed over.
        :param priorities: What each is worth, such as its absolute temporal difference, shape (n,).
        :raises ValueError: if one of them is NaN.
        """
        values = np.asarray(priorities, dtype=np.float64)
        if np.isnan(values).any() or values.shape != (len(keys),):
            raise ValueError(f"priorities must be one number for each of {len(keys)} keys, got {values.tolist()}")
        if self.eviction is Eviction.PRIORITY:
            rows = self.rows(keys)
            self._ranks[rows[rows >= 0]] = values[rows >= 0]
            self._line = []

    def _newest(self) -> float:
        """A rank above all."""
        self._n_dates += 1
        return np.inf if self.eviction is Eviction.PRIORITY else self._n_dates

    def _next_to_leave(self) -> Hashable:
        """Ranks only rise, but for new priorities: who still has the one it was lined up with is the lowest of all."""
        while True:
            while self._line:
                key, rank = self._line.pop()
                if key in self._rows and self._ranks[self._rows[key]] == rank:
                    return key
            ranks = self._ranks[: len(self)]
            n = min(LINE, len(self))
            lowest = np.sort(np.argpartition(ranks, n - 1)[:n])
            rows = lowest[np.argsort(ranks[lowest], kind="stable")][::-1]
            self._line = list(zip(self.keys(rows), ranks[rows].tolist(), strict=True))

    # ------------------------------------------------------------------ pickling: rows in use only

    def __getstate__(self) -> dict[str, Any]:
        state, n = self.__dict__.copy(), len(self)
        state["_columns"] = {name: column[:n] for name, column in self._columns.items()}
        state["_steps"], state["_versions"] = narrow(self._steps[:n]), narrow(self._versions[:n])
        ranks = self._ranks[:n]
        state["_ranks"] = ranks if self.eviction is Eviction.PRIORITY else narrow(ranks.astype(np.int64))
        del state["_rows"], state["_line"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._rows, self._line = {key: row for row, key in enumerate(self._keys)}, []
        self._allocate()
        n = len(self)
        for name, column in self._columns.items():
            column[:n] = state["_columns"][name]
        self._steps[:n], self._versions[:n], self._ranks[:n] = state["_steps"], state["_versions"], state["_ranks"]
