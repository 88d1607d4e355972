"""What completes the return of an episode that was stopped."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch as th
from numpy.typing import NDArray
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

from sb3_budget.policies.ensemble_actor_critic import EnsembleActorCriticPolicy
from sb3_budget.policies.target_critic import TargetCritic

RULES = ("critic", "target", "heads", "none")


class Bootstrap:
    """
    Replaces Stable-Baselines3's own bootstrap of stopped episodes, where asked to.

    The algorithm adds :math:`\\gamma V(s)` to the last reward of a truncated episode right after the callbacks have
    seen the step. Other rules add their own value first and withdraw the truncation flag.

    :param rule: ``"critic"``, ``"target"``, ``"heads"`` or ``"none"``.
    :param tau: Polyak coefficient of ``"target"``, per update.
    :param gate_head: The head that ``"heads"`` leaves out.
    :raises ValueError: for another rule, or ``"heads"`` without a head to leave out.
    """

    def __init__(self, rule: str, tau: float, gate_head: int | None):
        if rule not in RULES:
            raise ValueError(f"bootstrap={rule!r} is not one of {RULES}")
        if not 0.0 < tau <= 1.0:
            raise ValueError(f"tau={tau} must lie in (0, 1]")
        if rule == "heads" and gate_head is None:
            raise ValueError("bootstrap='heads' completes returns with the heads that do not judge: set gate_head")
        self.rule = rule
        self.tau = tau
        self.gate_head = gate_head
        self._target: TargetCritic | None = None
        self._loaded: dict[str, Any] | None = None
        self._n_updates = 0

    def set_up(self, model: OnPolicyAlgorithm) -> None:
        """
        :param model: The algorithm, about to train.
        :raises ValueError: if a head is asked for that its policy does not have.
        """
        if self.gate_head is not None:
            n_critics = getattr(model.policy, "n_critics", 1)
            if n_critics == 1 or not 0 <= self.gate_head < n_critics:
                raise ValueError(f"gate_head={self.gate_head} needs a policy with more critics than its {n_critics}")
        if self.rule == "target" and (self._target is None or self._target.policy is not model.policy):
            self._target = TargetCritic(model.policy, self.tau)
            self._n_updates = model._n_updates
        if self._target is not None and self._loaded is not None:
            self._target.load_state_dict(self._loaded)
            self._loaded = None

    def target_state(self) -> dict[str, Any] | None:
        """
        :return: Weights of the target critic, ``None`` without one.
        """
        return None if self._target is None else self._target.state_dict()

    def load_target_state(self, state: dict[str, Any] | None) -> None:
        """
        :param state: What :meth:`target_state` returned; it takes effect in :meth:`set_up`.
        """
        self._loaded = state

    def update(self, model: OnPolicyAlgorithm) -> None:
        """
        Let the target follow the critic, once per update since the last call.

        :param model: The algorithm.
        """
        if self._target is not None:
            self._target.update(model._n_updates - self._n_updates)
            self._n_updates = model._n_updates

    def complete(self, model: OnPolicyAlgorithm, rewards: NDArray[np.floating], info: dict[str, Any], slot: int) -> None:
        """
        :param model: The algorithm.
        :param rewards: The step's rewards, shape (n_envs,); changed in place.
        :param info: The slot's ``info``; changed in place.
        :param slot: The stopped slot.
        """
        if self.rule == "critic":
            return
        # The algorithm must not add its own value on top.
        info["TimeLimit.truncated"] = False
        if self.rule == "none":
            return
        rewards[slot] += model.gamma * self._value(model, info["terminal_observation"])

    def _value(self, model: OnPolicyAlgorithm, obs: Any) -> float:
        with th.no_grad():
            tensor, _ = model.policy.obs_to_tensor(obs)
            if self.rule == "target":
                assert self._target is not None
                return float(self._target.predict_values(tensor))
            heads = cast(EnsembleActorCriticPolicy, model.policy).predict_value_heads(tensor).flatten()
            return float((heads.sum() - heads[self.gate_head]) / (len(heads) - 1))

    def critic_value(self, model: OnPolicyAlgorithm, obs: Any, slot: int, lstm_states: Any = None) -> float:
        """
        :param model: The algorithm.
        :param obs: The slot's last observation, as the algorithm sees it.
        :param slot: The slot.
        :param lstm_states: Hidden states of a recurrent policy after the step, of all slots.
        :return: The algorithm's own value of it.
        """
        with th.no_grad():
            tensor, _ = model.policy.obs_to_tensor(obs)
            if lstm_states is None:
                return float(model.policy.predict_values(tensor))
            critic_state = tuple(state[:, slot : slot + 1, :].contiguous() for state in lstm_states.vf)
            no_start = th.zeros(1, device=model.device)
            return float(cast(Any, model.policy).predict_values(tensor, critic_state, no_start))
