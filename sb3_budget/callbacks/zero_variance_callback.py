"""The callback that logs what a zero-variance replay buffer holds, ranks it, and finds exact targets in it."""

from __future__ import annotations

import math
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
from sb3_budget.callbacks.graph_targets import chunks, graph_targets
from sb3_budget.callbacks.progress import Every
from sb3_budget.callbacks.requirements import require_top_level
from sb3_budget.core.transition_pool import Eviction


class ZeroVarianceCallback(BaseCallback):
    """
    Logs the pool of a :class:`~sb3_budget.ZeroVarianceReplayBuffer`; the buffer works without it, too.

    With ``eviction="priority"`` it also keeps the priorities of the pool, by default absolute temporal differences of DQN.

    With ``backups="graph"``, for DQN, rows of the pool have exact targets: their values on the graph of pooled transitions,
    see :func:`~sb3_budget.callbacks.graph_targets.graph_targets`.

    :param backups: ``"none"`` (default): pooled rows are single steps. ``"graph"``: they have exact targets.
    :param optimism: With ``"graph"``, the value of actions that were never tried, such as the highest return possible. The
        policy then goes where it has not been, until it has been everywhere. ``None`` (default) leaves them out.
    :param rank: ``rank(model, samples)`` returns a priority per row, shape (n,). By default :func:`dqn_td_errors`, which
        knows DQN only.
    :param refresh_every: Steps after which priorities and targets are computed again, at least 1.
    :param verbose: Verbosity level.
    :raises ValueError: if an argument is out of range; when training starts, if the model has another buffer or another
        discount factor than its buffer, there is nothing to rank by, or exact targets are asked for without DQN.
    """

    def __init__(
        self,
        backups: str = "none",
        rank: Callable[[Any, Samples], ArrayLike] | None = None,
        refresh_every: int = 1_000,
        optimism: float | None = None,
        verbose: int = 0,
    ):
        super().__init__(verbose)
        if backups not in ("none", "graph"):
            raise ValueError(f"backups={backups!r} is neither 'none' nor 'graph'")
        if refresh_every < 1:
            raise ValueError(f"refresh_every={refresh_every} must be at least 1 step")
        if optimism is not None and (backups != "graph" or not math.isfinite(optimism)):
            raise ValueError(f"optimism={optimism} must be a finite value, and needs backups='graph', not {backups!r}")
        self.is_exact = backups == "graph"
        self.rank = rank or dqn_td_errors
        self.refresh_every, self.optimism = refresh_every, optimism
        self._refreshes = Every(refresh_every)

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
        name, is_dqn = type(self.model).__name__, isinstance(self.model, DQN)
        if self.buffer.pool.eviction is Eviction.PRIORITY and self.rank is dqn_td_errors and not is_dqn:
            raise ValueError(f"eviction='priority' of {name} needs rank=: temporal differences are DQN's")
        if self.is_exact and not is_dqn:
            raise ValueError(f"backups='graph' needs DQN, not {name}: use backups='none'")
        if self.is_exact and self.model.gamma >= 1.0:  # type: ignore[attr-defined]  # DQN has one
            raise ValueError(f"backups='graph' needs gamma < 1, not {self.model.gamma}: a cycle has no value otherwise")  # type: ignore[attr-defined]  # as above
        # Those of n-step buffers, which take the discount factor for themselves.
        gamma, wanted = getattr(self.buffer, "gamma", None), getattr(self.model, "gamma", None)
        if gamma is not None and gamma != wanted:
            raise ValueError(
                f"The n-step buffer has gamma={gamma}, but {name} has {wanted}: pass "
                f"replay_buffer_kwargs={{'gamma': {wanted}, ...}}"
            )

    def _on_training_start(self) -> None:
        require_top_level(self)
        # The end of the last training has dropped its targets.
        self._refreshes.begin(self.num_timesteps, at_once=self.is_exact)
        if not self.is_exact:
            self.buffer.targets = None

    def _on_training_end(self) -> None:
        # Nothing would renew them in a training without this callback.
        self.buffer.targets = None

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        buffer = self.buffer
        if len(buffer.pool) and self._refreshes.is_due(self.num_timesteps):
            if buffer.pool.eviction is Eviction.PRIORITY:
                self._rank(buffer)
            if self.is_exact:
                assert isinstance(self.model, DQN)
                buffer.targets = graph_targets(self.model, buffer, self.optimism)
        found = buffer.statistics
        self.logger.record("budget/replay_pool_size", found.size)
        self.logger.record("budget/replay_pool_share", found.share)
        self.logger.record("budget/replay_hit_rate", found.hit_rate)
        self.logger.record("budget/replay_promoted", found.promoted)
        self.logger.record("budget/replay_stochastic", found.stochastic)
        if self.is_exact:
            self.logger.record("budget/replay_untried", 0 if buffer.targets is None else buffer.targets.n_untried)

    def _rank(self, buffer: ZeroVarianceBufferMixin) -> None:
        for rows, samples in chunks(self.model, buffer):
            buffer.pool.set_priorities(buffer.pool.keys(rows), self.rank(self.model, samples))


def dqn_td_errors(model: BaseAlgorithm, samples: Samples) -> NDArray[np.float32]:
    """
    :param model: A DQN.
    :param samples: Transitions.
    :return: Absolute difference of the value of each and its target, shape (n,).
    """
    assert isinstance(model, DQN)
    with th.no_grad():
        target = samples.rewards + model.gamma * _future_values(model, samples)
        value = th.gather(model.q_net(samples.observations), 1, samples.actions.long())
    return np.asarray((target - value).abs().flatten().cpu())


def _future_values(model: DQN, samples: Samples) -> th.Tensor:
    with th.no_grad():
        return (1.0 - samples.dones) * model.q_net_target(samples.next_observations).max(dim=1, keepdim=True).values
