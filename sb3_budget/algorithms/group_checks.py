"""What GRPO asks of an environment, a policy, and of the groups themselves."""

from __future__ import annotations

import math
import warnings
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np
from stable_baselines3.common.distributions import DiagGaussianDistribution
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper, unwrap_vec_wrapper

from sb3_budget.buffers.finished_group_buffer import FinishedGroupBufferMixin
from sb3_budget.buffers.group_rollout_buffer import GroupBufferMixin
from sb3_budget.vec_env.episode_control_vec_env import EpisodeControlVecEnv
from sb3_budget.vec_env.staggered_reset_vec_env import StaggeredResetVecEnv
from sb3_budget.vec_env.start_pool import StartPool

if TYPE_CHECKING:
    from sb3_budget.algorithms.grpo import GRPO

#: Advantages that need no critic, but whole episodes.
WHOLE_EPISODES = tuple(FinishedGroupBufferMixin.ADVANTAGES)
ADVANTAGES = (*GroupBufferMixin.ADVANTAGES, *WHOLE_EPISODES)
#: Groups are judged over so many rollouts, and do little below these numbers.
ROLLOUTS, LEAST_COEFFICIENT, LEAST_PEERS = 20, 0.1, 0.5
#: A pool should hear of half of the groups, looked at once so many have finished.
GROUPS, LEAST_TOLD = 20, 0.5


def controlled(venv: VecEnv) -> VecEnv:
    """
    :param venv: Environments, or a chain of wrappers around them.
    :return: The same with an :class:`~sb3_budget.EpisodeControlVecEnv`.
    :raises ValueError: if it cannot be added, or is one that cannot serve.
    """
    control = unwrap_vec_wrapper(venv, EpisodeControlVecEnv)
    if control is None and isinstance(venv, VecEnvWrapper):
        raise ValueError(
            "GRPO decides where episodes start, which EpisodeControlVecEnv does directly on the base VecEnv: write "
            f"{type(venv).__name__}(EpisodeControlVecEnv(venv))"
        )
    if isinstance(control, StaggeredResetVecEnv):
        raise ValueError("Members of a group begin together, and StaggeredResetVecEnv shifts slots: use EpisodeControlVecEnv")
    if control is not None and not control.enabled:
        raise ValueError("GRPO decides where episodes start, but its EpisodeControlVecEnv has enabled=False")
    return venv if control is not None else EpisodeControlVecEnv(venv)


def require_equal_starts(observations: Any, group_size: int) -> None:
    """
    An environment that does not honour seeds makes groups of strangers.

    :param observations: The first observations of all slots.
    :param group_size: Slots per group.
    :raises ValueError: if members of a group do not have the same.
    """
    for first in (observations if isinstance(observations, dict) else {"": observations}).values():
        values = np.asarray(first)
        members = values.reshape(-1, group_size, *values.shape[1:])
        if not (members == members[:, :1]).all():
            raise ValueError(
                "Members of a group do not begin in the same observation: the environment does not honour "
                "reset(seed=...), or the start_rule's options. Seed everything that reset() draws from "
                "self.np_random, or give starts by snapshot"
            )


def require_no_memory(policy: ActorCriticPolicy) -> None:
    """
    :param policy: A policy.
    :raises ValueError: if it carries a state from step to step, which PPO's rollouts do not.
    """
    if hasattr(policy, "lstm_actor"):
        raise ValueError(
            f"{type(policy).__name__} is recurrent, and GRPO collects rollouts as PPO does: use a policy without memory"
        )


def require_entropy_of_states(policy: ActorCriticPolicy) -> None:
    """
    :param policy: A policy.
    :raises ValueError: if its entropy is the same in all states, or has no closed form.
    """
    distribution = policy.action_dist
    if isinstance(distribution, DiagGaussianDistribution) or getattr(distribution, "bijector", None) is not None:
        raise ValueError(
            f"zero_variance_shaping needs an entropy that depends on the state, and that of {type(distribution).__name__} "
            "does not, or has no closed form: use discrete actions or use_sde=True"
        )


