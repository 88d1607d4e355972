"""The callback that lets a gate cut more while training makes progress."""

from __future__ import annotations

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback

from sb3_budget.callbacks.requirements import require_top_level
from sb3_budget.core.gates import ConfidenceGate, QuantileGate
from sb3_budget.core.group_gates import GroupQuantileGate


class AdaptiveQuantileCallback(BaseCallback):
    """
    Raises a gate's quantile while the training return rises and lowers it where the return stands still.

    After every rollout in which episodes ran to their own end, the mean return of the recent ones (``ep_info_buffer``) is
    compared with what it was ``patience`` such rollouts ago. A rise by more than ``tolerance`` of its size moves the
    quantile one step up, anything else one step down. The quantile keeps its value where no such episode ended.

    :param gate: The gate to adapt, the same object that :class:`~sb3_budget.SelectiveRolloutCallback` uses: its ``gate``,
        once it has loaded what it had saved.
    :param minimum: Lower end of the quantile's range.
    :param maximum: Upper end of the quantile's range.
    :param step: Change of the quantile per rollout.
    :param patience: Number of rollouts over which progress is measured.
    :param tolerance: Smallest relative rise that counts as progress.
    :param verbose: Verbosity level.
    :raises ValueError: if an argument is out of range, the gate has no quantile, or one that is a schedule or lies outside
        the range, or, when training starts, an ``EventCallback`` holds this one.
    """

    def __init__(
        self,
        gate: QuantileGate | ConfidenceGate | GroupQuantileGate,
        minimum: float = 0.1,
        maximum: float = 0.5,
        step: float = 0.01,
        patience: int = 10,
        tolerance: float = 0.02,
        verbose: int = 0,
    ):
        super().__init__(verbose)
        if not 0.0 <= minimum <= maximum <= 1.0:
            raise ValueError(f"minimum={minimum} and maximum={maximum} must satisfy 0 <= minimum <= maximum <= 1")
        if step <= 0.0 or patience < 1 or tolerance < 0.0:
            raise ValueError(f"step={step} must be positive, patience={patience} at least 1, tolerance={tolerance} at least 0")
        if not hasattr(gate, "quantile"):
            raise ValueError(f"{type(gate).__name__} has no quantile that could follow the training return")
        if callable(gate.quantile) or not minimum <= gate.quantile <= maximum:
            raise ValueError(f"The gate's quantile {gate.quantile} must be a number in [{minimum}, {maximum}]")
        self.gate = gate
        self.minimum, self.maximum, self.step = minimum, maximum, step
        self.patience, self.tolerance = patience, tolerance
        self._returns: list[float] = []
        self._n_ended = 0

    def _on_training_start(self) -> None:
        require_top_level(self)

    def _on_rollout_start(self) -> None:
        self._n_ended = 0

    def _on_step(self) -> bool:
        self._n_ended += sum("episode" in info for info in self.locals["infos"])
        return True

    def _on_rollout_end(self) -> None:
        # What ended in earlier rollouts says nothing about progress in this one.
        if self._n_ended and self.model.ep_info_buffer:
            self._follow(float(np.mean([episode["r"] for episode in self.model.ep_info_buffer])))
        self.logger.record("budget/gate_quantile", self.gate.quantile)

    def _follow(self, mean_return: float) -> None:
        self._returns.append(mean_return)
        if len(self._returns) > self.patience:
            before, now = self._returns[-1 - self.patience], self._returns[-1]
            rises = now - before > self.tolerance * abs(before)
            assert not callable(self.gate.quantile)
            moved = self.gate.quantile + (self.step if rises else -self.step)
            self.gate.quantile = float(np.clip(moved, self.minimum, self.maximum))
            del self._returns[0]
