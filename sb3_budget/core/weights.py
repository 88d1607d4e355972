"""Loss weights of the samples of stopped episodes, put into effect by leaving samples out."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def stop_weights(
    stops: ArrayLike, episode_starts: ArrayLike, gamma: float, gae_lambda: float, early_weight: float, tail: bool
) -> NDArray[np.float32]:
    """
    Weights of the samples of a rollout in which episodes were stopped and their returns completed by the critic.

    With ``tail``, a sample weighs less the more of its advantage comes from the critic's value at the stop: at row t of
    an episode stopped at row tau, ``1 - (1 - early_weight) * (gamma * gae_lambda)^(tau - t)``. Otherwise all rows of a
    stopped episode weigh ``early_weight``. All other rows weigh 1.

    :param stops: true at the last row of a stopped episode, shape (n_steps, n_envs)
    :param episode_starts: true at the first row of an episode, shape (n_steps, n_envs)
    :param gamma: discount factor
    :param gae_lambda: decay of generalised advantage estimation
    :param early_weight: weight of the last row before a stop, in ``[0, 1]``
    :param tail: whether the weight grows back to 1 away from the stop
    :return: weights in ``[early_weight, 1]``, shape (n_steps, n_envs)
    """
    for name, value in (("gamma", gamma), ("gae_lambda", gae_lambda), ("early_weight", early_weight)):
        if not 0.0 <= value <= 1.0:
            raise ValueError(f"{name} must be in [0, 1], got {value}")
    stopped = np.asarray(stops, dtype=bool)
    started = np.asarray(episode_starts, dtype=bool)
    if stopped.ndim != 2 or stopped.shape != started.shape:
        raise ValueError(
            f"stops and episode_starts must have one shape (n_steps, n_envs), got {stopped.shape} and {started.shape}"
        )
    rows = np.arange(stopped.shape[0])[:, None]
    next_stop = _next_row(stopped)
    next_start = np.vstack([_next_row(started)[1:], np.full((1, stopped.shape[1]), stopped.shape[0])])[: stopped.shape[0]]
    # A row belongs to a stopped episode if the stop comes before another episode starts.
    in_stopped = next_stop < next_start
    distances = np.where(in_stopped, next_stop - rows, 0)
    decay = np.power(gamma * gae_lambda, distances) if tail else 1.0
    # A sum of positive terms, in which an early_weight far below 1 is not lost to cancellation.
    return np.where(in_stopped, (1.0 - decay) + early_weight * decay, 1.0).astype(np.float32)


def inclusion_probabilities(weights: ArrayLike) -> NDArray[np.float64]:
    """
    Probabilities with which samples stay, such that a plain mean over those that stay estimates the weighted mean over
    all: sample i stays with probability ``w_i / max(w)``.

    :param weights: finite weights, not negative, shape (n,)
    :return: probabilities, the largest of them 1, shape (n,); if all weights are 0, all are 1
    """
    checked = np.asarray(weights, dtype=np.float64)
    if checked.ndim != 1:
        raise ValueError(f"weights must have the shape (n,), got {checked.shape}")
    _require_weights(checked)
    return checked / checked.max() if checked.any() else np.ones_like(checked)


def thin(probabilities: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.int64]:
    """
    Leave samples out, by systematic sampling in a random order: each stays with exactly its probability, the number that
    stay is its expectation rounded up or down, and neighbours are no more likely than others to stay together. Samples
    of probability 1 always stay.

    :param probabilities: what :func:`inclusion_probabilities` returned, shape (n,)
    :param rng: source of randomness
    :return: indices of the samples that stay, in random order
    """
    order = rng.permutation(probabilities.size)
    # Lay the probabilities end to end from a random start in [0, 1): a sample stays if it reaches across an integer.
    # The start is part of the running sum, which then cannot pass an integer by less than a probability of 1 does.
    ends = np.empty(order.size + 1)
    ends[0] = rng.random()
    ends[1:] = probabilities[order]
    passed = np.cumsum(ends).astype(np.int64)
    return order[passed[1:] > passed[:-1]]


def chunks(indices: ArrayLike, batch_size: int) -> list[NDArray[np.int64]]:
    """
    Split indices into minibatches of nearly equal size, at least ``batch_size`` where there are enough. A minibatch of
    one sample has no standard deviation to normalise advantages by, so that there is none unless there is one index only.

    :param indices: indices in the order in which they are to be used, shape (n,)
    :param batch_size: smallest size of a minibatch
    :return: the minibatches, in order
    """
    checked = np.asarray(indices, dtype=np.int64)
    if checked.ndim != 1 or checked.size == 0:
        raise ValueError(f"indices must have the shape (n,) with at least one index, got {checked.shape}")
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    size = checked.size
    n_chunks = max(1, size // max(2, batch_size))
    return [checked[size * i // n_chunks : size * (i + 1) // n_chunks] for i in range(n_chunks)]


def batches_of_at_least(sizes: ArrayLike, least: int) -> NDArray[np.int64]:
    """
    Deal whole episodes to minibatches, in order. What is left at the end joins the last one.

    :param sizes: rows of each episode, at least one, shape (n,)
    :param least: least number of rows of a minibatch, where there are so many
    :return: number of each episode's minibatch, from 0, shape (n,)
    """
    rows = np.asarray(sizes, dtype=np.int64)
    batches = np.zeros(len(rows), dtype=np.int64)
    batch = filled = 0
    for episode, size in enumerate(rows.tolist()):
        batches[episode] = batch
        filled += size
        if filled >= least:
            batch, filled = batch + 1, 0
    if filled and batch:
        batches[batches == batch] = batch - 1
    return batches


def effective_sample_size(weights: ArrayLike) -> float:
    """
    Number of equally weighted samples that would give as precise a mean, ``sum(w)^2 / sum(w^2)`` (Kish).

    :param weights: finite weights, not negative, any shape
    :return: a number between 1 and the number of weights, or 0 if all weights are 0
    """
    checked = np.asarray(weights, dtype=np.float64)
    _require_weights(checked)
    if not checked.any():
        return 0.0
    scaled = checked / checked.max()
    return float(scaled.sum() ** 2 / np.square(scaled).sum())


def _next_row(marks: NDArray[np.bool_]) -> NDArray[np.int64]:
    """First marked row at or after each row, or n_steps where there is none."""
    n_steps = marks.shape[0]
    rows = np.where(marks, np.arange(n_steps)[:, None], n_steps)
    return np.minimum.accumulate(rows[::-1], axis=0)[::-1]


def _require_weights(weights: NDArray[np.float64]) -> None:
    if not np.all(np.isfinite(weights) & (weights >= 0.0)):
        raise ValueError(f"weights must be finite and not negative, got values from {weights.min()} to {weights.max()}")
