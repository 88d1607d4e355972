"""
How long episodes should run under a budget of steps, learned from their rewards.

A discounted return estimated from truncated episodes, n_t of which reach step t, has the variance ``sum_t f_t / n_t`` with

    f_t = gamma^(2t) Var(R_t) + 2 sum_(t' > t) gamma^(t + t') Cov(R_t, R_t')

At a fixed ``sum_t n_t`` it is least for ``n_t`` proportional to ``sqrt(f_t)``, made non-increasing. See Poiani, Nobili,
Metelli and Restelli, "Truncating Trajectories in Monte Carlo Policy Evaluation: an Adaptive Approach" (RIDO), NeurIPS 2023,
https://arxiv.org/abs/2410.13463. Where no reward is known, the bounds below give the schedule of
:mod:`~sb3_budget.core.horizons`, which follows from the discount factor alone.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sb3_budget.core.allocation import shares
from sb3_budget.core.horizons import draw_lengths


class _Pairs(NamedTuple):
    """Statistics of two steps over the episodes that have both, each of shape (horizon, horizon); variances of the first."""

    counts: NDArray[np.float64]
    variances: NDArray[np.float64]
    covariances: NDArray[np.float64]


def estimated_return(rewards: ArrayLike, gamma: float) -> float:
    """
    :param rewards: rewards, NaN after the end of a truncated episode and 0 after a termination, shape (n_episodes, horizon)
    :param gamma: discount factor
    :return: mean discounted return, in which every step has the mean of the episodes that reached it
    """
    given = _require_rewards(rewards)
    counts = (~np.isnan(given)).sum(axis=0)
    if not counts.all():
        raise ValueError(f"No episode has reached step {int((counts == 0).argmax())} of {given.shape[1]}")
    return float(np.nansum(given, axis=0) / counts @ np.power(gamma, np.arange(given.shape[1])))


def covariances(rewards: ArrayLike) -> NDArray[np.float64]:
    """
    :param rewards: as for :func:`estimated_return`
    :return: unbiased covariance of every two steps over the episodes that have both, NaN where there are fewer than two such
        episodes, shape (horizon, horizon)
    """
    return _pairs(_require_rewards(rewards)).covariances


def robust_covariances(rewards: ArrayLike, delta: float, reward_range: float | None = None) -> NDArray[np.float64]:
    """
    Upper confidence bounds of the covariances, each of which holds with probability ``1 - delta``, or with ``1 - 4 delta``
    off the diagonal.

    The standard deviation of rewards within a range r exceeds that of n samples by at most
    ``r sqrt(2 ln(1 / delta) / (n - 1))``, and falls short of it by no more, each with probability ``1 - delta`` (Maurer &
    Pontil, 2009, https://arxiv.org/abs/0907.3740, theorem 10). Covariances are bounded through
    ``4 Cov(X, Y) = Var(X + Y) - Var(X - Y)``, whose parts have twice the range, and by the product of the two deviations. A
    step seen in fewer than two episodes has the largest possible deviation, r / 2.

    :param rewards: as for :func:`estimated_return`; there may be no episode yet
    :param delta: probability that a bound fails, in ``(0, 1]``; 1 gives the plain estimates
    :param reward_range: largest reward less the smallest one; those seen so far by default
    :return: bounds, shape (horizon, horizon)
    """
    given = _require_rewards(rewards)
    if not 0.0 < delta <= 1.0:
        raise ValueError(f"delta must be in (0, 1], got {delta}")
    if reward_range is None:
        seen = given[~np.isnan(given)]
        reward_range = float(np.ptp(seen)) if seen.size else 1.0
    n, variance, covariance = _pairs(given)
    known = n >= 2
    width = reward_range * np.sqrt(2.0 * np.log(1.0 / delta) / np.maximum(n - 1.0, 1.0))
    deviations = np.where(np.diag(known), np.sqrt(np.diag(np.where(known, variance, 0.0))) + np.diag(width), np.inf)
    deviations = np.minimum(deviations, reward_range / 2.0)
    of_sum = np.sqrt(np.maximum(variance + variance.T + 2.0 * covariance, 0.0)) + 2.0 * width
    of_difference = np.sqrt(np.maximum(variance + variance.T - 2.0 * covariance, 0.0)) - 2.0 * width
    bounds = (of_sum**2 - np.maximum(of_difference, 0.0) ** 2) / 4.0
    largest = np.outer(deviations, deviations)
    bounds = np.minimum(np.where(known, bounds, np.inf), largest)
    np.fill_diagonal(bounds, np.diag(largest))
    return bounds


def variance_coefficients(covariances: ArrayLike, gamma: float) -> NDArray[np.float64]:
    """
    :param covariances: covariances of the rewards of every two steps, symmetric, shape (horizon, horizon)
    :param gamma: discount factor
    :return: what one more episode at step t is worth to the estimate, ``f_t``; it may be negative, shape (horizon,)
    """
    given = np.asarray(covariances, dtype=np.float64)
    if given.ndim != 2 or given.shape[0] != given.shape[1] or np.isnan(given).any():
        raise ValueError(f"covariances must have the shape (horizon, horizon) without NaN, got {given.shape}")
    discounts = np.power(gamma, np.arange(len(given)))
    discounted = discounts[:, None] * given * discounts
    return np.diag(discounted) + 2.0 * np.triu(discounted, k=1).sum(axis=1)


def pooled(coefficients: ArrayLike) -> NDArray[np.float64]:
    """
    Pool adjacent violators: an episode cannot reach a step without those before it, so steps whose coefficients rise share
    the mean of their block. ``sum_t f_t / n_t`` over non-increasing ``n`` is least for ``n_t`` proportional to the root of
    this.

    :param coefficients: ``f_t``, shape (horizon,)
    :return: the nearest non-increasing sequence in least squares, shape (horizon,)
    """
    blocks: list[tuple[float, int]] = []  # mean and number of steps
    for coefficient in np.asarray(coefficients, dtype=np.float64).tolist():
        mean, size = coefficient, 1
        while blocks and blocks[-1][0] <= mean:
            before, n = blocks.pop()
            mean, size = (before * n + mean * size) / (n + size), n + size
        blocks.append((mean, size))
    means, sizes = zip(*blocks, strict=True)
    return np.repeat(np.array(means), sizes)


def plan(coefficients: ArrayLike, budget: int) -> NDArray[np.int64]:
    """
    :param coefficients: ``f_t``, shape (horizon,)
    :param budget: number of steps, at least the horizon: one episode at least reaches the end
    :return: number of episodes that reach each step; non-increasing, at least 1, with the budget as their sum. All are full
        where no step has any variance left, shape (horizon,)
    """
    given = np.asarray(coefficients, dtype=np.float64)
    if budget < given.size:
        raise ValueError(f"budget={budget} steps are less than one episode of {given.size}")
    return shares(np.sqrt(np.maximum(pooled(given), 0.0)), budget, least=1)


class AdaptiveHorizons:
    """
    Lengths of episodes that follow their rewards; a ``horizon_budget`` of :class:`~sb3_budget.StaggeredResetVecEnv`.

    Episodes are full until ``min_episodes`` have been recorded. Lengths are drawn before an episode begins, so that the
    record is not biased by how episodes go. Do not record those that a gate has stopped.

    :param horizon: length of a full episode [steps]
    :param gamma: discount factor in ``(0, 1]``
    :param delta: as for :func:`robust_covariances`. 1 by default: the sum of many bounds hides what the rewards show. Of 200
        steps with independent rewards, and 64 recorded episodes, the plain plan has 2 % more variance than the best one, and
        that of ``delta=0.5`` 8 %, as the discount alone; full episodes 32 %.
    :param reward_range: the same
    :param n_episodes: a plan is made for as many steps as this number of full episodes has
    :param memory: number of the latest episodes that a plan looks at, since the policy changes
    :param min_episodes: number of episodes before the first plan
    :raises ValueError: if an argument is out of range
    """

    def __init__(
        self,
        horizon: int,
        gamma: float = 0.99,
        delta: float = 1.0,
        reward_range: float | None = None,
        n_episodes: int = 64,
        memory: int = 256,
        min_episodes: int = 10,
    ):
        for name, value in (("horizon", horizon), ("n_episodes", n_episodes), ("min_episodes", min_episodes)):
            if value < 1:
                raise ValueError(f"{name}={value} must be at least 1")
        if memory < min_episodes:
            raise ValueError(f"memory={memory} holds fewer episodes than min_episodes={min_episodes}")
        if not 0.0 < gamma <= 1.0 or not 0.0 < delta <= 1.0:
            raise ValueError(f"gamma={gamma} and delta={delta} must lie in (0, 1]")
        self.horizon, self.gamma, self.delta, self.reward_range = horizon, gamma, delta, reward_range
        self.n_episodes, self.min_episodes = n_episodes, min_episodes
        self.survival = np.ones(horizon)
        self._recorded: deque[NDArray[np.float64]] = deque(maxlen=memory)

    def record(self, rewards: ArrayLike, terminated: bool) -> None:
        """
        :param rewards: those of a finished episode, shape (length,), at most the horizon
        :param terminated: whether it ended by itself, so that all later rewards are 0, rather than unknown
        """
        given = np.asarray(rewards, dtype=np.float64)
        if given.ndim != 1 or not 1 <= given.size <= self.horizon or np.isnan(given).any():
            raise ValueError(f"rewards must have the shape (length,) of 1 to {self.horizon} steps, got {given.shape}")
        row = np.full(self.horizon, 0.0 if terminated else np.nan)
        row[: given.size] = given
        self._recorded.append(row)

    def replan(self) -> None:
        """Make a new plan of what has been recorded."""
        if len(self._recorded) < self.min_episodes:
            return
        bounds = robust_covariances(np.stack(self._recorded), self.delta, self.reward_range)
        counts = plan(variance_coefficients(bounds, self.gamma), self.n_episodes * self.horizon)
        self.survival = counts / counts[0]

    def __call__(self, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """
        :param n: number of episodes
        :param rng: source of randomness
        :return: their lengths [steps], shape (n,)
        """
        return draw_lengths(self.survival, n, rng, full_fraction=0.0)


def _pairs(rewards: NDArray[np.float64]) -> _Pairs:
    seen = ~np.isnan(rewards)
    mask = seen.astype(np.float64)
    counts = np.maximum(mask.sum(axis=0), 1.0)
    centred = np.where(seen, rewards - np.where(seen, rewards, 0.0).sum(axis=0) / counts, 0.0)
    n, sums = mask.T @ mask, centred.T @ mask
    freedom = np.where(n >= 2, n - 1.0, np.nan)
    at_least_one = np.maximum(n, 1.0)
    variances = np.maximum((centred**2).T @ mask - sums**2 / at_least_one, 0.0) / freedom
    return _Pairs(n, variances, (centred.T @ centred - sums * sums.T / at_least_one) / freedom)


def _require_rewards(rewards: ArrayLike) -> NDArray[np.float64]:
    given = np.asarray(rewards, dtype=np.float64)
    if given.ndim != 2 or given.shape[1] == 0:
        raise ValueError(f"rewards must have the shape (n_episodes, horizon), got {given.shape}")
    return given
