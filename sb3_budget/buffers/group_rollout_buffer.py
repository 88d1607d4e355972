"""Rollout buffers whose advantages are relative to a group."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch as th
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.buffers import DictRolloutBuffer, RolloutBuffer

from sb3_budget.buffers.selective_rollout_buffer import SelectiveBufferMixin
from sb3_budget.core import groups

ADVANTAGES = ("residual", "gae")
#: Floor of a group's standard deviation, in units of the advantages.
LEAST_STD = 1e-3


class GroupStatistics(NamedTuple):
    """
    :param coefficient: Fitted share of the peers' advantage that was taken off; NaN with ``"gae"``.
    :param mean_peers: Mean number of peers of a row.
    """

    coefficient: float
    mean_peers: float


class GroupBufferMixin(SelectiveBufferMixin):
    """
    Group-relative advantages for a rollout buffer. Slots ``g * group_size`` to ``(g + 1) * group_size - 1`` are group ``g``.
    The targets of the critic stay those of the parent.

    :param group_size: Slots per group.
    :param advantage: ``"residual"`` (default) takes off what the peers at the same step explain, see
        :func:`~sb3_budget.core.groups.residual_advantages`; ``"gae"`` normalises within each group.
    """

    advantages: NDArray[np.float32]

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        *args: Any,
        group_size: int = 4,
        advantage: str = "residual",
        **kwargs: Any,
    ):
        if advantage not in ADVANTAGES:
            raise ValueError(f"advantage={advantage!r} is not one of {', '.join(map(repr, ADVANTAGES))}")
        self.group_size = group_size
        self.advantage = advantage
        self._episode: NDArray[np.int64] | None = None
        super().__init__(buffer_size, observation_space, action_space, *args, **kwargs)
        groups.require_groups(self.n_envs, group_size)
        self.statistics = GroupStatistics(np.nan, 0.0)

    def reset(self) -> None:
        super().reset()
        if self._episode is None:
            self._episode = np.full(self.n_envs, -1, dtype=np.int64)
            self._time = np.zeros(self.n_envs, dtype=np.int64)
        shape = (self.buffer_size, self.n_envs)
        self.episodes: NDArray[np.int64] = np.zeros(shape, dtype=np.int64)
        self.times: NDArray[np.int64] = np.zeros(shape, dtype=np.int64)

    def continue_from(self, episodes: NDArray[np.int64], times: NDArray[np.int64]) -> None:
        """
        Say where the slots stand, before rows are added.

        :param episodes: Number of each slot's present episode, shape (n_envs,); one less where the next row begins one.
        :param times: Steps in it before the one of the next row, shape (n_envs,).
        """
        self._episode, self._time = episodes.copy(), times.copy()

    def add(self, obs: Any, action: np.ndarray, reward: np.ndarray, episode_start: np.ndarray, *args: Any) -> None:
        started = np.asarray(episode_start, dtype=bool)
        assert self._episode is not None
        self._episode += started
        self._time = np.where(started, 0, self._time + 1)
        self.episodes[self.pos], self.times[self.pos] = self._episode, self._time
        super().add(obs, action, reward, episode_start, *args)  # type: ignore[misc]  # the parent is a rollout buffer

    def compute_returns_and_advantage(self, last_values: th.Tensor, dones: np.ndarray) -> None:
        super().compute_returns_and_advantage(last_values, dones)
        group = np.broadcast_to(np.arange(self.n_envs) // self.group_size, self.advantages.shape)
        residual = groups.residual_advantages(self.advantages, group, self.episodes, self.times)
        if self.advantage == "residual":
            # Not through the copy in double precision: with a coefficient of 0 these are SB3's own, bit for bit.
            if residual.coefficient > 0.0:
                self.advantages = residual.advantages.astype(np.float32)
            self.statistics = GroupStatistics(residual.coefficient, residual.mean_peers)
        else:
            self.advantages = groups.normalised_within_groups(self.advantages, group, LEAST_STD).astype(np.float32)
            self.statistics = GroupStatistics(np.nan, residual.mean_peers)


class GroupRolloutBuffer(GroupBufferMixin, RolloutBuffer):
    """
    The rollout buffer of :class:`~sb3_budget.GRPO`.

    :param buffer_size: Number of rows per slot.
    :param observation_space: Observation space, not a ``Dict``.
    :param action_space: Action space.
    :param kwargs: Keyword arguments of :class:`GroupBufferMixin` and :class:`~sb3_budget.SelectiveRolloutBuffer`.
    :raises ValueError: if an argument is out of range, ``n_envs`` is no multiple of ``group_size``, or the observation
        space is a ``Dict``.
    """


class GroupDictRolloutBuffer(GroupBufferMixin, DictRolloutBuffer):
    """
    ``Dict`` observations; otherwise as :class:`GroupRolloutBuffer`.

    :raises ValueError: if an argument is out of range or the observation space is no ``Dict``.
    """
