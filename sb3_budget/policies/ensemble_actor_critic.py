"""An actor with several critics, whose disagreement says how far the value can be trusted."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common.policies import ActorCriticCnnPolicy, BaseModel, MultiInputActorCriticPolicy
from stable_baselines3.common.type_aliases import PyTorchObs, Schedule
from torch import nn

from sb3_budget.policies.critic_learning_rate import CriticLearningRatePolicy


class CriticEnsemble(nn.Module):
    """
    Several critics in the place of the policy's ``value_net``.

    The value is their mean, except where a gradient is taken in training mode. There SB3 regresses one value per row on
    the return, and a mean would pull all critics by the error of the mean instead of each by its own. Each value is
    then that of one critic, drawn at random.

    :param critics: Critics, from features [n, features_dim] to values [n, 1].
    :param priors: As many fixed functions that are added to the critics, or none.
    :param prior_scale: Factor of the fixed functions.
    :param deal: ``"rows"``: each row of a minibatch trains one critic. ``"minibatches"``: each minibatch does.
    :param seed: Seed of the draws.
    """

    def __init__(self, critics: Sequence[nn.Module], priors: Sequence[nn.Module], prior_scale: float, deal: str, seed: int):
        super().__init__()
        self.critics = nn.ModuleList(critics)
        self.priors = nn.ModuleList(priors).requires_grad_(False)
        self.prior_scale = prior_scale
        self.deal = deal
        self.generator = th.Generator()
        self.generator.manual_seed(seed)
        self.last_heads: th.Tensor | None = None

    def forward(self, features: th.Tensor) -> th.Tensor:
        if self.training and th.is_grad_enabled():
            return self._dealt_values(features)
        heads = self.heads(features)
        self.last_heads = heads.detach()
        return heads.mean(dim=0)[:, None]

    def heads(self, features: th.Tensor) -> th.Tensor:
        """
        :param features: Features [n, features_dim].
        :return: Values by critic [n_critics, n].
        """
        return th.cat([self._value(head, features) for head in range(len(self.critics))], dim=1).T

    def _value(self, head: int, features: th.Tensor) -> th.Tensor:
        value = self.critics[head](features)
        return value + self.prior_scale * self.priors[head](features) if len(self.priors) else value

    def _dealt_values(self, features: th.Tensor) -> th.Tensor:
        n_critics = len(self.critics)
        if self.deal == "minibatches":
            return self._value(int(th.randint(n_critics, (1,), generator=self.generator)), features)
        owners = th.randint(n_critics, (len(features),), generator=self.generator)
        order = owners.argsort()
        sizes = owners.bincount(minlength=n_critics).tolist()
        parts = features[order.to(features.device)].split(sizes)
        values = th.cat([self._value(head, part) for head, part in enumerate(parts)])
        return values[order.argsort().to(features.device)]

    def get_extra_state(self) -> th.Tensor:
        """:return: State of the draws, saved with the weights."""
        return self.generator.get_state()

    def set_extra_state(self, state: th.Tensor) -> None:
        """
        :param state: What :meth:`get_extra_state` returned.
        """
        self.generator.set_state(state.cpu())


class EnsembleActorCriticPolicy(CriticLearningRatePolicy):
    """
    ``MlpPolicy`` with ``n_critics`` independent critics, for PPO, A2C and TRPO.

    Each critic has the layers of ``net_arch["vf"]`` for itself; only the features extractor is shared. SB3 sees their
    mean wherever it asks for a value outside of a gradient. After each rollout step, ``last_value_heads`` has the single
    values of the observations that were acted on [n_critics, n_envs].

    In training each row of a minibatch belongs to one critic, drawn at random, so that every critic is trained on its own
    share of the data in every minibatch (the bootstrap of https://arxiv.org/abs/1602.04621, without replacement). With
    ``deal="minibatches"`` each minibatch belongs to one critic: the critics differ more, and learn ``n_critics`` times
    more slowly.

    With ``prior_scale`` above 0 a fixed random network is added to each critic, so that the critics go on disagreeing
    where there is no data (randomised prior functions, https://arxiv.org/abs/1806.03335).

    :param observation_space: Observation space.
    :param action_space: Action space.
    :param lr_schedule: Learning rate schedule.
    :param n_critics: Number of critics. 1 is SB3's own policy.
    :param deal: ``"rows"`` (default) or ``"minibatches"``: what is dealt out to the critics in training.
    :param prior_scale: Factor of the fixed random networks, 0 (default) for none.
    :param kwargs: Arguments of :class:`~sb3_budget.policies.critic_learning_rate.CriticLearningRatePolicy`, among them
        ``critic_lr_scale``, and of SB3's policy.
    :raises ValueError: if an argument is out of range.
    """

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        lr_schedule: Schedule,
        *args: Any,
        n_critics: int = 5,
        deal: str = "rows",
        prior_scale: float = 0.0,
        **kwargs: Any,
    ):
        if n_critics < 1:
            raise ValueError(f"n_critics={n_critics} must be at least 1")
        if deal not in ("rows", "minibatches"):
            raise ValueError(f"deal={deal!r} is neither 'rows' nor 'minibatches'")
        if not 0.0 <= prior_scale < float("inf"):
            raise ValueError(f"prior_scale={prior_scale} must be finite and not negative")
        if n_critics == 1 and prior_scale > 0.0:
            raise ValueError(f"prior_scale={prior_scale} needs at least 2 critics that can disagree, but n_critics=1")
        self.n_critics = n_critics
        self.deal = deal
        self.prior_scale = prior_scale
        self.last_value_heads: th.Tensor | None = None
        super().__init__(observation_space, action_space, lr_schedule, *args, **kwargs)

    def _build(self, lr_schedule: Schedule) -> None:
        super()._build(lr_schedule)
        if self.n_critics == 1:
            return
        first = nn.Sequential(*self.mlp_extractor.value_net, self.value_net)
        others = [self._new_critic(first) for _ in range(self.n_critics - 1)]
        priors = [self._new_critic(first) for _ in range(self.n_critics)] if self.prior_scale > 0.0 else []
        seed = int(th.randint(2**31, (1,)))
        # The critics start at the features: what was the critic's part of the extractor hands them through.
        self.mlp_extractor.value_net = nn.Sequential()
        self.mlp_extractor.latent_dim_vf = self.features_dim
        ensemble: Any = CriticEnsemble([first, *others], priors, self.prior_scale, self.deal, seed)
        self.value_net = ensemble
        make_optimizer: Any = self.optimizer_class
        self.optimizer = make_optimizer(self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs)

    def _new_critic(self, critic: nn.Sequential) -> nn.Sequential:
        """
        :param critic: A critic.
        :return: One of the same layers, initialised anew as SB3 does.
        """
        fresh = copy.deepcopy(critic)
        for module in fresh.modules():
            if isinstance(module, nn.Linear):
                module.reset_parameters()
        if self.ortho_init:
            fresh[:-1].apply(partial(self.init_weights, gain=np.sqrt(2)))
            self.init_weights(fresh[-1], gain=1)
        return fresh

    def forward(self, obs: th.Tensor, deterministic: bool = False) -> tuple[th.Tensor, th.Tensor, th.Tensor]:
        actions, values, log_prob = super().forward(obs, deterministic)
        ensemble: nn.Module = self.value_net
        self.last_value_heads = ensemble.last_heads if isinstance(ensemble, CriticEnsemble) else values.detach().T
        return actions, values, log_prob

    def predict_value_heads(self, obs: PyTorchObs) -> th.Tensor:
        """
        :param obs: Observations.
        :return: Their values by critic [n_critics, n].
        """
        features = BaseModel.extract_features(self, obs, self.vf_features_extractor)
        latent_vf = self.mlp_extractor.forward_critic(features)
        ensemble: nn.Module = self.value_net
        return ensemble.heads(latent_vf) if isinstance(ensemble, CriticEnsemble) else ensemble(latent_vf).T

    def _get_constructor_parameters(self) -> dict[str, Any]:
        own = {"n_critics": self.n_critics, "deal": self.deal, "prior_scale": self.prior_scale}
        return {**super()._get_constructor_parameters(), **own}


class EnsembleActorCriticCnnPolicy(EnsembleActorCriticPolicy, ActorCriticCnnPolicy):
    """:class:`EnsembleActorCriticPolicy` for images."""


class EnsembleMultiInputActorCriticPolicy(EnsembleActorCriticPolicy, MultiInputActorCriticPolicy):
    """:class:`EnsembleActorCriticPolicy` for ``Dict`` observations."""
