"""At which ages a gate looks at an episode."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sb3_budget.callbacks.requirements import as_steps
from sb3_budget.vec_env.episode_control_vec_env import EpisodeControlVecEnv
from sb3_budget.vec_env.horizon import find_horizon

#: Least steps between two looks, and before the first, where they are given as fractions of the horizon. An episode
#: that begins in a poor state needs time to leave it: gated from step 8 on, a run on Pendulum-v1 learnt nothing.
LEAST_INTERVAL, LEAST_GRACE = 20, 40
#: A grace that is a fraction is also, at least, this share of the ``1 / (1 - gamma)`` steps that the discount factor looks
#: ahead. Cut after 90 steps, episodes of Swimmer-v5 taught less at gamma 0.9999 than whole ones, whoever cut them.
GRACE_OF_DISCOUNT = 0.4


class LookTimes:
    """
    See :class:`~sb3_budget.SelectiveRolloutCallback` for the arguments that it shares.

    :param venv: The wrapper that controls the episodes.
    :param check_interval: Steps between two looks, or a share of the horizon.
    :param grace: Age of the first look [steps], or a share of the horizon.
    :param horizon: Length of a full episode [steps]; found from the environment by default.
    :param gamma: Discount factor.
    :raises ValueError: if a share is asked for and nothing tells of what.
    """

    def __init__(
        self, venv: EpisodeControlVecEnv, check_interval: int | float, grace: int | float, horizon: int | None, gamma: float
    ):
        self._venv = venv
        #: Length of a full episode [steps], as far as it was asked for.
        self.horizon = horizon
        self.interval = self._steps(check_interval, LEAST_INTERVAL)
        self.grace = max(1, self._steps(grace, LEAST_GRACE))
        #: Why nothing will be looked at, if that is so.
        self.silence: str | None = None
        if isinstance(grace, float):
            self._follow_discount(grace, gamma)

    def find_horizon(self) -> int:
        """
        :return: Length of a full episode [steps].
        :raises ValueError: if nothing tells.
        """
        if self.horizon is None:
            self.horizon = getattr(self._venv, "horizon", None) or find_horizon(self._venv.venv, None)
        return self.horizon

    def due(self, ages: NDArray[np.int64]) -> NDArray[np.bool_]:
        """
        :param ages: Steps that each episode has taken, shape (n_envs,).
        :return: Those that are to be looked at, shape (n_envs,).
        """
        return (ages >= self.grace) & (ages % self.interval == 0)

    def _steps(self, value: int | float, least: int) -> int:
        return max(least, as_steps(value, self.find_horizon())) if isinstance(value, float) else value

    def _follow_discount(self, share: float, gamma: float) -> None:
        horizon, ahead = self.find_horizon(), 1.0 / max(1.0 - gamma, 1e-9)
        self.grace = max(self.grace, round(GRACE_OF_DISCOUNT * ahead))
        if self.grace >= horizon:
            self.silence = (
                f"The gate will judge nothing: grace={share} stands for at least {LEAST_GRACE} steps and for "
                f"{GRACE_OF_DISCOUNT} of the {ahead:.0f} steps that gamma={gamma} looks ahead, and so an episode "
                f"of at most {horizon} steps is not judged before step {self.grace}. Give grace in steps to stop them anyway"
            )
