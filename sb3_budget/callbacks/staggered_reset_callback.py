"""The callback that logs the spread of the slots and changes it while training goes on."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import unwrap_vec_wrapper

from sb3_budget.callbacks.progress import progress_remaining
from sb3_budget.callbacks.requirements import require_top_level
from sb3_budget.core.gates import Schedule
from sb3_budget.vec_env.staggered_reset_vec_env import StaggeredResetVecEnv


class StaggeredResetCallback(BaseCallback):
    """
    Logs the phase coverage of every rollout, and switches the wrapper of the training environment on.

    RL Zoo wraps its evaluation environments like its training ones. Say ``enabled: false`` in the YAML and add this
    callback: evaluation then stays as the environment is.

    :param n_blocks: Number of blocks as a schedule of the progress remaining: when the number changes, slots are
        shifted to the new blocks at their next episodes. Few blocks early and more later ease an unstable start.
    :param block_weights: Relative number of starts per block as a schedule of the progress remaining, a curriculum. For
        ``mode="snapshot"``, where ``n_blocks`` cannot change.
    :param verbose: Verbosity level.
    :raises ValueError: if ``n_blocks`` or ``block_weights`` is no function, or both are given; when training starts, if
        the environment has no :class:`~sb3_budget.StaggeredResetVecEnv` or an ``EventCallback`` holds this one.
    """

    def __init__(
        self,
        n_blocks: Schedule | None = None,
        block_weights: Callable[[float], ArrayLike] | None = None,
        verbose: int = 0,
    ):
        super().__init__(verbose)
        for name, schedule in (("n_blocks", n_blocks), ("block_weights", block_weights)):
            if schedule is not None and not callable(schedule):
                raise ValueError(f"{name}={schedule!r} must be a function of the progress remaining")
        if n_blocks is not None and block_weights is not None:
            raise ValueError("n_blocks and block_weights both deal the slots to blocks: give one of them")
        self.n_blocks = n_blocks
        self.block_weights = block_weights
        self._blocks: int | None = None
        self._dealt: NDArray[np.int64] | None = None

    def _init_callback(self) -> None:
        venv = unwrap_vec_wrapper(self.training_env, StaggeredResetVecEnv)
        if venv is None:
            raise ValueError("StaggeredResetCallback needs StaggeredResetVecEnv around the training environment's base VecEnv")
        wrong = self.n_blocks if venv.mode == "snapshot" else self.block_weights
        if wrong is not None:
            raise ValueError(
                "n_blocks deals slots to blocks, and block_weights says in which blocks snapshots begin: with "
                f"mode={venv.mode!r} of the wrapper give {'block_weights' if venv.mode == 'snapshot' else 'n_blocks'}"
            )
        self._venv = venv
        venv.enable()
        if self._dealt is not venv.offsets:
            # Another environment, or one that has drawn its offsets anew.
            self._blocks = None

    def _on_training_start(self) -> None:
        require_top_level(self)
        # A loaded model brings its updates along, and a new environment none of its steps.
        self._first_update, self._first_step = self._updates(), self._venv.ledger.total_steps
        gamma = getattr(self.model, "gamma", self._venv.gamma)
        if self._venv.discounts_lengths and gamma != self._venv.gamma:
            warnings.warn(
                f"The horizon budget discounts with gamma={self._venv.gamma}, the model with gamma={gamma}: pass "
                "gamma=model.gamma to StaggeredResetVecEnv.",
                UserWarning,
                stacklevel=2,
            )

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        diagnosis = self._venv.diagnose(getattr(self.model, "n_steps", None))
        self.logger.record("budget/phase_coverage", diagnosis.phase_coverage)
        self.logger.record("budget/phase_entropy", diagnosis.phase_entropy)
        self.logger.record("budget/phase_dispersion", diagnosis.dispersion)
        self._log_updates()
        self._venv.warn_once(diagnosis.advice)
        self._follow_schedule()

    def _updates(self) -> float:
        """Adam counts its own steps, which are all that happened, early stops included."""
        optimizer = getattr(self.model.policy, "optimizer", None)
        state: dict[str, Any] = {} if optimizer is None else next(iter(optimizer.state.values()), {})
        return float(state.get("step", 0.0))

    def _log_updates(self) -> None:
        """The update-to-data ratio of this training."""
        updates = self._updates() - self._first_update
        if updates:
            self.logger.record("budget/utd", updates / (self._venv.ledger.total_steps - self._first_step))

    def _follow_schedule(self) -> None:
        if self.block_weights is not None:
            weights = np.asarray(self.block_weights(progress_remaining(self.model)), dtype=np.float64)
            self._venv.reassign_blocks(len(weights), weights)
        if self.n_blocks is None:
            return
        assert self._venv.horizon is not None
        blocks = int(min(max(1, round(self.n_blocks(progress_remaining(self.model)))), self._venv.horizon))
        if blocks != self._blocks:
            self._blocks = blocks
            self._venv.reassign_blocks(blocks)
            self._dealt = self._venv.offsets
