"""Weighted rollout buffers for RecurrentPPO, which keep sequences whole."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sb3_budget.buffers.selective_rollout_buffer import SelectiveBufferMixin
from sb3_budget.core import weights as row_weights

try:
    from sb3_contrib.common.recurrent.buffers import RecurrentDictRolloutBuffer, RecurrentRolloutBuffer
except ImportError as error:
    raise ImportError("Buffers for RecurrentPPO need sb3-contrib: pip install 'sb3-budget[contrib]'") from error


class SelectiveRecurrentBufferMixin(SelectiveBufferMixin):
    """
    Thinning for buffers of sequences: rows that an epoch leaves out stay in their sequence, so that the hidden states
    see them, and drop out of the loss through the mask of the padding.

    A minibatch is a stretch of the rollout that holds about ``batch_size`` kept rows.
    """

    hidden_state_shape: tuple[int, int, int, int]

    def reset(self) -> None:
        # The parent makes room for hidden states by this shape, and for all else by the number of rows.
        self.hidden_state_shape = (self._next_size or self.buffer_size, *self.hidden_state_shape[1:])
        super().reset()

    def get(self, batch_size: int | None = None) -> Generator[Any, None, None]:
        if self._takes_stock_batches(batch_size):
            yield from super().get(batch_size)
            return
        self._flatten_once()
        n_rows = self.buffer_size * self.n_envs
        kept = np.zeros(n_rows, dtype=np.float32)
        kept[self._draw_kept()] = 1.0
        # As in the parent, rows stay in order and are cut at a random place.
        order = np.roll(np.arange(n_rows), self._thinning_rng.integers(n_rows))
        env_change = (np.arange(n_rows) % self.buffer_size == 0)[:, None]
        for rows in _stretches(order, kept, batch_size or n_rows):
            samples = self._get_samples(rows, env_change)  # type: ignore[attr-defined]  # the parent is a rollout buffer
            yield samples._replace(mask=self.pad_and_flatten(kept[rows]))  # type: ignore[attr-defined]  # set with the samples


def _stretches(order: NDArray[np.int64], kept: NDArray[np.float32], batch_size: int) -> list[NDArray[np.int64]]:
    """
    :param order: Rows in the order in which they are to be used [n].
    :param kept: 1 at rows that count, else 0 [n].
    :param batch_size: Number of rows that count in one stretch, about.
    :return: ``order`` in consecutive parts.
    """
    parts = row_weights.chunks(np.flatnonzero(kept[order]), batch_size)
    return np.split(order, [part[-1] + 1 for part in parts[:-1]])


class SelectiveRecurrentRolloutBuffer(SelectiveRecurrentBufferMixin, RecurrentRolloutBuffer):
    """
    ``RecurrentRolloutBuffer`` with weights, for :class:`~sb3_budget.SelectiveRecurrentPPO`.

    :param buffer_size: Number of rows per slot.
    :param observation_space: Observation space, not a ``Dict``.
    :param action_space: Action space.
    :param hidden_state_shape: Shape of the hidden states [n_steps, lstm.num_layers, n_envs, lstm.hidden_size].
    :param device: PyTorch device of the samples.
    :param kwargs: Keyword arguments of the parent and of :class:`~sb3_budget.SelectiveRolloutBuffer`.
    :raises ValueError: if an argument is out of range or the observation space is a ``Dict``.
    """


class SelectiveRecurrentDictRolloutBuffer(SelectiveRecurrentBufferMixin, RecurrentDictRolloutBuffer):
    """
    ``RecurrentDictRolloutBuffer`` with weights; otherwise as :class:`SelectiveRecurrentRolloutBuffer`.

    :raises ValueError: if an argument is out of range or the observation space is not a ``Dict``.
    """
