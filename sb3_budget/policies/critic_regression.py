"""Trains the critic of an actor-critic policy on single transitions, and leaves its actor as it is."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch as th
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.type_aliases import PyTorchObs

from sb3_budget.policies.critic_learning_rate import split_parameters
from sb3_budget.policies.own_optimizer import OwnOptimizer
from sb3_budget.policies.target_critic import TargetCritic


class Transitions(NamedTuple):
    """
    Single steps, as the policy sees them.

    :param observations: Observations of n rows.
    :param actions: Actions as the policy gave them, before they were clipped, shape (n, ...).
    :param rewards: Rewards, shape (n,).
    :param dones: 1 where the episode terminated, shape (n,).
    :param next_observations: Observations after the step.
    """

    observations: PyTorchObs
    actions: th.Tensor
    rewards: th.Tensor
    dones: th.Tensor
    next_observations: PyTorchObs


class CriticRegression:
    """
    Regression of values on one-step targets, with an optimizer of its own.

    The loss of n rows is :math:`\\sum_i w_i\\,(V(s_i) - y_i)^2 / \\sum_i w_i` with
    :math:`y = r + \\gamma\\,(1 - d)\\,V'(s')`. Where outcomes are deterministic and each action of a state is one row, weights
    :math:`w = \\pi(a|s)` make its minimum the expected backup :math:`\\sum_a \\pi(a|s)\\,y(s, a)` of the present policy (van
    Seijen et al., 2009, https://doi.org/10.1109/ADPRL.2009.4927542); equal weights make it that of a policy that takes all of
    them equally often.

    Parameters that actions depend on never change, those of a shared features extractor included.

    :param policy: The policy.
    :param gamma: Discount factor.
    :param tau: Share of the critic that :math:`V'` takes over after each step, see
        :class:`~sb3_budget.policies.target_critic.TargetCritic`. With 1 (default) it is the critic itself.
    :param by_policy: Whether rows weigh :math:`\\pi(a|s)`, else 1.
    :param max_grad_norm: Largest norm of a gradient. ``None`` for any.
    :raises ValueError: if ``tau`` is out of range, the policy is recurrent, or has no part of its own for the critic.
    """

    def __init__(
        self,
        policy: ActorCriticPolicy,
        gamma: float,
        tau: float = 1.0,
        by_policy: bool = True,
        max_grad_norm: float | None = None,
    ):
        _, critic = split_parameters(policy)
        self._parameters = [parameter for parameter in critic if parameter.requires_grad]
        if not self._parameters:
            raise ValueError(f"{type(policy).__name__} has no parameters that belong to the critic alone")
        if hasattr(policy, "lstm_actor"):
            raise ValueError(f"Values of {type(policy).__name__} depend on hidden states, which single transitions lack")
        self._policy, self.gamma, self.by_policy = policy, gamma, by_policy
        self._target = None if tau == 1.0 else TargetCritic(policy, tau)
        self._optimizer = OwnOptimizer(policy, self._parameters, max_grad_norm)

    def errors(self, batch: Transitions) -> th.Tensor:
        """
        :param batch: n transitions.
        :return: Target less value of each, shape (n,), without a graph.
        """
        with th.no_grad():
            return self._targets(batch) - self._policy.predict_values(batch.observations).flatten()

    def weights(self, batch: Transitions) -> th.Tensor:
        """
        :param batch: n transitions.
        :return: Weight of each up to a common factor, shape (n,), without a graph.
        """
        if not self.by_policy:
            return th.ones_like(batch.rewards)
        with th.no_grad():
            log_prob = self._policy.get_distribution(batch.observations).log_prob(batch.actions)
        return th.exp(log_prob - log_prob.max())

    def step(self, batch: Transitions, learning_rate: float) -> th.Tensor:
        """
        One step of the optimizer.

        :param batch: n transitions.
        :param learning_rate: Learning rate.
        :return: Target less value of each row before the step, shape (n,).
        """
        loss, errors = self._loss(batch)
        self._optimizer.step(loss, learning_rate)
        if self._target is not None:
            self._target.update()
        return errors

    def gradient(self, batch: Transitions) -> th.Tensor:
        """
        :param batch: n transitions.
        :return: Gradient of their loss in one vector.
        """
        loss, _ = self._loss(batch)
        return th.cat([gradient.flatten() for gradient in th.autograd.grad(loss, self._parameters)])

    def _targets(self, batch: Transitions) -> th.Tensor:
        critic = self._policy if self._target is None else self._target
        with th.no_grad():
            future = critic.predict_values(batch.next_observations).flatten()
        return batch.rewards + self.gamma * (1.0 - batch.dones) * future

    def _loss(self, batch: Transitions) -> tuple[th.Tensor, th.Tensor]:
        targets, weights = self._targets(batch), self.weights(batch)
        # Several critics take a row each in training mode; layers below must not learn batch statistics from these rows.
        self._policy.value_net.train()
        errors = targets - self._policy.predict_values(batch.observations).flatten()
        self._policy.value_net.eval()
        return (weights * errors**2).sum() / weights.sum(), errors.detach()

    def state_dict(self) -> dict[str, Any]:
        """:return: What is not in the policy: moments of the optimizer, and the target."""
        target = None if self._target is None else self._target.state_dict()
        return {"optimizer": self._optimizer.state_dict(), "target": target}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """
        :param state: What :meth:`state_dict` returned.
        """
        self._optimizer.load_state_dict(state["optimizer"])
        if self._target is not None and state["target"] is not None:
            self._target.load_state_dict(state["target"])