def require_sense(model: GRPO, normalize_advantage: bool) -> None:
    """
    Refuse what does not exist, and what would have no effect.

    :param model: A model with its arguments.
    :param normalize_advantage: Whether PPO's was asked for.
    :raises ValueError: naming the arguments that disagree.
    """
    if model.advantage not in ADVANTAGES:
        raise ValueError(f"advantage={model.advantage!r} is not one of {', '.join(map(repr, ADVANTAGES))}")
    if model.group_size == 1 and model.advantage in WHOLE_EPISODES:
        raise ValueError(f"advantage={model.advantage!r} compares the members of a group, and group_size is 1")
    if normalize_advantage and not model.leaves_scale_to_ppo:
        raise ValueError(
            f"normalize_advantage=True has no part in advantage={model.advantage!r}, scale={model.scale!r}: leave it out"
        )
    if model.loss_aggregation != "step" and model.advantage not in WHOLE_EPISODES:
        raise ValueError(
            f"loss_aggregation={model.loss_aggregation!r} has no part in advantage={model.advantage!r}: rollouts hold pieces "
            "of episodes, and as many steps always"
        )
    if model.importance_sampling_level not in ("step", "episode"):
        raise ValueError(f"importance_sampling_level={model.importance_sampling_level!r} is neither 'step' nor 'episode'")
    if model.importance_sampling_level == "episode" and model.advantage != "outcome":
        raise ValueError("importance_sampling_level='episode' is for one advantage per episode: advantage='outcome'")
    if model.group_size == 1 and isinstance(model.start_rule, StartPool):
        raise ValueError("A StartPool looks at the spread of a group's returns, and group_size is 1")
    if not 0.0 <= model.beta < math.inf:
        raise ValueError(f"beta={model.beta} must be finite, and not negative")
    if isinstance(model.clip_range_high, (int, float)) and not 0.0 < model.clip_range_high < math.inf:
        raise ValueError(f"clip_range_high={model.clip_range_high} must be finite and positive")
    if model.reference_interval is not None and (model.beta == 0.0 or model.reference_interval < 1):
        raise ValueError(f"reference_interval={model.reference_interval} needs beta > 0, and at least one update")
    if model.zero_variance_shaping < 0.0 or (model.zero_variance_shaping > 0.0) != (model.good_return is not None):
        raise ValueError("zero_variance_shaping must not be negative, and goes together with good_return")
    if model.zero_variance_shaping > 0.0 and model.advantage not in WHOLE_EPISODES:
        raise ValueError(
            f"zero_variance_shaping has no part in advantage={model.advantage!r}, only in 'outcome' and 'return_to_go'"
        )
    rule = getattr(model.start_rule, "rule", None)
    if model.zero_variance_shaping > 0.0 and getattr(rule, "max_discarded", 0.0) > 0.0:
        raise ValueError(
            f"zero_variance_shaping is for groups whose returns are alike, which {type(rule).__name__} leaves out: use "
            "max_discarded=0"
        )


class InertGroups:
    """Warns once when groups have explained next to nothing for :data:`ROLLOUTS` rollouts."""

    def __init__(self) -> None:
        self._latest: deque[tuple[float, float]] = deque(maxlen=ROLLOUTS)
        self._warned = False

    def watch(self, coefficient: float, mean_peers: float) -> None:
        """
        :param coefficient: Fitted coefficient of a rollout.
        :param mean_peers: Mean number of peers of its rows.
        """
        self._latest.append((coefficient, mean_peers))
        if self._warned or len(self._latest) < ROLLOUTS:
            return
        mean_coefficient, peers = np.mean(self._latest, axis=0)
        if peers < LEAST_PEERS:
            found = f"rows met {peers:.2f} peers: members have drifted apart. Set remember_peers, or longer rollouts (n_steps)"
        elif mean_coefficient < LEAST_COEFFICIENT:
            found = f"the coefficient was {mean_coefficient:.2f}: members share nothing that the critic does not see"
        else:
            return
        self._warned = True
        warnings.warn(
            f"Groups are inert: in the last {ROLLOUTS} rollouts {found}. What is trained is PPO.", UserWarning, stacklevel=2
        )


class UntoldGroups:
    """Warns once when a pool of starts hears of few groups, since members of the others are stopped."""

    def __init__(self) -> None:
        self._n_finished = self._n_told = 0
        self._warned = False

    def watch(self, n_finished: int, n_told: int) -> None:
        """
        :param n_finished: Groups that finished in a rollout.
        :param n_told: Those of them whose returns are all known.
        """
        self._n_finished += n_finished
        self._n_told += n_told
        if self._warned or self._n_finished < GROUPS or self._n_told >= LEAST_TOLD * self._n_finished:
            return
        self._warned = True
        warnings.warn(
            f"The StartPool has heard of {self._n_told} of {self._n_finished} groups: of the others a member was cut short, "
            "and its return is not known. Stop less often (grace, quantile), or train on the pool without a gate",
            UserWarning,
            stacklevel=2,
        )
