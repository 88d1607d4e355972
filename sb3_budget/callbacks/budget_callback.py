"""The callback that ends training when a budget is used up."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import unwrap_vec_wrapper

from sb3_budget.callbacks.requirements import require_top_level
from sb3_budget.core.ledger import Ledger
from sb3_budget.vec_env.episode_control_vec_env import EpisodeControlVecEnv


class BudgetSchedule:
    """
    A schedule by what is left of a budget, instead of Stable-Baselines3's count of steps, from
    :meth:`BudgetCallback.schedule`. A saved model keeps the value that it had.

    :param fn: Function of the share that is left, from 1 to 0.
    """

    def __init__(self, fn: Callable[[float], float]):
        self.fn = fn
        self.remaining = 1.0

    def __call__(self, _progress_remaining: float) -> float:
        return self.fn(self.remaining)


class BudgetCallback(BaseCallback):
    """
    Ends training when a total budget is used up: simulator steps, seconds, or a cost of your own.

    ``total_timesteps`` of ``learn`` counts the steps that the algorithm learns from. Warm-ups, audits and checks are steps of
    the simulator too, which the ledger of :class:`~sb3_budget.EpisodeControlVecEnv` counts; without that wrapper there are
    none. Give ``learn`` a ``total_timesteps`` that is no smaller than what the budget allows, or it ends first.

    It looks between two rollouts, so that no rollout is collected in vain: at most one more than the budget has room for is.
    Schedules of the algorithm go by ``total_timesteps``; those of :meth:`schedule` go by the budget.

    :param steps: Simulator steps, whatever they are for. The wrapper's ledger counts them from when it was made; without it
        they are those of trainings with this callback.
    :param seconds: Wall-clock seconds of training with this callback, evaluations included.
    :param cost: Cost so far of a :class:`~sb3_budget.core.ledger.Ledger`, in units of your own, such as
        ``lambda ledger: ledger.total_steps * 2e-6 + ledger.resets * 1e-3``. With ``most_cost`` only.
    :param most_cost: Largest cost. With ``cost`` only.
    :param verbose: Verbosity level.
    :raises ValueError: if there is no limit, or one that is not positive, or only one of ``cost`` and ``most_cost``.
    """

    def __init__(
        self,
        steps: int | None = None,
        seconds: float | None = None,
        cost: Callable[[Ledger], float] | None = None,
        most_cost: float | None = None,
        verbose: int = 0,
    ):
        super().__init__(verbose)
        if (cost is None) != (most_cost is None):
            raise ValueError("cost says what is spent and most_cost how much may be: give both or neither")
        if steps is None and seconds is None and most_cost is None:
            raise ValueError("BudgetCallback needs a limit: steps, seconds, or cost with most_cost")
        for name, limit in (("steps", steps), ("seconds", seconds), ("most_cost", most_cost)):
            if limit is not None and not limit > 0:
                raise ValueError(f"{name}={limit} must be positive")
        self.steps, self.seconds, self.cost, self.most_cost = steps, seconds, cost, most_cost
        self._schedules: list[BudgetSchedule] = []
        self._spent_seconds, self._spent_steps = 0.0, 0
        #: When, and at which of the algorithm's steps, was counted last.
        self._counted_until = 0.0, 0
        self._over = False

    def schedule(self, fn: Callable[[float], float]) -> BudgetSchedule:
        """
        :param fn: Function of the share of the budget that is left, from 1 to 0.
        :return: A schedule for the algorithm, such as ``learning_rate=budget.schedule(lambda left: 3e-4 * left)``.
        """
        made = BudgetSchedule(fn)
        self._schedules.append(made)
        return made

    @property
    def ledger(self) -> Ledger:
        """The wrapper's ledger; where there is none that counts, the algorithm's own steps while it had this callback."""
        control = unwrap_vec_wrapper(self.training_env, EpisodeControlVecEnv)
        if control is not None and control.enabled:
            return control.ledger
        return Ledger(learning_steps=self._spent_steps)

    @property
    def remaining(self) -> float:
        """Share of the budget that is left, from 1 to 0; of several limits the smallest. Seconds are those up to a step."""
        ledger = self.ledger
        used = []
        if self.steps is not None:
            used.append(ledger.total_steps / self.steps)
        if self.seconds is not None:
            used.append(self._spent_seconds / self.seconds)
        if self.cost is not None and self.most_cost is not None:
            used.append(self.cost(ledger) / self.most_cost)
        return min(1.0, max(0.0, 1.0 - max(used)))

    def _count(self) -> None:
        """At each step, since a training that is broken off, as by Ctrl-C, does not tell of its end."""
        (began, first_step), self._counted_until = self._counted_until, (perf_counter(), self.model.num_timesteps)
        self._spent_seconds += self._counted_until[0] - began
        self._spent_steps += self._counted_until[1] - first_step

    def _on_training_start(self) -> None:
        require_top_level(self)
        self._counted_until = perf_counter(), self.model.num_timesteps
        self._over = False

    def _on_rollout_start(self) -> None:
        self._count()
        self._over = self.remaining == 0.0

    def _on_step(self) -> bool:
        self._count()
        return not self._over

    def _on_rollout_end(self) -> None:
        self._count()
        left = self.remaining
        for made in self._schedules:
            made.remaining = left
        self.logger.record("budget/left", left)

    def _on_training_end(self) -> None:
        self._count()
