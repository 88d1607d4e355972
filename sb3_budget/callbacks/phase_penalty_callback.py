"""The callback that keeps the critic from leaning on one input, such as the time."""

from __future__ import annotations

from collections.abc import Iterable

import torch as th
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.torch_layers import FlattenExtractor
from torch import nn
from torch.utils.hooks import RemovableHandle

from sb3_budget.callbacks.requirements import require_on_policy


class PhasePenaltyCallback(BaseCallback):
    """
    Adds ``coef`` times the squared weights of chosen inputs of the critic to the loss.

    A critic that sees the time, by sb3-contrib's ``TimeFeatureWrapper``, can explain returns by the phase of a slot
    instead of by its state, and then errs at phases that it has not met in that state. The penalty acts on the first
    layer of the critic only: the policy and all other inputs learn as before.

    :param features: Indices of the inputs in the flattened observation; -1, the last one (default), is where
        ``TimeFeatureWrapper`` puts the time.
    :param coef: Factor of the sum of squares, not negative. 0 changes nothing.
    :param verbose: Verbosity level.
    :raises ValueError: if ``coef`` is negative, or, when training starts, if there is no such input, or the policy
        has no linear layer on flat observations.
    """

    model: OnPolicyAlgorithm

    def __init__(self, features: int | Iterable[int] = -1, coef: float = 1e-3, verbose: int = 0):
        super().__init__(verbose)
        if not coef >= 0.0:
            raise ValueError(f"coef={coef} must not be negative")
        self.features = [features] if isinstance(features, int) else list(features)
        self.coef = coef
        self._handle: RemovableHandle | None = None

    def _init_callback(self) -> None:
        require_on_policy(self)
        layer = self._first_layer()
        n_inputs = layer.in_features
        for feature in self.features:
            if not -n_inputs <= feature < n_inputs:
                raise ValueError(f"There is no input {feature} among the {n_inputs} of the critic")
        self._weight = layer.weight
        self._mask = th.zeros(n_inputs, device=layer.weight.device)
        self._mask[self.features] = 1.0

    def _first_layer(self) -> nn.Linear:
        policy = self.model.policy
        extractor = getattr(policy, "vf_features_extractor", None)
        if isinstance(extractor, FlattenExtractor):
            for module in (policy.mlp_extractor.value_net, policy.value_net):
                for layer in module.modules():
                    if isinstance(layer, nn.Linear):
                        return layer
        raise ValueError(
            "PhasePenaltyCallback needs a critic whose first layer is linear in the flat observation, as in MlpPolicy, not "
            f"{type(policy).__name__} on {type(extractor).__name__}"
        )

    def _on_training_start(self) -> None:
        if self.coef > 0.0:
            self._handle = self._weight.register_hook(self._add_gradient)

    def _add_gradient(self, gradient: th.Tensor) -> th.Tensor:
        return gradient + 2.0 * self.coef * self._mask * self._weight.detach()

    def _on_step(self) -> bool:
        return True

    def _on_training_end(self) -> None:
        if self._handle is not None:
            self._handle.remove()
            self._handle = None
