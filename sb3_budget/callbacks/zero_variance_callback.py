"""The callback that logs what a zero-variance replay buffer holds, and ranks it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch as th
from numpy.typing import ArrayLike, NDArray
from stable_baselines3 import DQN
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback

from sb3_budget.buffers.replay_rows import Samples
from sb3_budget.buffers.zero_variance_replay_buffer import ZeroVarianceBufferMixin
from sb3_budget.callbacks.requirements import require_top_level
from sb3_budget.core.transition_pool import Eviction

#: Pooled transitions that are ranked at once, at most.
MOST_RANKED = 4_096


class ZeroVarianceCallback(BaseCallback):
    """
    Logs the pool of a :class:`~sb3_budget.ZeroVarianceReplayBuffer`; the buffer works without it, too.

    With ``eviction="priority"`` it also keeps the priorities of the pool, by default absolute temporal differences of DQN.

    :param rank: ``rank(model, samples)`` returns a priority per row, shape (n,). By default :func:`dqn_td_errors`, which
        knows DQN only.
    :param rank_every: Steps from one ranking to the next, at least 1.
    :param verbose: Verbosity level.
    :raises ValueError: if an argument is out of range; when training starts, if the model has another buffer or there is
        nothing to rank by.
    """

    def __init__(
        self,
        rank: Callable[[Any, Samples], ArrayLike] | None = None,
        rank_every: int = 1_000,
        verbose: int = 0,
    ):
        super().__init__(verbose)
        if rank_every < 1:
            raise ValueError(f"rank_every={rank_every} must be at least 1 step")
        self.rank = rank or dqn_td_errors
        self.rank_every = rank_every
        self._ranked_at = 0

    @property
    def buffer(self) -> ZeroVarianceBufferMixin:
        """The model's buffer."""
        buffer = getattr(self.model, "replay_buffer", None)
        if not isinstance(buffer, ZeroVarianceBufferMixin):
            raise ValueError(
                f"ZeroVarianceCallback reads a zero-variance buffer, not {type(buffer).__name__}: pass "
                "replay_buffer_class=ZeroVarianceReplayBuffer to the algorithm"
            )
        return buffer

    def _init_callback(self) -> None:
        ranks = self.buffer.pool.eviction is Eviction.PRIORITY
        if ranks and self.rank is dqn_td_errors and type(self.model) is not DQN:
            raise ValueError(f"eviction='priority' of {type(self.model).__name__} needs rank=: temporal differences are DQN's")

    def _on_training_start(self) -> None:
        require_top_level(self)
        self._ranked_at = self.num_timesteps

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        buffer = self.buffer
        if buffer.pool.eviction is Eviction.PRIORITY and self.num_timesteps - self._ranked_at >= self.rank_every:
            self._rank(buffer)
        found = buffer.statistics
        self.logger.record("budget/replay_pool_size", found.size)
        self.logger.record("budget/replay_pool_share", found.share)
        self.logger.record("budget/replay_hit_rate", found.hit_rate)
        self.logger.record("budget/replay_promoted", found.promoted)
        self.logger.record("budget/replay_stochastic", found.stochastic)

    def _rank(self, buffer: ZeroVarianceBufferMixin) -> None:
        """Rank all rows, or as many as are ranked at once, evenly spread."""
        self._ranked_at = self.num_timesteps
        n = len(buffer.pool)
        rows = np.unique(np.linspace(0, n - 1, min(n, MOST_RANKED)).astype(np.int64)) if n else np.zeros(0, dtype=np.int64)
        if len(rows):
            samples = buffer.read_pool(rows, self.model.get_vec_normalize_env())
            buffer.pool.set_priorities(buffer.pool.keys(rows), self.rank(self.model, samples))


def dqn_td_errors(model: BaseAlgorithm, samples: Samples) -> NDArray[np.float32]:
    """
    :param model: A DQN.
    :param samples: Transitions.
    :return: Absolute difference of the value of each and its target, shape (n,).
    """
    assert isinstance(model, DQN)
    with th.no_grad():
        future = model.q_net_target(samples.next_observations).max(dim=1, keepdim=True).values
        target = samples.rewards + (1.0 - samples.dones) * model.gamma * future
        value = th.gather(model.q_net(samples.observations), 1, samples.actions.long())
    return np.asarray((target - value).abs().flatten().cpu())
