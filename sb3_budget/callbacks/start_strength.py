"""How large a share of the episodes begins in archived states."""

from __future__ import annotations

from typing import Any

from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.type_aliases import Schedule
from stable_baselines3.common.utils import FloatSchedule

from sb3_budget.callbacks.requirements import as_steps, require_steps_or_fraction
from sb3_budget.core.priorities import guarded_strength
from sb3_budget.core.ranges import require_share


class StartStrength:
    """
    The share ``1 - floor``, less while it is ramped up and while the policy is not stable.

    The guards act in proportion, by :func:`~sb3_budget.core.priorities.guarded_strength`: with a divergence of twice the limit
    half of the share is left. A switch would go off and on from one update to the next near its threshold.

    :param floor: As for :class:`~sb3_budget.BudgetAllocatorCallback`, like all others.
    :param ramp: See there.
    :param max_kl: See there.
    :param min_entropy: See there.
    :raises ValueError: if an argument is out of range.
    """

    def __init__(self, floor: float | Schedule, ramp: int | float, max_kl: float | None, min_entropy: float | None):
        if not callable(floor):
            require_share("floor", floor)
        require_steps_or_fraction("ramp", ramp)
        if max_kl is not None and not max_kl > 0.0:
            raise ValueError(f"max_kl={max_kl} must be positive")
        self.floor = FloatSchedule(floor)
        #: Whether no episode ever begins in an archived state.
        self.off = not callable(floor) and floor == 1.0
        self.ramp, self.max_kl, self.min_entropy = ramp, max_kl, min_entropy
        self._approx_kl: float | None = None
        self._entropy: float | None = None

    def start(self, model: BaseAlgorithm, first_step: int, total_steps: int) -> None:
        """
        :param model: The algorithm, about to train.
        :param first_step: When the ramp begins [steps].
        :param total_steps: Length of the training, of which the ramp may be a share [steps].
        :raises ValueError: if it does not measure what a guard looks at.
        """
        if self.max_kl is not None and not hasattr(model, "target_kl"):
            raise ValueError(f"max_kl needs an algorithm that measures it, such as PPO or TRPO, not {type(model).__name__}")
        # TRPO, the one that steps by conjugate gradients, logs no entropy.
        logs_entropy = isinstance(model, OnPolicyAlgorithm) and not hasattr(model, "cg_max_steps")
        if self.min_entropy is not None and not logs_entropy:
            raise ValueError(f"min_entropy needs an algorithm that logs it, such as PPO or A2C, not {type(model).__name__}")
        self._first_step = first_step
        self._ramp_steps = as_steps(self.ramp, total_steps)

    def follow(self, logged: dict[str, Any]) -> None:
        """
        :param logged: What the latest update has logged, when the next rollout begins: later the logger forgets it.
        """
        # TRPO's has a name of its own, and no entropy. A table that was just printed leaves what is known as it was.
        for key in ("train/approx_kl", "train/kl_divergence_loss"):
            self._approx_kl = logged.get(key, self._approx_kl)
        if "train/entropy_loss" in logged:
            self._entropy = -logged["train/entropy_loss"]

    def strength(self, num_timesteps: int) -> float:
        """
        :param num_timesteps: The model's steps so far.
        :return: Share of ``1 - floor`` that is put into effect, in [0, 1].
        """
        past = num_timesteps - self._first_step
        ramped = min(1.0, max(0.0, past / self._ramp_steps)) if self._ramp_steps else 1.0
        return guarded_strength(ramped, self._approx_kl, self.max_kl, self._entropy, self.min_entropy)

    def own_share(self, num_timesteps: int, progress_remaining: float) -> float:
        """
        :param num_timesteps: The model's steps so far.
        :param progress_remaining: Of the training, from 1 to 0.
        :return: Chance that an episode begins where the environment does, at least ``floor``.
        """
        floor = min(1.0, max(0.0, self.floor(progress_remaining)))
        return floor + (1.0 - floor) * (1.0 - self.strength(num_timesteps))
