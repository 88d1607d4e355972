"""When a gate may stop episodes."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.utils import explained_variance

from sb3_budget.core.survival import Survival

#: What is known of the ends of episodes is as old as so many full ones are long.
REMEMBERED_EPISODES = 32


class StopConditions:
    """Warm-up, critic and the environment's own ends, as :class:`~sb3_budget.SelectiveRolloutCallback` says."""

    def __init__(self) -> None:
        self._explained_variance = -np.inf
        self._survival: Survival | None = None
        self._ages: list[NDArray[np.int64]] = []
        self._terminated: list[NDArray[np.bool_]] = []
        self._enough_survive = True
        self._warned = False

    def start(self, warmup_steps: int, min_explained_variance: float | None, min_survival: float, horizon: int | None) -> None:
        """
        When a training starts.

        :param warmup_steps: No stops before so many steps.
        :param min_explained_variance: What the critic must explain of a rollout's returns.
        :param min_survival: Share of the episodes that would have to reach their time limit.
        :param horizon: Length of a full episode [steps], ``None`` if nothing limits it.
        """
        self._warmup_steps = warmup_steps
        self._min_explained_variance = min_explained_variance
        self._min_survival = min_survival
        # Of a rollout that was broken off.
        self._ages, self._terminated = [], []
        if self._min_survival == 0.0 or horizon is None:
            self._survival = None
        elif self._survival is None or self._survival.horizon != horizon:
            self._survival = Survival(horizon, REMEMBERED_EPISODES * horizon)

    def start_rollout(self, num_timesteps: int) -> None:
        """
        :param num_timesteps: Steps that were trained.
        """
        self._enough_survive = self._survival is None or self._survival.share >= self._min_survival
        if self._enough_survive or num_timesteps < self._warmup_steps or self._warned:
            return
        self._warned = True
        assert self._survival is not None
        warnings.warn(
            f"The gate waits: as episodes end now, {self._survival.share:.0%} of them would reach their limit of "
            f"{self._survival.horizon} steps, so that the environment itself ends the hopeless ones. Stops would hide "
            f"these ends from the policy. They begin once {self._min_survival:.0%} would; min_survival=0 stops episodes "
            "anyway",
            UserWarning,
            stacklevel=2,
        )

    def met(self, num_timesteps: int) -> bool:
        """
        :param num_timesteps: Steps that were trained.
        :return: Whether the gate may stop episodes.
        """
        if num_timesteps < self._warmup_steps or not self._enough_survive:
            return False
        return self._min_explained_variance is None or self._explained_variance >= self._min_explained_variance

    def add(self, ages: NDArray[np.int64], dones: NDArray[np.bool_], infos: Any) -> None:
        """
        After a step.

        :param ages: Steps that each episode had taken before it, shape (n_envs,).
        :param dones: Slots whose episode ended with it, shape (n_envs,).
        :param infos: The slots' ``info``.
        """
        if self._survival is None:
            return
        terminated = np.zeros(len(dones), dtype=bool)
        if np.count_nonzero(dones):
            for slot in np.flatnonzero(dones).tolist():
                terminated[slot] = infos[slot]["sb3_budget"]["reason"] == "terminated"
        # Counted at the end of the rollout, at once: step by step it would take half a percent of the time of collecting.
        self._ages.append(ages.copy())
        self._terminated.append(terminated)

    def end_rollout(self, buffer: RolloutBuffer) -> dict[str, float]:
        """
        :param buffer: The rollout with its returns.
        :return: What to log, by key.
        """
        if self._min_explained_variance is not None:
            self._explained_variance = explained_variance(buffer.values.flatten(), buffer.returns.flatten())
        if self._survival is None:
            return {}
        self._survival.add(np.concatenate(self._ages), np.concatenate(self._terminated))
        self._ages, self._terminated = [], []
        return {"budget/survival": self._survival.share}

    def state(self) -> tuple[Any, ...]:
        """
        :return: What has been learnt.
        """
        return self._explained_variance, self._survival

    def load_state(self, state: tuple[Any, ...]) -> None:
        """
        :param state: What :meth:`state` returned.
        """
        self._explained_variance, self._survival = state
