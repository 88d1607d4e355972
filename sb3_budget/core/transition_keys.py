"""What a transition is known by, and what followed it, from batches of arrays."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sb3_budget.core.cells import Cells, row_bytes
from sb3_budget.core.determinism import Outcome, digest

#: Entries of observations by name; an observation without entries has the name "".
Entries = Mapping[str, NDArray[Any]]


class TransitionKeys:
    """
    Keys of pairs of state and action: their exact bytes, or the cell of the state.

    :param cells: State abstraction, for continuous observations. Several entries are joined to one vector for it. ``None``
        for exact bytes.
    :param continuous_actions: Whether cells see the action too, behind the observation. Otherwise its bytes count.
    """

    def __init__(self, cells: Cells | None = None, continuous_actions: bool = False):
        self.cells, self.continuous_actions = cells, continuous_actions

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
            return list(_digests([*_sorted(observations), actions]))
        if self.continuous_actions:
            return _short(self.cells.keys(self._rows(observations, actions)))
        return list(zip(self.states(observations), _digests([actions]), strict=True))

    def states(self, observations: Entries) -> list[Hashable]:
        """
        :param observations: States, shapes (n, ...).
        :return: Key of each, without an action.
        :raises ValueError: if cells see the action.
        """
        if self.cells is None:
            return list(_digests(_sorted(observations)))
        if self.continuous_actions:
            raise ValueError("Cells that see the action, too, do not tell states apart")
        return _short(self.cells.keys(self._rows(observations, None)))

    def _rows(self, observations: Entries, actions: NDArray[Any] | None) -> NDArray[Any]:
        parts = _sorted(observations)
        if self.continuous_actions and actions is not None:
            parts.append(actions)
        if len(parts) == 1:
            return parts[0]
        return np.concatenate([_flat(part) for part in parts], axis=1)


def outcomes(next_observations: Entries, rewards: NDArray[np.float32], terminated: Sequence[bool | None]) -> list[Outcome]:
    """
    :param next_observations: Next states, shapes (n, ...). Whole numbers must repeat exactly, others up to a tolerance.
    :param rewards: Rewards, shape (n,).
    :param terminated: Whether each episode terminated, ``None`` where it was cut.
    :return: What followed, one by one.
    """
    parts = _sorted(next_observations)
    whole = [part for part in parts if part.dtype.kind in "biu"]
    numbers = np.concatenate([_flat(part) for part in (rewards, *parts) if part.dtype.kind not in "biu"], axis=1)
    labels = _digests(whole) if whole else [b""] * len(rewards)
    return [Outcome(*one) for one in zip(numbers, labels, terminated, strict=True)]


def _short(keys: list[Hashable]) -> list[Hashable]:
    return [digest(key) if isinstance(key, bytes) else key for key in keys]


def _sorted(entries: Entries) -> list[NDArray[Any]]:
    return [entries[name] for name in sorted(entries)]


def _flat(rows: NDArray[Any]) -> NDArray[np.float64]:
    return rows.reshape(len(rows), -1).astype(np.float64)


def _digests(parts: list[NDArray[Any]]) -> list[bytes]:
    """All bytes of a row, in one; entries have a fixed width each, so that none can pass for another."""
    return [digest(b"".join(pieces)) for pieces in zip(*map(row_bytes, parts), strict=True)]
