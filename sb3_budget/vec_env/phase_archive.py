"""Saved states by block of the horizon, to begin episodes in."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sb3_budget.states.state import State
from sb3_budget.vec_env.start import Start


class _Entry(NamedTuple):
    number: int
    phase: int
    state: State


class PhaseArchive:
    """
    Keeps some states from the beginning of each block of the horizon, an even sample of all that passed there, and
    draws starts from them. Block 0 is the environment's own reset.

    :param horizon: Length of a full episode [steps].
    :param n_blocks: Number of blocks.
    :param size: Number of states kept per block.
    :param weights: Relative number of starts per block, shape (n_blocks,). Even by default.
    :raises ValueError: if an argument is out of range.
    """

    def __init__(self, horizon: int, n_blocks: int, size: int, weights: ArrayLike | None = None):
        if size < 1:
            raise ValueError(f"snapshots_per_block={size} must be at least 1")
        if not 2 <= n_blocks <= horizon:
            raise ValueError(f"n_blocks={n_blocks} must lie between 2 and the horizon of {horizon} steps for snapshots")
        self.n_blocks = n_blocks
        self.size = size
        #: First phase of each block.
        self.firsts: NDArray[np.int64] = (np.arange(n_blocks) * horizon) // n_blocks
        self._kept: list[list[_Entry]] = [[] for _ in range(n_blocks)]
        self._seen = np.zeros(n_blocks, dtype=np.int64)
        self._n_entries = 0
        self.set_weights(np.ones(n_blocks) if weights is None else weights)

    def set_weights(self, weights: ArrayLike) -> None:
        """
        :param weights: Relative number of starts per block, shape (n_blocks,).
        :raises ValueError: if they are not finite and non-negative, all 0, or of another shape.
        """
        checked = np.asarray(weights, dtype=np.float64)
        if checked.shape != (self.n_blocks,) or not np.isfinite(checked).all() or (checked < 0).any() or not checked.any():
            raise ValueError(
                f"Weights of {self.n_blocks} blocks must be {self.n_blocks} finite, non-negative numbers that are not all 0, "
                f"got {checked.tolist()}"
            )
        self.weights = checked / checked.sum()

    def wanted(self, phases: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """
        Reservoir sampling: of all states that ever came to the beginning of a block, each is kept with equal
        probability, so that fewer and fewer new ones are saved.

        :param phases: Phase of each slot [steps], shape (n_envs,).
        :param rng: Source of the draw.
        :return: Slots whose state is to be kept.
        """
        chosen = []
        for slot in np.flatnonzero(np.isin(phases, self.firsts[1:])).tolist():
            block = int(np.searchsorted(self.firsts, phases[slot]))
            self._seen[block] += 1
            if self._seen[block] <= self.size or rng.random() < self.size / self._seen[block]:
                chosen.append(slot)
        return np.array(chosen, dtype=np.int64)

    def keep(self, phase: int, state: State, rng: np.random.Generator) -> None:
        """
        :param phase: Phase of the state [steps], the first of its block.
        :param state: A state that was wanted.
        :param rng: Chooses the state that makes room.
        """
        kept = self._kept[int(np.searchsorted(self.firsts, phase))]
        entry = _Entry(self._n_entries, phase, state)
        self._n_entries += 1
        if len(kept) < self.size:
            kept.append(entry)
        else:
            kept[int(rng.integers(self.size))] = entry

    def draw(self, rng: np.random.Generator) -> tuple[int, Start | None]:
        """
        :param rng: Source of the draw.
        :return: Phase of a start [steps] and the start, whose id is ``("block", block, number of the state)``; 0 and ``None``
            for the environment's own reset. A block of which nothing is known yet stands for the latest before it.
        """
        block = int(rng.choice(self.n_blocks, p=self.weights))
        while block > 0 and not self._kept[block]:
            block -= 1
        if block == 0:
            return 0, None
        entry = self._kept[block][int(rng.integers(len(self._kept[block])))]
        return entry.phase, Start(("block", block, entry.number), snapshot=entry.state)

    @property
    def counts(self) -> NDArray[np.int64]:
        """Number of states kept of each block, shape (n_blocks,)."""
        return np.array([len(kept) for kept in self._kept])
