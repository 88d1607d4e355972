"""Trains the actor of an actor-critic policy on advantages of earlier policies."""

from __future__ import annotations

from typing import Any

import torch as th
from gymnasium import spaces
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.type_aliases import PyTorchObs

from sb3_budget.policies.critic_learning_rate import split_parameters


class PolicyRegression:
    """
    PPO's clipped objective (Schulman et al., 2017, https://arxiv.org/abs/1707.06347) with an optimizer of its own.

    Parameters that belong to the critic alone never change.

    :param policy: The policy.
    :param clip_range: Ratios count up to so far from 1.
    :param max_grad_norm: Largest norm of a gradient. ``None`` for any.
    """

    def __init__(self, policy: ActorCriticPolicy, clip_range: float, max_grad_norm: float | None = None):
        self._policy, self.clip_range, self.max_grad_norm = policy, clip_range, max_grad_norm
        self._parameters, _ = split_parameters(policy)
        make_optimizer: Any = policy.optimizer_class
        self._optimizer = make_optimizer(self._parameters, **{"lr": 0.0, **policy.optimizer_kwargs})

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
        self._optimizer.param_groups[0]["lr"] = learning_rate
        gradients = th.autograd.grad(loss, self._parameters, allow_unused=True)
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            parameter.grad = gradient
        if self.max_grad_norm is not None:
            th.nn.utils.clip_grad_norm_(self._parameters, self.max_grad_norm)
        self._optimizer.step()
        self._optimizer.zero_grad()
        return ratios.detach()

    def state_dict(self) -> dict[str, Any]:
        """:return: Moments of the optimizer."""
        return {"optimizer": self._optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """
        :param state: What :meth:`state_dict` returned.
        """
        self._optimizer.load_state_dict(state["optimizer"])
