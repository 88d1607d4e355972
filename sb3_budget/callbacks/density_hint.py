"""A hint for environments in which rare rewards need not be brought nearer."""

from __future__ import annotations

import warnings
from typing import Any

from stable_baselines3.common.base_class import BaseAlgorithm

from sb3_budget.callbacks.original_rewards import original_rewards
from sb3_budget.core.reward_density import RewardDensity

#: Rewards are dense if more than this share of so many steps has another reward than the step before.
DENSE, DENSITY_STEPS = 0.5, 1000


class DensityHint:
    """
    Looks at rewards until it knows whether they are dense, and says once if so.

    :param n_envs: Number of slots.
    """

    def __init__(self, n_envs: int):
        self._density: RewardDensity | None = RewardDensity(n_envs)

    def look(self, model: BaseAlgorithm, step: dict[str, Any], warming_up: bool) -> None:
        """
        :param model: The algorithm; ``VecNormalize`` knows what rewards were before it.
        :param step: Local variables of the algorithm after a step.
        :param warming_up: Whether no verdict is due yet.
        """
        if self._density is None:
            return
        self._density.add(original_rewards(step["rewards"], model.get_vec_normalize_env()), step["dones"])
        if warming_up or self._density.n_pairs < DENSITY_STEPS:
            return
        share, self._density = self._density.share, None
        if share > DENSE:
            warnings.warn(
                f"Rewards are dense here: {share:.0%} of the steps have another reward than the step before. "
                "BudgetAllocatorCallback brings rare rewards nearer; expect no gain from it in this environment",
                stacklevel=2,
            )
