"""The callback that shifts slots anew by what it measures in each block of the horizon."""

from __future__ import annotations

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import unwrap_vec_wrapper

from sb3_budget.callbacks.requirements import require_on_policy, require_top_level
from sb3_budget.core.staggering import phase_blocks, phase_entropy
from sb3_budget.vec_env.staggered_reset_vec_env import StaggeredResetVecEnv

#: By so much of an even share the share of a block must have changed for slots to be dealt anew.
CHANGE = 0.25
#: Number of blocks where neither the user nor snapshots say it.
BLOCKS = 10


class AdaptiveOffsetCallback(BaseCallback):
    """
    Measures how the slots and the critic's error spread over the blocks of the horizon, and shifts the slots anew
    where they have fallen into step.

    Every ``period`` rollouts the entropy of the phases seen since the last check is compared with ``min_entropy``.
    Below it, slots get new offsets, which take effect at their next episodes. With ``uniform`` below 1, offsets are
    dealt whenever the errors have changed by much, and slots bunch in the blocks with the larger critic error, the
    moving average of :math:`|\\hat R - V|` over the rows of a block.

    Offsets shift episodes and do not lengthen them: over a whole episode every slot passes through every block. What
    an uneven deal changes is how many slots pass together. With ``mode="snapshot"`` of the wrapper the shares are those
    of the blocks that episodes begin in, and a block with a larger error gets more steps.

    :param n_blocks: Number of blocks that the horizon is divided into. By default 10, or with ``mode="snapshot"`` as many as
        the snapshots have, which is the only number that fits them.
    :param period: Number of rollouts between two checks.
    :param min_entropy: Normalised entropy of the phases under which slots are shifted anew, in ``[0, 1]``.
    :param uniform: Share of the slots dealt evenly, in ``[0, 1]``.
    :param ema: Weight of a new measurement in the moving average, in ``(0, 1]``.
    :param verbose: Verbosity level.
    :raises ValueError: if an argument is out of range, or, when training starts, the environment or algorithm does
        not fit.
    """

    model: OnPolicyAlgorithm

    def __init__(
        self,
        n_blocks: int | None = None,
        period: int = 20,
        min_entropy: float = 0.8,
        uniform: float = 1.0,
        ema: float = 0.1,
        verbose: int = 0,
    ):
        super().__init__(verbose)
        if (n_blocks is not None and n_blocks < 2) or period < 1:
            raise ValueError(f"n_blocks={n_blocks} must be at least 2 and period={period} at least 1")
        if not (0.0 <= uniform <= 1.0 and 0.0 <= min_entropy <= 1.0 and 0.0 < ema <= 1.0):
            raise ValueError(f"uniform={uniform} and min_entropy={min_entropy} must lie in [0, 1], ema={ema} in (0, 1]")
        self.n_blocks, self.period, self.min_entropy, self.uniform, self.ema = n_blocks, period, min_entropy, uniform, ema
        self._n_rollouts = 0
        self._divide(n_blocks or BLOCKS)

    def _divide(self, n_blocks: int) -> None:
        self.value_errors = np.full(n_blocks, np.nan)
        self._counts = np.zeros(n_blocks, dtype=np.int64)
        self._dealt: np.ndarray | None = None

    def _init_callback(self) -> None:
        require_on_policy(self)
        venv = unwrap_vec_wrapper(self.training_env, StaggeredResetVecEnv)
        if venv is None or not venv.enabled:
            raise ValueError("AdaptiveOffsetCallback needs an enabled StaggeredResetVecEnv around the base VecEnv")
        assert venv.horizon is not None
        n_blocks = self.n_blocks or venv.snapshot_blocks or BLOCKS
        if n_blocks > venv.horizon:
            raise ValueError(f"n_blocks={n_blocks} exceeds the horizon of {venv.horizon} steps")
        if venv.snapshot_blocks not in (None, n_blocks):
            raise ValueError(
                f"n_blocks={n_blocks} cannot replace the {venv.snapshot_blocks} blocks of the snapshots: leave it out"
            )
        if n_blocks != len(self.value_errors):
            self._divide(n_blocks)
        self._venv = venv

    def _on_training_start(self) -> None:
        require_top_level(self)

    def _on_rollout_start(self) -> None:
        self._ages = [self._venv.phases]

    def _on_step(self) -> bool:
        self._ages.append(self._venv.phases)
        return True

    def _on_rollout_end(self) -> None:
        assert self._venv.horizon is not None
        buffer = self.model.rollout_buffer
        # A row holds the state before its step.
        n_blocks = len(self.value_errors)
        blocks = phase_blocks(np.array(self._ages[:-1]), self._venv.horizon, n_blocks)
        self._counts += np.bincount(blocks.ravel(), minlength=n_blocks)
        errors = np.abs(buffer.returns - buffer.values)
        for block in np.unique(blocks).tolist():
            error, old = float(errors[blocks == block].mean()), self.value_errors[block]
            self.value_errors[block] = error if np.isnan(old) else (1.0 - self.ema) * old + self.ema * error
        self._n_rollouts += 1
        known = self.value_errors[~np.isnan(self.value_errors)]
        self.logger.record("budget/value_error_max", float(known.max()))
        self.logger.record("budget/value_error_min", float(known.min()))
        for block, error in enumerate(self.value_errors.tolist()):
            self.logger.record(f"budget/value_error_block_{block}", error, exclude="stdout")
        if self._n_rollouts % self.period == 0:
            in_step = phase_entropy(self._counts) < self.min_entropy
            if self.uniform < 1.0 or in_step:
                self._deal(float(known.max()), in_step)
            self._counts[:] = 0

    def _deal(self, largest: float, in_step: bool) -> None:
        # A block that was never visited counts like the worst one.
        n_blocks = len(self.value_errors)
        errors = np.where(np.isnan(self.value_errors), largest, self.value_errors)
        shares = errors / errors.sum() if errors.sum() > 0.0 else np.full(n_blocks, 1.0 / n_blocks)
        weights = self.uniform / n_blocks + (1.0 - self.uniform) * shares
        # Slots that are where they should be are not cut once more.
        if in_step or self._dealt is None or np.abs(weights - self._dealt).max() > CHANGE / n_blocks:
            self._venv.reassign_blocks(n_blocks, weights)
            self._dealt = weights
