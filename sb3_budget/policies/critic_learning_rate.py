"""A learning rate of its own for the critic of an actor-critic policy."""

from __future__ import annotations

from typing import Any

import torch as th
from gymnasium import spaces
from stable_baselines3.common.policies import ActorCriticCnnPolicy, ActorCriticPolicy, MultiInputActorCriticPolicy
from stable_baselines3.common.type_aliases import Schedule

# Parts of a policy that only the value depends on: SB3's feed-forward policies and sb3-contrib's recurrent ones.
_CRITIC_PARTS = frozenset({"value_net", "vf_features_extractor", "lstm_critic", "critic"})


def split_parameters(policy: ActorCriticPolicy) -> tuple[list[th.nn.Parameter], list[th.nn.Parameter]]:
    """
    :param policy: A policy.
    :return: Parameters that the action depends on, and those that only the value does. Layers that both share are among the
        first.
    """
    actor: list[th.nn.Parameter] = []
    critic: list[th.nn.Parameter] = []
    for name, parameter in policy.named_parameters():
        (critic if _CRITIC_PARTS.intersection(name.split(".")) else actor).append(parameter)
    return actor, critic


def scale_critic_learning_rate(policy: ActorCriticPolicy, scale: float) -> None:
    """
    Replace the optimizer of a new policy by one that trains the critic at ``scale`` times the learning rate.

    SB3 writes the scheduled learning rate into every parameter group before each ``train()``. The critic's group
    therefore takes its rate from the actor's at each step. Layers that actor and critic share belong to the actor.
    Call it at the end of a policy's ``__init__``, so that loading a model makes the same parameter groups again.

    :param policy: A policy that has not been trained yet.
    :param scale: Learning rate of the critic divided by that of the actor, positive. 1 leaves the policy as it is.
    :raises ValueError: if the scale is not positive and finite, or if the policy has no part of its own for the critic.
    """
    if not 0.0 < scale < float("inf"):
        raise ValueError(f"critic_lr_scale={scale} must be positive and finite")
    if scale == 1.0:
        return
    actor, critic = split_parameters(policy)
    if not critic:
        raise ValueError(
            f"critic_lr_scale={scale} needs parameters that belong to the critic alone, but {type(policy).__name__} "
            f"has none under {sorted(_CRITIC_PARTS)}"
        )
    learning_rate = policy.optimizer.param_groups[0]["lr"]
    groups: Any = [{"params": actor}, {"params": critic, "lr": scale * learning_rate}]
    make_optimizer: Any = policy.optimizer_class
    policy.optimizer = make_optimizer(groups, lr=learning_rate, **policy.optimizer_kwargs)

    def follow_actor(optimizer: th.optim.Optimizer, args: Any, kwargs: Any) -> None:
        actor_group, critic_group = optimizer.param_groups
        critic_group["lr"] = scale * actor_group["lr"]

    policy.optimizer.register_step_pre_hook(follow_actor)


class CriticLearningRatePolicy(ActorCriticPolicy):
    """
    ``MlpPolicy`` whose critic has a learning rate of its own, for PPO, A2C and TRPO.

    A critic that decides which episodes are stopped, and completes their returns, feeds its own errors back. A lower
    rate makes it follow more slowly. Other policies get the same from :func:`scale_critic_learning_rate`.

    :param observation_space: Observation space.
    :param action_space: Action space.
    :param lr_schedule: Learning rate schedule of the actor.
    :param critic_lr_scale: Learning rate of the critic divided by that of the actor. 1 (default) is SB3's own policy.
    :param kwargs: Arguments of SB3's policy.
    :raises ValueError: if the scale is not positive and finite.
    """

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        lr_schedule: Schedule,
        *args: Any,
        critic_lr_scale: float = 1.0,
        **kwargs: Any,
    ):
        super().__init__(observation_space, action_space, lr_schedule, *args, **kwargs)
        self.critic_lr_scale = critic_lr_scale
        scale_critic_learning_rate(self, critic_lr_scale)

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return {**super()._get_constructor_parameters(), "critic_lr_scale": self.critic_lr_scale}


class CriticLearningRateCnnPolicy(CriticLearningRatePolicy, ActorCriticCnnPolicy):
    """:class:`CriticLearningRatePolicy` for images."""


class CriticLearningRateMultiInputPolicy(CriticLearningRatePolicy, MultiInputActorCriticPolicy):
    """:class:`CriticLearningRatePolicy` for ``Dict`` observations."""
