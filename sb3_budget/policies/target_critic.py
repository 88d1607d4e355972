"""A critic that follows the trained one slowly."""

from __future__ import annotations

import copy
from typing import Any

import torch as th
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.type_aliases import PyTorchObs
from stable_baselines3.common.utils import polyak_update


class TargetCritic:
    """
    Polyak average of a policy, for values that do not move with each update.

    After each update :math:`\\theta' \\leftarrow (1 - \\tau)\\,\\theta' + \\tau\\,\\theta`. The average is over all
    parameters, since actor and critic may share layers. Buffers, such as the statistics of batch normalisation, are
    copied.

    :param policy: Policy to follow. It is not changed.
    :param tau: Share of the policy in ``(0, 1]`` that one update brings in. 1 copies it.
    :raises ValueError: if ``tau`` is out of range, or if the policy is recurrent: its values depend on hidden states
        that an average has not computed.
    """

    def __init__(self, policy: ActorCriticPolicy, tau: float = 0.005):
        if not 0.0 < tau <= 1.0:
            raise ValueError(f"tau={tau} must lie in (0, 1]")
        if hasattr(policy, "lstm_actor"):
            raise ValueError(f"TargetCritic cannot follow {type(policy).__name__}: its values depend on hidden states")
        self.tau = tau
        self.policy = policy
        # Values need neither the optimizer nor the action distribution; the latter may hold tensors of a graph,
        # which cannot be copied.
        left_out = (policy.optimizer, policy.action_dist)
        self.target = copy.deepcopy(policy, {id(part): part for part in left_out})
        del self.target.optimizer, self.target.action_dist
        self.target.requires_grad_(False)
        self.target.set_training_mode(False)

    def predict_values(self, obs: PyTorchObs) -> th.Tensor:
        """
        :param obs: Observations, as the policy's ``obs_to_tensor`` makes them.
        :return: Their values [n, 1], without a graph.
        """
        with th.no_grad():
            return self.target.predict_values(obs)

    def update(self, n_updates: int = 1) -> None:
        """
        Follow the policy by the share :math:`1 - (1 - \\tau)^n`, as if it had been constant for ``n_updates`` updates.

        :param n_updates: Number of updates since the last call.
        :raises ValueError: if it is negative.
        """
        if n_updates < 0:
            raise ValueError(f"n_updates={n_updates} must not be negative")
        if n_updates == 0:
            return
        polyak_update(self.policy.parameters(), self.target.parameters(), 1.0 - (1.0 - self.tau) ** n_updates)
        for target_buffer, buffer in zip(self.target.buffers(), self.policy.buffers(), strict=True):
            target_buffer.copy_(buffer)

    def state_dict(self) -> dict[str, Any]:
        """:return: Weights of the average."""
        return self.target.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """
        :param state: What :meth:`state_dict` returned.
        """
        self.target.load_state_dict(state)
