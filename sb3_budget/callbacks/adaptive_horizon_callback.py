"""The callback that lets the lengths of episodes follow their rewards."""

from __future__ import annotations

import warnings

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import unwrap_vec_wrapper

from sb3_budget.callbacks.original_rewards import original_rewards
from sb3_budget.callbacks.progress import Every
from sb3_budget.callbacks.requirements import require_top_level
from sb3_budget.core.horizons import mean_length
from sb3_budget.core.rido import AdaptiveHorizons
from sb3_budget.vec_env.staggered_reset_vec_env import StaggeredResetVecEnv


class AdaptiveHorizonCallback(BaseCallback):
    """
    Records the rewards of episodes for the :class:`~sb3_budget.AdaptiveHorizons` that the environment draws the lengths
    of its episodes from, and plans them anew from time to time::

        horizons = AdaptiveHorizons(horizon=1000)
        venv = StaggeredResetVecEnv(make_vec_env("HalfCheetah-v5", n_envs=64), horizon_budget=horizons)
        model.learn(300_000, callback=AdaptiveHorizonCallback(horizons))

    Rewards are those before ``VecNormalize``; put it before callbacks that change rewards. Episodes that a gate has stopped
    are not recorded, since they were not stopped at random, and neither are those that began in a saved state. Of those that
    are longer than the horizon, because the environment's own limit is, the steps within it are.

    :param horizons: What the environment's ``horizon_budget`` is.
    :param replan_every: Steps between two plans. A plan with a horizon of 1000 takes about half a second.
    :param verbose: Verbosity level.
    :raises ValueError: if ``replan_every`` is not positive, or, when training starts, the environment does not draw from
        these horizons, or its wrapper has ``enabled=False``.
    """

    def __init__(self, horizons: AdaptiveHorizons, replan_every: int = 20_000, verbose: int = 0):
        super().__init__(verbose)
        if replan_every < 1:
            raise ValueError(f"replan_every={replan_every} must be at least 1 step")
        self.horizons = horizons
        self.replan_every = replan_every
        self._plans = Every(replan_every)

    def _init_callback(self) -> None:
        venv = unwrap_vec_wrapper(self.training_env, StaggeredResetVecEnv)
        if venv is None or venv.horizon_budget is not self.horizons:
            raise ValueError(
                "AdaptiveHorizonCallback records for the horizons that the environment draws from: "
                "StaggeredResetVecEnv(venv, horizon_budget=horizons), with the same object"
            )
        if not venv.enabled:
            raise ValueError(
                "The training environment's StaggeredResetVecEnv has enabled=False: it draws no lengths. If "
                "StaggeredResetCallback is to switch it on, list that callback first"
            )
        self._venv = venv
        self._normalizer = self.model.get_vec_normalize_env()

    def _on_training_start(self) -> None:
        require_top_level(self)
        gamma = getattr(self.model, "gamma", self.horizons.gamma)
        if gamma != self.horizons.gamma:
            warnings.warn(
                f"AdaptiveHorizons discounts with gamma={self.horizons.gamma}, the model with gamma={gamma}: pass "
                "gamma=model.gamma to AdaptiveHorizons.",
                UserWarning,
                stacklevel=2,
            )
        # Of an episode that is under way the first rewards are not known.
        self._rewards: list[list[float] | None] = [
            None if age else self._begun(slot) for slot, age in enumerate(self._venv.ages)
        ]
        self._plans.begin(self.num_timesteps)

    def _begun(self, slot: int) -> list[float] | None:
        """Rewards of an episode that begins, unless that is in a saved state: its steps are later ones."""
        return None if self._venv.began_in_state(slot) else []

    def _on_step(self) -> bool:
        # Those of VecNormalize change their scale from one episode to the next, which would count as variance.
        rewards = original_rewards(self.locals["rewards"], self._normalizer)
        for seen, reward in zip(self._rewards, rewards.tolist(), strict=True):
            if seen is not None:
                seen.append(reward)
        for slot in np.flatnonzero(self.locals["dones"]).tolist():
            reason = self.locals["infos"][slot]["sb3_budget"]["reason"]
            seen = self._rewards[slot]
            if seen is not None and reason != "stopped":
                self.horizons.record(seen[: self.horizons.horizon], terminated=reason == "terminated")
            self._rewards[slot] = self._begun(slot)
        return True

    def _on_rollout_end(self) -> None:
        if self._plans.is_due(self.num_timesteps):
            self.horizons.replan()
        self.logger.record("budget/planned_length", mean_length(self.horizons.survival))
