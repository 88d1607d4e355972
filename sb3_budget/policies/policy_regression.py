"""Trains the actor of an actor-critic policy on advantages of earlier policies."""

from __future__ import annotations

from typing import Any

import torch as th
from gymnasium import spaces
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.type_aliases import PyTorchObs

from sb3_budget.policies.critic_learning_rate import split_parameters
from sb3_budget.policies.own_optimizer import OwnOptimizer


class PolicyRegression:
    """
    PPO's clipped objective (Schulman et al., 2017, https://arxiv.org/abs/1707.06347) with an optimizer of its own.

    Parameters that belong to the critic alone never change, nor do those that are frozen.

    :param policy: The policy.
    :param clip_range: Ratios count up to so far from 1.
    :param max_grad_norm: Largest norm of a gradient. ``None`` for any.
    :raises ValueError: if all parameters of the actor are frozen.
    """

    def __init__(self, policy: ActorCriticPolicy, clip_range: float, max_grad_norm: float | None = None):
        self._policy, self.clip_range = policy, clip_range
        trained = [parameter for parameter in split_parameters(policy)[0] if parameter.requires_grad]
        if not trained:
            raise ValueError(f"{type(policy).__name__} has no parameters of the actor to train: all of them are frozen")
        self._optimizer = OwnOptimizer(policy, trained, max_grad_norm)

    def step(
        self,
        observations: PyTorchObs,
        actions: th.Tensor,
        old_log_prob: th.Tensor,
        advantages: th.Tensor,
        learning_rate: float,
    ) -> th.Tensor:
        """
        One step of the optimizer.

        :param observations: Observations of n rows, at least 2.
        :param actions: Actions, shape (n, ...).
        :param old_log_prob: Their log-probability when they were taken, shape (n,).
        :param advantages: Their advantages then, shape (n,). They are normalised over the rows.
        :param learning_rate: Learning rate.
        :return: Ratio of the present probability of each action to the old one, shape (n,).
        """
        if isinstance(self._policy.action_space, spaces.Discrete):
            actions = actions.long().flatten()
        _, log_prob, _ = self._policy.evaluate_actions(observations, actions)
        ratios = th.exp(log_prob - old_log_prob)
        scaled = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        clipped = th.clamp(ratios, 1.0 - self.clip_range, 1.0 + self.clip_range)
        loss = -th.min(scaled * ratios, scaled * clipped).mean()
        self._optimizer.step(loss, learning_rate, allow_unused=True)
        return ratios.detach()

    def state_dict(self) -> dict[str, Any]:
        """:return: Moments of the optimizer."""
        return {"optimizer": self._optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """
        :param state: What :meth:`state_dict` returned.
        """
        self._optimizer.load_state_dict(state["optimizer"])
