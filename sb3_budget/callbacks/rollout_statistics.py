"""What one rollout tells about the ends of its episodes."""

from __future__ import annotations

from collections import Counter
from time import perf_counter
from typing import Any

import numpy as np
import torch as th
from numpy.typing import NDArray
from stable_baselines3.common.buffers import RolloutBuffer

from sb3_budget.buffers.selective_rollout_buffer import SelectiveBufferMixin
from sb3_budget.core.audit import AuditStatistics
from sb3_budget.core.ledger import Ledger
from sb3_budget.core.weights import stop_weights


class RolloutStatistics:
    """Counts the ends of episodes and the gate's time, rollout by rollout."""

    def __init__(self) -> None:
        self.gate_seconds = 0.0
        self.collect_seconds = 0.0
        self.n_rollouts = 0
        self._ends: list[dict[str, Any]] = []
        self._began = perf_counter()

    def start_rollout(self) -> None:
        """Forget the last rollout's episodes."""
        self._ends = []
        self._began = perf_counter()

    def add_end(self, end: dict[str, Any]) -> None:
        """
        :param end: An episode's ``info["sb3_budget"]``.
        """
        self._ends.append(end)

    @property
    def overhead(self) -> float:
        """Share of the time of collecting rollouts that the gate took."""
        return self.gate_seconds / self.collect_seconds if self.collect_seconds > 0.0 else 0.0

    def lifetimes(self) -> Any:
        """
        :return: Lengths of the episodes that ended in the rollout, as a tensor that TensorBoard draws as a
            histogram; ``None`` without any.
        """
        if not self._ends:
            return None
        return th.tensor([end["length"] for end in self._ends], dtype=th.float32)

    def log_values(self, buffer: RolloutBuffer, audit: AuditStatistics, ledger: Ledger) -> dict[str, float]:
        """
        Close the rollout.

        :param buffer: The rollout, with advantages.
        :param audit: The gate's record.
        :param ledger: The environment's ledger.
        :return: What to log, by key.
        """
        self.n_rollouts += 1
        self.collect_seconds += perf_counter() - self._began
        log: dict[str, float] = {
            "budget/env_steps_total": ledger.total_steps,
            "budget/resets": ledger.resets,
            "budget/gate_time_fraction": self.overhead,
        }
        if self._ends:
            reasons = Counter(end["reason"] for end in self._ends)
            lengths = np.array([end["length"] for end in self._ends])
            for reason in ("terminated", "time_limit", "stopped"):
                log[f"budget/{reason}_ratio"] = reasons[reason] / len(self._ends)
            log["budget/lifetime_mean"] = float(lengths.mean())
            log["budget/lifetime_min"] = int(lengths.min())
            log["budget/lifetime_max"] = int(lengths.max())
            complete = [end["return"] for end in self._ends if end["reason"] in ("terminated", "time_limit")]
            if complete:
                log["budget/complete_return_mean"] = float(np.mean(complete))
        if audit.n:
            log["budget/audit_n"] = audit.n
            log["budget/audit_precision"] = audit.precision
            log["budget/audit_value_bias"] = audit.value_bias
            log["budget/audit_value_rmse"] = audit.value_rmse
        if isinstance(buffer, SelectiveBufferMixin):
            log["budget/effective_samples"] = buffer.effective_samples
            log["budget/weight_mean"] = float(buffer.weights.mean())
            log.update(_advantages(buffer))
        return log


def _advantages(buffer: Any) -> dict[str, float]:
    """Advantages of stopped episodes against those of all others."""
    early = stop_weights(buffer.stops, buffer.episode_starts, 1.0, 1.0, 0.0, tail=False) == 0.0
    if not early.any() or early.all():
        return {}
    stopped, complete = buffer.advantages[early], buffer.advantages[~early]
    return {
        "budget/adv_mean_stopped": float(stopped.mean()),
        "budget/adv_mean_complete": float(complete.mean()),
        "budget/adv_distance": _ks_distance(stopped, complete),
    }


def _ks_distance(a: NDArray[np.floating], b: NDArray[np.floating]) -> float:
    """Kolmogorov-Smirnov distance: the largest gap between the two distribution functions."""
    points = np.sort(np.concatenate([a, b]))
    below_a = np.searchsorted(np.sort(a), points, side="right") / len(a)
    below_b = np.searchsorted(np.sort(b), points, side="right") / len(b)
    return float(np.abs(below_a - below_b).max())
