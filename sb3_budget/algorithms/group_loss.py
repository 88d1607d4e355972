"""Terms of a policy loss that PPO does not have."""

from __future__ import annotations

import torch as th


def clipped_objective(ratio: th.Tensor, advantages: th.Tensor, clip_low: float, clip_high: float) -> th.Tensor:
    """
    PPO's objective with a bound of its own on either side. A larger upper bound lets actions that were unlikely and good
    grow (clip-higher, Yu et al., 2025, https://arxiv.org/abs/2503.14476).

    :param ratio: new to old probability of the action, shape (n,)
    :param advantages: advantages, same shape
    :param clip_low: the ratio counts from ``1 - clip_low``
    :param clip_high: to ``1 + clip_high``
    :return: the objective of each row, same shape
    """
    return th.min(advantages * ratio, advantages * th.clamp(ratio, 1 - clip_low, 1 + clip_high))


def k3(log_prob: th.Tensor, reference_log_prob: th.Tensor) -> th.Tensor:
    """
    Schulman's estimator of the divergence from a reference, :math:`e^d - d - 1` with
    :math:`d = \\log \\pi_{ref} - \\log \\pi`: unbiased, and never negative.

    :param log_prob: log-probabilities of actions that the policy drew, shape (n,)
    :param reference_log_prob: those that the reference gives them, same shape
    :return: estimates, same shape
    """
    difference = reference_log_prob - log_prob
    return th.exp(difference) - difference - 1


def episode_ratio(log_ratio: th.Tensor, episodes: th.Tensor) -> th.Tensor:
    """
    One ratio per episode, :math:`\\exp(\\frac{1}{T} \\sum_t \\log r_t)` (GSPO, Zheng et al., 2025,
    https://arxiv.org/abs/2507.18071).

    :param log_ratio: logarithm of the ratio of each row, shape (n,)
    :param episodes: number of the episode of each row, from 0, same shape; all rows of an episode are there
    :return: the ratio of each row's episode, same shape
    """
    n_episodes = int(episodes.max()) + 1
    sums = th.zeros(n_episodes, dtype=log_ratio.dtype, device=log_ratio.device).index_add(0, episodes, log_ratio)
    lengths = th.bincount(episodes, minlength=n_episodes)
    return th.exp(sums / lengths)[episodes]
