"""An optimizer for some parameters of a policy, beside the policy's own."""

from __future__ import annotations

from typing import Any

import torch as th
from stable_baselines3.common.policies import ActorCriticPolicy


class OwnOptimizer:
    """
    Of the class and with the options of the policy's optimizer, whose moments stay as they are.

    :param policy: The policy.
    :param parameters: Those of its parameters that are trained.
    :param max_grad_norm: Largest norm of a gradient. ``None`` for any.
    """

    def __init__(self, policy: ActorCriticPolicy, parameters: list[th.nn.Parameter], max_grad_norm: float | None):
        self._parameters, self.max_grad_norm = parameters, max_grad_norm
        make_optimizer: Any = policy.optimizer_class
        self._optimizer: th.optim.Optimizer = make_optimizer(parameters, **{"lr": 0.0, **policy.optimizer_kwargs})

    def step(self, loss: th.Tensor, learning_rate: float, allow_unused: bool = False) -> None:
        """
        :param loss: What is made smaller.
        :param learning_rate: Learning rate.
        :param allow_unused: Whether the loss may leave some of the parameters out, which then stay as they are.
        """
        self._optimizer.param_groups[0]["lr"] = learning_rate
        # Not backward(): it would leave gradients on layers that are not trained here.
        gradients = th.autograd.grad(loss, self._parameters, allow_unused=allow_unused)
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            parameter.grad = gradient
        if self.max_grad_norm is not None:
            th.nn.utils.clip_grad_norm_(self._parameters, self.max_grad_norm)
        self._optimizer.step()
        self._optimizer.zero_grad()

    def state_dict(self) -> dict[str, Any]:
        """:return: Moments of the optimizer, and what they are of."""
        return {"of": self._identity(), "moments": self._optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """
        :param state: What :meth:`state_dict` returned.
        :raises ValueError: if it is of another optimizer, or of parameters of other shapes.
        """
        if state["of"] != self._identity():
            (kind, shapes), (own_kind, own_shapes) = state["of"], self._identity()
            raise ValueError(
                f"What was kept is of {kind} with parameters of the shapes {shapes}, but this policy has {own_kind} and "
                f"{own_shapes}: a callback belongs to one policy, make a new one for another"
            )
        self._optimizer.load_state_dict(state["moments"])

    def _identity(self) -> tuple[str, list[tuple[int, ...]]]:
        return type(self._optimizer).__name__, [tuple(parameter.shape) for parameter in self._parameters]
