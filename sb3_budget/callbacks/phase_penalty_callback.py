"""The callback that keeps the critic from leaning on one input, such as the time."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from numbers import Integral

import torch as th
from gymnasium.spaces import flatdim
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.torch_layers import FlattenExtractor
from torch import nn
from torch.utils.hooks import RemovableHandle

from sb3_budget.callbacks.progress import present_training
from sb3_budget.callbacks.requirements import require_on_policy
from sb3_budget.policies.ensemble_actor_critic import CriticEnsemble


class PhasePenaltyCallback(BaseCallback):
    """
    Adds ``coef`` times the squared weights of chosen inputs of the critic to the loss.

    A critic that sees the time, by sb3-contrib's ``TimeFeatureWrapper``, can explain returns by the phase of a slot
    instead of by its state, and then errs at phases that it has not met in that state. The penalty acts on the first
    layer of the critic only, of each critic where the policy has several: the policy and all other inputs learn as before.

    :param features: Indices of the inputs in the flattened observation; -1, the last one (default), is where
        ``TimeFeatureWrapper`` puts the time.
    :param coef: Factor of the sum of squares, not negative. 0 changes nothing.
    :param verbose: Verbosity level.
    :raises ValueError: if ``coef`` is negative, or, when training starts, if there is no such input, or the policy
        has no critic that begins with a linear layer on flat observations.
    """

    model: OnPolicyAlgorithm

    def __init__(self, features: int | Iterable[int] = -1, coef: float = 1e-3, verbose: int = 0):
        super().__init__(verbose)
        if not coef >= 0.0:
            raise ValueError(f"coef={coef} must not be negative")
        self.features = [int(features)] if isinstance(features, Integral) else list(features)  # type: ignore[arg-type]  # int is one
        self.coef = coef
        self._handles: list[RemovableHandle] = []

    def _init_callback(self) -> None:
        require_on_policy(self)
        layers = self._first_layers()
        n_inputs = layers[0].in_features
        for feature in self.features:
            if not -n_inputs <= feature < n_inputs:
                raise ValueError(f"There is no input {feature} among the {n_inputs} of the critic")
        self._weights = [layer.weight for layer in layers]
        self._mask = th.zeros(n_inputs, device=self._weights[0].device)
        self._mask[self.features] = 1.0

    def _first_layers(self) -> list[nn.Linear]:
        policy = self.model.policy
        extractor = getattr(policy, "vf_features_extractor", None)
        if isinstance(extractor, FlattenExtractor):
            value_net: nn.Module = policy.value_net
            whole = nn.Sequential(policy.mlp_extractor.value_net, value_net)
            critics = value_net.critics if isinstance(value_net, CriticEnsemble) else [whole]
            firsts = [next((m for m in critic.modules() if isinstance(m, nn.Linear)), None) for critic in critics]
            # What a recurrent critic's first layer sees is the output of an LSTM.
            n_inputs = flatdim(policy.observation_space)
            layers = [layer for layer in firsts if layer is not None and layer.in_features == n_inputs]
            if len(layers) == len(critics):
                return layers
        raise ValueError(
            "PhasePenaltyCallback needs a critic whose first layer is linear in the flat observation, as in MlpPolicy, not "
            f"{type(policy).__name__} on {type(extractor).__name__}"
        )

    def _on_training_start(self) -> None:
        self._remove_hooks()
        self._is_present = present_training(self.model)
        if self.coef > 0.0:
            self._handles = [weight.register_hook(partial(self._add_gradient, weight)) for weight in self._weights]

    def _add_gradient(self, weight: th.Tensor, gradient: th.Tensor) -> th.Tensor:
        if not self._is_present():
            return gradient
        return gradient + 2.0 * self.coef * self._mask * weight.detach()

    def _on_step(self) -> bool:
        return True

    def _on_training_end(self) -> None:
        self._remove_hooks()

    def _remove_hooks(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []
