"""Advantages of finished groups without a critic, and what they are scaled by."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

#: Least divisor of a scale: below it a deviation is rounding.
TINY = 1e-8


def outcome_advantages(returns: ArrayLike) -> NDArray[np.float64]:
    """
    One advantage per episode, :math:`R_i - \\overline{R}`, as in GRPO (Shao et al., 2024). Equal returns give exactly 0.

    :param returns: returns of the members, shape (n_groups, group_size)
    :return: advantages, same shape
    """
    checked = _matrix(returns, 2)
    centred = checked - checked.mean(axis=1, keepdims=True)
    # The mean of equal numbers need not be that number.
    centred[np.ptp(checked, axis=1) == 0.0] = 0.0
    return centred


def returns_to_go(rewards: ArrayLike, gamma: float) -> NDArray[np.float64]:
    """
    :param rewards: rewards, 0 after the end of an episode, shape (..., n_steps)
    :param gamma: discount factor
    :return: :math:`\\sum_k \\gamma^k r_{t+k}`, same shape
    """
    to_go = np.array(rewards, dtype=np.float64)
    for step in range(to_go.shape[-1] - 2, -1, -1):
        to_go[..., step] += gamma * to_go[..., step + 1]
    return to_go


def return_to_go_advantages(rewards: ArrayLike, gamma: float) -> NDArray[np.float64]:
    """
    Return-to-go, less its mean over the other members at the same step. A member that has ended has nothing to go and
    counts 0: leaving it out would compare the rest with survivors only.

    :param rewards: rewards, 0 after the end of an episode, shape (n_groups, group_size, n_steps)
    :param gamma: discount factor
    :return: advantages, same shape; what stands after the end of an episode means nothing
    """
    to_go = returns_to_go(_matrix(rewards, 3), gamma)
    group_size = to_go.shape[1]
    if group_size == 1:
        return to_go
    return to_go - (to_go.sum(axis=1, keepdims=True) - to_go) / (group_size - 1)


def shaped_by_entropy(entropies: ArrayLike, groups: ArrayLike, good: ArrayLike, alpha: float) -> NDArray[np.float64]:
    """
    Advantages for groups whose returns are alike (RL-ZVP, Le et al., 2025, https://arxiv.org/abs/2509.21880):
    :math:`\\alpha H_t` where all did well, :math:`-\\alpha (\\max_k H_k - H_t)` where all did badly, with the maximum over
    the rows of the group. Entropies are taken as constants.

    :param entropies: entropy of the policy in each row, shape (n,)
    :param groups: group of each row, numbered from 0, shape (n,)
    :param good: whether the row's group did well, shape (n,)
    :param alpha: strength
    :return: advantages, shape (n,)
    """
    entropy, group = np.asarray(entropies, dtype=np.float64), np.asarray(groups, dtype=np.int64)
    if entropy.size == 0:
        return entropy.copy()
    highest = np.full(group.max() + 1, -np.inf)
    np.maximum.at(highest, group, entropy)
    return alpha * np.where(np.asarray(good, dtype=bool), entropy, entropy - highest[group])


def scaled(advantages: ArrayLike, groups: ArrayLike, scale: str, least_std: float) -> NDArray[np.float64]:
    """
    Divide by a standard deviation, without moving the mean: an advantage of 0 stays 0.

    :param advantages: advantages of the rows, shape (n,)
    :param groups: group of each row, numbered from 0, same shape
    :param scale: ``"group"``: by that of the group's rows; ``"batch"``: by that of all rows; ``"none"``: not at all
    :param least_std: least divisor for ``"group"``, so that tiny differences are not blown up
    :return: scaled advantages, same shape
    """
    checked, group = np.asarray(advantages, dtype=np.float64), np.asarray(groups, dtype=np.int64)
    if scale == "none" or checked.size == 0:
        return checked.copy()
    if scale == "batch":
        return checked / max(float(checked.std()), TINY)
    sizes = np.maximum(np.bincount(group), 1)
    means = np.bincount(group, weights=checked) / sizes
    deviations = np.sqrt(np.bincount(group, weights=(checked - means[group]) ** 2) / sizes)
    return checked / np.maximum(deviations, max(least_std, TINY))[group]


def aggregation_factors(episodes: ArrayLike, aggregation: str, n_rows: int) -> NDArray[np.float64]:
    """
    Factors of the advantages that turn the mean of the clipped objective over rows into another aggregate. The objective
    is proportional to the advantage, so that a factor of the one is a weight of the other.

    :param episodes: number of the episode of each row, from 0, shape (n,)
    :param aggregation: ``"step"``: the mean over rows; ``"episode"``: the mean over episodes of the mean over their rows
        (Shao et al., 2024); ``"constant"``: the sum over rows by ``n_rows``, whatever the number of rows (Dr. GRPO, Liu
        et al., 2025, https://arxiv.org/abs/2503.20783)
    :param n_rows: number of rows that a rollout has
    :return: factors, shape (n,)
    """
    episode = np.asarray(episodes, dtype=np.int64)
    if aggregation == "step" or episode.size == 0:
        return np.ones(episode.shape)
    if aggregation == "constant":
        return np.full(episode.shape, episode.size / n_rows)
    lengths = np.bincount(episode)
    return (episode.size / np.count_nonzero(lengths) / np.maximum(lengths, 1))[episode]


def _matrix(values: ArrayLike, n_dimensions: int) -> NDArray[np.float64]:
    checked = np.asarray(values, dtype=np.float64)
    if checked.ndim != n_dimensions:
        raise ValueError(f"expected {n_dimensions} dimensions, got the shape {checked.shape}")
    return checked
