"""What a gate is shown at each step."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch as th
from numpy.typing import NDArray
from stable_baselines3.common.distributions import DiagGaussianDistribution
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

from sb3_budget.callbacks.progress import progress_remaining
from sb3_budget.core.episodes import EpisodeTracker
from sb3_budget.core.scores import RolloutView
from sb3_budget.vec_env.episode_control_vec_env import EpisodeControlVecEnv
from sb3_budget.vec_env.group_starts import GroupStarts


class Viewer:
    """
    Puts the views of one training together. What does not change between steps is asked once.

    :param model: The algorithm.
    :param venv: The wrapper that controls its episodes; groups are those of its start sampler.
    """

    def __init__(self, model: OnPolicyAlgorithm, venv: EpisodeControlVecEnv):
        self._model = model
        starts = venv.start_sampler
        self._starts = starts if isinstance(starts, GroupStarts) and starts.group_size > 1 else None
        self.group_size = 1 if self._starts is None else self._starts.group_size
        # A module that lacks an attribute takes its time to say so.
        self.has_heads = hasattr(model.policy, "last_value_heads")
        self._action_std: NDArray[np.float64] | None = None

    def start_rollout(self) -> None:
        """The policy stays the same throughout a rollout, and so does the noise of a plain Gaussian."""
        if isinstance(self._model.policy.action_dist, DiagGaussianDistribution):
            std = self._model.policy.log_std.exp().numpy(force=True).astype(np.float64)
            self._action_std = np.broadcast_to(std, (self._model.n_envs, len(std)))

    def value_heads(self) -> NDArray[np.float64] | None:
        """
        :return: The present states' values by each critic of an ensemble, shape (n_critics, n_envs); else ``None``.
        """
        if not self.has_heads:
            return None
        heads: th.Tensor = self._model.policy.last_value_heads  # type: ignore[assignment]  # a policy with several critics
        return heads.numpy(force=True).astype(np.float64)

    def view(
        self,
        locals_: dict[str, Any],
        infos: Any,
        tracker: EpisodeTracker,
        values: NDArray[np.float64],
        heads: NDArray[np.float64] | None,
        due: NDArray[np.bool_],
        look: NDArray[np.bool_],
        active: bool,
        rng: np.random.Generator,
    ) -> RolloutView:
        """
        :param locals_: The local variables of ``collect_rollouts`` after the step.
        :param infos: The ``info`` of the step before; ``None`` where that was not seen, and then no slot is judged.
        :param tracker: Sums over the present episodes before the step.
        :param values: Values that judge.
        :param heads: Values of all critics.
        :param due: See :class:`~sb3_budget.RolloutView`, like all others.
        :param look: Slots that are judged.
        :param active: Whether stops are carried out.
        :param rng: The callback's generator.
        :return: The view.
        """
        if infos is None:
            infos, look = [{}] * len(look), np.zeros_like(look)
        # Slots that are done have been given their next start already.
        episodes, members = (None, None) if self._starts is None else self._starts.before(locals_["dones"])
        return RolloutView(
            values=values,
            returns=tracker.returns,
            discounts=tracker.discounts,
            initial_values=tracker.initial_values,
            lengths=tracker.lengths,
            look=look,
            value_heads=heads,
            obs=self._model._last_obs,
            infos=infos,
            progress_remaining=progress_remaining(self._model),
            rng=rng,
            group_size=self.group_size,
            episodes=episodes,
            members=members,
            actions=locals_["actions"],
            action_std=self._action_std,
            due=due,
            active=active,
        )
