"""What a transition is known by, and what followed it, from batches of arrays."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sb3_budget.core.cells import Cells, row_bytes
from sb3_budget.core.evidence import MOST_BYTES, Outcome, digest

#: Entries of observations by name; an observation without entries has the name "".
Entries = Mapping[str, NDArray[Any]]


class Digests:
    """
    Bytes of rows, digests of long ones. Where a step led is where the next one begins: what was digested last, of the same
    slot, is not digested again.
    """

    def __init__(self) -> None:
        self._latest: dict[str, tuple[list[bytes], list[bytes]]] = {}

    def of(self, name: str, rows: NDArray[Any]) -> list[bytes]:
        """
        :param name: What the rows are an entry of.
        :param rows: One row per slot, shape (n, ...).
        :return: What stands for each.
        """
        pieces = row_bytes(rows)
        if not pieces or len(pieces[0]) <= MOST_BYTES:
            return pieces
        latest, known = self._latest.get(name, ([], []))
        if len(latest) == len(pieces):
            found = [
                short if piece == last else digest(piece) for piece, last, short in zip(pieces, latest, known, strict=True)
            ]
        else:
            found = list(map(digest, pieces))
        self._latest[name] = pieces, found
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {"_latest": {}}


class TransitionKeys:
    """
    Keys of pairs of state and action: their exact bytes, or the cell of the state.

    :param cells: State abstraction, for continuous observations. Several entries are joined to one vector for it. ``None``
        for exact bytes. Cells that are not frozen yet are copied, so that their statistics are of this training alone.
    :param continuous_actions: Whether cells see the action too, behind the observation. Otherwise its bytes count.
    """

    def __init__(self, cells: Cells | None = None, continuous_actions: bool = False):
        self.cells = cells if getattr(cells, "frozen", True) else deepcopy(cells)
        self.continuous_actions = continuous_actions
        self.digests = Digests()

    def observe(self, observations: Entries, actions: NDArray[Any]) -> None:
        """
        :param observations: Observations for the statistics of the cells, shapes (n, ...), before ``freeze``.
        :param actions: Actions, shape (n, d).
        """
        if self.cells is not None and not getattr(self.cells, "frozen", False):
            self.cells.observe(self._rows(observations, actions))

    def freeze(self) -> None:
        """Fix the statistics of the cells, before the first key."""
        if self.cells is not None:
            self.cells.freeze()

    def keys(self, observations: Entries, actions: NDArray[Any]) -> list[Hashable]:
        """
        :param observations: States, shapes (n, ...).
        :param actions: Actions, shape (n, d).
        :return: Key of each pair.
        """
        if self.cells is None:
            states = [self.digests.of(name, observations[name]) for name in sorted(observations)]
            return list(_joined([*states, row_bytes(actions)]))
        if self.continuous_actions:
            return _short(self.cells.keys(self._rows(observations, actions)))
        return list(zip(self.states(observations), _joined([row_bytes(actions)]), strict=True))

    def states(self, observations: Entries) -> list[Hashable]:
        """
        :param observations: States, shapes (n, ...).
        :return: Key of each, without an action.
        :raises ValueError: if cells see the action.
        """
        if self.cells is None:
            return list(_joined([[digest(piece) for piece in row_bytes(part)] for part in _sorted(observations)]))
        if self.continuous_actions:
            raise ValueError("Cells that see the action, too, do not tell states apart")
        return _short(self.cells.keys(self._rows(observations, None)))

    def _rows(self, observations: Entries, actions: NDArray[Any] | None) -> NDArray[Any]:
        parts = _sorted(observations)
        if self.continuous_actions and actions is not None:
            parts.append(actions)
        if len(parts) == 1:
            return parts[0]
        return np.concatenate([part.reshape(len(part), -1).astype(np.float64) for part in parts], axis=1)


def outcomes(
    next_observations: Entries,
    rewards: NDArray[np.float32],
    terminated: Sequence[bool | None],
    digests: Digests | None = None,
) -> list[Outcome]:
    """
    :param next_observations: Next states, shapes (n, ...). Whole numbers must repeat exactly, others up to a tolerance.
    :param rewards: Rewards, shape (n,).
    :param terminated: Whether each episode terminated, ``None`` where it was cut.
    :param digests: What was digested before.
    :return: What followed, one by one.
    """
    labels: list[list[bytes]] = []
    numbers = [rewards.reshape(-1, 1)]
    for name in sorted(next_observations):
        part = next_observations[name]
        if part.dtype.kind in "biu":
            labels.append(row_bytes(part) if digests is None else digests.of(name, part))
        else:
            numbers.append(part.reshape(len(part), -1))
    joined = numbers[0] if len(numbers) == 1 else np.concatenate(numbers, axis=1)
    return list(map(Outcome, joined, _joined(labels) if labels else [b""] * len(rewards), terminated))


def _short(keys: list[Hashable]) -> list[Hashable]:
    return [digest(key) if isinstance(key, bytes) else key for key in keys]


def _sorted(entries: Entries) -> list[NDArray[Any]]:
    return [entries[name] for name in sorted(entries)]


def _joined(parts: list[list[bytes]]) -> list[bytes]:
    """What stands for a whole row; entries have a fixed width each, so that none can pass for another."""
    return list(map(digest, parts[0] if len(parts) == 1 else map(b"".join, zip(*parts, strict=True))))
