"""Rollout buffers whose advantages are relative to a group."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch as th
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.buffers import DictRolloutBuffer, RolloutBuffer

from sb3_budget.buffers.selective_rollout_buffer import SelectiveBufferMixin
from sb3_budget.core import groups
from sb3_budget.core import weights as row_weights
from sb3_budget.core.group_advantages import scaled
from sb3_budget.core.group_outcomes import FinishedGroup, GroupOutcomes, OutcomeStatistics, outcome_statistics
from sb3_budget.core.peer_memory import PeerMemory

SCALES = ("group", "batch", "none")
STD_FLOOR = 0.1


class GroupStatistics(NamedTuple):
    """
    :param coefficient: Fitted share of the peers' advantage that was taken off; NaN where none is fitted.
    :param mean_peers: Mean number of peers of a row.
    :param outcomes: What the groups look like that were finished by the rollout.
    """

    coefficient: float
    mean_peers: float
    outcomes: OutcomeStatistics


class GroupBufferMixin(SelectiveBufferMixin):
    """
    Group-relative advantages for a rollout buffer. Slots ``g * group_size`` to ``(g + 1) * group_size - 1`` are group ``g``.
    The targets of the critic stay those of the parent.

    :param group_size: Slots per group.
    :param advantage: ``"residual"`` (default) takes off what the peers at the same step explain, see
        :func:`~sb3_budget.core.groups.residual_advantages`; ``"gae"`` takes off the mean of the group.
    :param scale: Divide advantages by a standard deviation: that of their ``"group"``, of the ``"batch"``, or ``"none"``.
        By default ``"group"`` with ``"gae"``, while ``"residual"`` is left to PPO's ``normalize_advantage``.
    :param std_floor: Least divisor for ``"group"``, in units of the deviation of all groups together.
    :param zero_tolerance: Returns of a group count as alike if they differ by no more than this, in units of the standard
        deviation of all returns so far. 0 (default) asks for equality.
    :param remember_peers: Number of earlier rollouts whose rows are peers too, with ``"residual"``.
    """

    #: Kinds of advantages, and the scale of each that is not given one.
    ADVANTAGES: ClassVar[dict[str, str | None]] = {"residual": None, "gae": "group"}

    advantages: NDArray[np.float32]

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        *args: Any,
        group_size: int = 4,
        advantage: str | None = None,
        scale: str | None = None,
        std_floor: float = STD_FLOOR,
        zero_tolerance: float = 0.0,
        remember_peers: int = 0,
        **kwargs: Any,
    ):
        self.advantage = next(iter(self.ADVANTAGES)) if advantage is None else advantage
        require_one_of("advantage", self.advantage, self.ADVANTAGES)
        self.scale = self.ADVANTAGES[self.advantage] if scale is None else scale
        if scale is not None:
            require_one_of("scale", scale, SCALES)
        if std_floor != STD_FLOOR and self.scale != "group":
            raise ValueError(f"std_floor={std_floor} has no part in scale={self.scale!r}, only in 'group'")
        if not (std_floor >= 0.0 and 0.0 <= zero_tolerance < np.inf):
            raise ValueError(
                f"std_floor={std_floor} and zero_tolerance={zero_tolerance} must not be negative, nor the latter infinite"
            )
        self._memory = PeerMemory(remember_peers)
        if remember_peers and self.advantage != "residual":
            raise ValueError(
                f"remember_peers={remember_peers} has no part in advantage={self.advantage!r}, only in 'residual'"
            )
        self.group_size = group_size
        self.std_floor, self.zero_tolerance = std_floor, zero_tolerance
        self._episode: NDArray[np.int64] | None = None
        self._dropped: set[tuple[int, int]] = set()
        self._has_raw = False
        #: Groups that were finished by the present rollout, in the order of finishing.
        self.finished: list[FinishedGroup] = []
        super().__init__(buffer_size, observation_space, action_space, *args, **kwargs)
        self.outcomes = GroupOutcomes(self.n_envs, group_size)
        self.statistics = GroupStatistics(np.nan, 0.0, OutcomeStatistics(np.nan, np.nan))

    def reset(self) -> None:
        super().reset()
        if self._episode is None:
            self._episode = np.full(self.n_envs, -1, dtype=np.int64)
            self._member = np.arange(self.n_envs) % self.group_size
            self._time = np.zeros(self.n_envs, dtype=np.int64)
        shape = (self.buffer_size, self.n_envs)
        self.episodes: NDArray[np.int64] = np.zeros(shape, dtype=np.int64)
        self.members: NDArray[np.int64] = np.zeros(shape, dtype=np.int64)
        self.times: NDArray[np.int64] = np.zeros(shape, dtype=np.int64)
        self.plain_rewards: NDArray[np.float32] = np.zeros(shape, dtype=np.float32)
        self.raw_returns: NDArray[np.float64] = np.full(shape, np.nan)
        self._noted: NDArray[np.float32] | None = None
        self._noted_raw: NDArray[np.float64] | None = None
        self._noted_episodes: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None

    def continue_from(self, times: NDArray[np.int64]) -> None:
        """
        Say where the slots stand, before rows are added.

        :param times: Steps in each slot's present episode before the one of the next row, shape (n_envs,).
        """
        self._time = times.copy()

    def note_episodes(self, episodes: NDArray[np.int64], members: NDArray[np.int64]) -> None:
        """
        Say which episodes the next row belongs to. Otherwise each slot's are numbered one after the other, and it is always
        the same member.

        :param episodes: Number of the start that each slot's episode began in, shape (n_envs,).
        :param members: Which member of the group plays it, from 0, shape (n_envs,).
        """
        self._noted_episodes = episodes.copy(), members.copy()

    def note_rewards(self, rewards: NDArray[np.floating], raw_returns: NDArray[np.floating] | None = None) -> None:
        """
        Say what the rewards of the next row were before a critic completed those of truncated episodes.

        :param rewards: Rewards, shape (n_envs,); NaN where the completed one counts as the episode's last.
        :param raw_returns: Where an episode ends with the row, its return as the environment gave it, NaN where it was cut
            short, shape (n_envs,). The sums of the rewards by default.
        """
        self._noted = np.array(rewards, dtype=np.float32)
        self._noted_raw = None if raw_returns is None else np.array(raw_returns, dtype=np.float64)

    def add(self, obs: Any, action: np.ndarray, reward: np.ndarray, episode_start: np.ndarray, *args: Any) -> None:
        started = np.asarray(episode_start, dtype=bool)
        assert self._episode is not None
        self._episode, self._member = self._noted_episodes or (self._episode + started, self._member)
        self._time = np.where(started, 0, self._time + 1)
        self.episodes[self.pos], self.members[self.pos], self.times[self.pos] = self._episode, self._member, self._time
        self.plain_rewards[self.pos] = reward if self._noted is None else np.where(np.isnan(self._noted), reward, self._noted)
        self._has_raw |= self._noted_raw is not None
        if self._noted_raw is not None:
            self.raw_returns[self.pos] = self._noted_raw
        self._noted = self._noted_raw = self._noted_episodes = None
        super().add(obs, action, reward, episode_start, *args)  # type: ignore[misc]  # the parent is a rollout buffer

    # ------------------------------------------------------------------ rows that are left out

    def drop_episodes(self, pairs: Iterable[tuple[int, int]]) -> None:
        """
        Leave episodes out of the loss, from the present rollout on until their group is past them.

        :param pairs: Group and number of the episode.
        """
        self._dropped.update(pairs)

    def leave_out(self, pairs: Iterable[tuple[int, int]]) -> None:
        """
        Leave episodes out of the update with this rollout, once advantages have been computed.

        :param pairs: Group and number of the episode.
        """
        self.weights = np.where(self._among(set(pairs)), np.float32(0.0), self.weights)
        self._probabilities = row_weights.inclusion_probabilities(self.weights.T.ravel())

    @property
    def empty(self) -> bool:
        """Whether no row is left to train on."""
        return not self.weights.any()

    def _among(self, pairs: set[tuple[int, int]]) -> NDArray[np.bool_]:
        return among(self._groups, self.episodes, pairs)

    # ------------------------------------------------------------------ advantages

    @property
    def _groups(self) -> NDArray[np.int64]:
        return np.broadcast_to(np.arange(self.n_envs) // self.group_size, (self.buffer_size, self.n_envs))

    def compute_returns_and_advantage(self, last_values: th.Tensor, dones: np.ndarray) -> None:
        if self._dropped:
            self.factors[self._among(self._dropped)] = 0.0
        super().compute_returns_and_advantage(last_values, dones)
        ends = np.vstack([self.episode_starts[1:] > 0, np.asarray(dones, dtype=bool)[None]])
        raw_returns = self.raw_returns if self._has_raw else None
        self.finished = self.outcomes.add(
            self.plain_rewards, self.episodes, self.times, ends, raw_returns, members=self.members
        )
        oldest = self.outcomes.oldest
        self._dropped = {pair for pair in self._dropped if pair[1] >= oldest[pair[0]]}
        coefficient, mean_peers = self._relate(oldest)
        outcomes = outcome_statistics(self.finished, self.zero_tolerance, self.outcomes.raw_return_std)
        self.statistics = GroupStatistics(coefficient, mean_peers, outcomes)

    def _relate(self, oldest: NDArray[np.int64]) -> tuple[float, float]:
        """Make the advantages relative to the group; return the fitted coefficient and the mean number of peers."""
        group = self._groups
        if self.advantage == "gae":
            centred = groups.centred_within_groups(self.advantages, group)
            self.advantages = self._scaled(centred, group).astype(np.float32)
            peers = groups.leave_one_out(self.advantages, group, self.episodes, self.times)
            return np.nan, float(peers.counts.mean())
        residual = groups.residual_advantages(self.advantages, group, self.episodes, self.times, self._memory.rows)
        plain = (np.ravel(part).astype(np.int64) for part in (group, self.episodes, self.times))
        self._memory.add(groups.PeerRows(self.advantages.ravel().astype(np.float64), *plain), oldest)
        # Not through the copy in double precision: with a coefficient of 0 these are SB3's own, bit for bit.
        advantages = residual.advantages
        if self.scale is not None:
            advantages = self._scaled(advantages, group)
        if residual.coefficient > 0.0 or self.scale is not None:
            self.advantages = advantages.astype(np.float32)
        return residual.coefficient, residual.mean_peers

    def _scaled(self, advantages: NDArray[np.float64], group: NDArray[np.int64]) -> NDArray[np.float64]:
        """The same divided by a standard deviation, row by row."""
        assert self.scale is not None
        flat = advantages.ravel()
        return scaled(flat, group.ravel(), self.scale, self.std_floor * float(flat.std())).reshape(advantages.shape)


def among(group: NDArray[np.int64], episode: NDArray[np.int64], pairs: set[tuple[int, int]]) -> NDArray[np.bool_]:
    """
    :param group: Group of each row.
    :param episode: Episode of each row, same shape.
    :param pairs: Pairs of the two.
    :return: Whether a row's pair is one of them, same shape.
    """
    return places(group, episode, pairs) >= 0


def places(group: NDArray[np.int64], episode: NDArray[np.int64], pairs: Iterable[tuple[int, int]]) -> NDArray[np.int64]:
    """
    :param group: Group of each row.
    :param episode: Episode of each row, same shape.
    :param pairs: Pairs of the two.
    :return: Which of the pairs a row's is, from 0; -1 where it is none of them, same shape.
    """
    found = np.full(group.shape, -1, dtype=np.int64)
    for place, (wanted_group, wanted_episode) in enumerate(pairs):
        found[(group == wanted_group) & (episode == wanted_episode)] = place
    return found


def numbered(*keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """
    :param keys: Keys of the rows, all of one shape.
    :return: A number for each row, from 0, equal where all keys are, same shape.
    """
    flat = np.stack([np.ravel(key) for key in keys])
    return np.unique(flat, axis=1, return_inverse=True)[1].reshape(keys[0].shape)


def require_one_of(name: str, value: str, known: Iterable[str]) -> None:
    """
    :param name: Name of an argument.
    :param value: What was given.
    :param known: What there is.
    :raises ValueError: if it is none of these.
    """
    if value not in known:
        raise ValueError(f"{name}={value!r} is not one of {', '.join(map(repr, known))}")


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
