"""The callback that logs how steadily evaluations improve."""

from __future__ import annotations

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback, CallbackList, EvalCallback

from sb3_budget.core.stability import fluctuation, forgetting_events


class StabilityCallback(BaseCallback):
    """
    Logs how much the mean evaluation return fluctuates and how often it falls back, after each evaluation::

        EvalCallback(eval_env, callback_after_eval=StabilityCallback())

    - ``eval/fluctuation``: standard deviation around the moving mean of ``window`` evaluations, in units of return;
    - ``eval/forgetting_events``: how often the return has fallen further below its best so far than ``tolerance``
      times the range of all returns.

    :param window: Number of evaluations of the moving mean.
    :param tolerance: Share of the range of returns that a fall must exceed, in ``[0, 1]``.
    :param verbose: Verbosity level.
    :raises ValueError: if an argument is out of range, or, when training starts or at the first evaluation, if no
        ``EvalCallback`` calls this callback, or a list with it, after every evaluation.
    """

    def __init__(self, window: int = 10, tolerance: float = 0.2, verbose: int = 0):
        super().__init__(verbose)
        if window < 2:
            raise ValueError(f"window={window} must be at least 2 evaluations")
        if not 0.0 <= tolerance <= 1.0:
            raise ValueError(f"tolerance={tolerance} must lie in [0, 1]")
        self.window = window
        self.tolerance = tolerance
        self.history: list[float] = []

    def _init_callback(self) -> None:
        # A CallbackList tells its children of their parent only later; callback_on_new_best hears of no training start.
        if self.parent is not None:
            self._require_evaluation()

    def _on_training_start(self) -> None:
        self._require_evaluation()

    def _require_evaluation(self) -> EvalCallback:
        # EvalCallback is also the parent of its callback_on_new_best, which would see improvements only.
        if isinstance(self.parent, EvalCallback):
            after_eval = self.parent.callback
            if self in (after_eval.callbacks if isinstance(after_eval, CallbackList) else [after_eval]):
                return self.parent
        raise ValueError("StabilityCallback reads all evaluations: pass it as EvalCallback(callback_after_eval=...)")

    def _on_step(self) -> bool:
        self.history.append(float(self._require_evaluation().last_mean_reward))
        self.logger.record("eval/fluctuation", fluctuation(self.history, self.window))
        tolerance = self.tolerance * float(np.ptp(self.history))
        self.logger.record("eval/forgetting_events", forgetting_events(self.history, tolerance))
        return True
