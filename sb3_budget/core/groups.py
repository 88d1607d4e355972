"""What the members of a group tell about each other: arithmetic of group-relative advantages."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray


class Peers(NamedTuple):
    """
    :param means: mean over the peers of each row, 0 where it has none, same shape as the rows
    :param counts: number of peers of each row
    """

    means: NDArray[np.float64]
    counts: NDArray[np.int64]


class PeerRows(NamedTuple):
    """
    Rows that others are compared with, each of shape (n,).

    :param advantages: their advantages
    :param groups: group of each row
    :param episodes: number of the episode within its slot
    :param times: steps since the beginning of that episode
    """

    advantages: NDArray[np.float64]
    groups: NDArray[np.int64]
    episodes: NDArray[np.int64]
    times: NDArray[np.int64]

    def select(self, chosen: NDArray[np.bool_]) -> PeerRows:
        """
        :param chosen: which rows, shape (n,)
        :return: those
        """
        return PeerRows(self.advantages[chosen], self.groups[chosen], self.episodes[chosen], self.times[chosen])


class Residual(NamedTuple):
    """
    :param advantages: advantages less what the peers explain
    :param coefficient: the fitted share of it that was taken off
    :param mean_peers: mean number of peers per row
    """

    advantages: NDArray[np.float64]
    coefficient: float
    mean_peers: float


def equal_returns(returns: ArrayLike, tolerance: float, deviation: float) -> bool:
    """
    :param returns: returns of the members of a group, at least one
    :param tolerance: largest difference that counts as none, in units of ``deviation``; 0 asks for equality
    :param deviation: standard deviation of the returns of all groups
    :return: whether the group has zero variance, so that comparing its members teaches nothing; never with a return that
        is NaN
    """
    return bool(np.ptp(np.asarray(returns, dtype=np.float64)) <= tolerance * deviation)


def require_groups(n_envs: int, group_size: int) -> None:
    """
    :param n_envs: number of slots
    :param group_size: slots per group
    """
    if group_size < 1 or n_envs % group_size:
        raise ValueError(f"n_envs={n_envs} must be a multiple of group_size={group_size}")


def leave_one_out(values: ArrayLike, groups: ArrayLike, episodes: ArrayLike, times: ArrayLike) -> Peers:
    """
    Compare each row with those of its group that are in the same episode at the same step. A row is no peer of its own,
    so that its own outcome does not enter what it is compared with.

    :param values: one value per row, any shape
    :param groups: group of each row, same shape
    :param episodes: number of the episode of each row within its slot, same shape
    :param times: steps since the beginning of that episode, same shape
    :return: mean and number of the peers
    """
    checked = np.asarray(values, dtype=np.float64)
    keys = [np.asarray(key, dtype=np.int64) for key in (groups, episodes, times)]
    if any(key.shape != checked.shape for key in keys):
        raise ValueError(f"groups, episodes and times must have the shape {checked.shape} of the values")
    if checked.size == 0:
        return Peers(checked.copy(), np.zeros(checked.shape, dtype=np.int64))
    place = np.zeros(checked.size, dtype=np.int64)
    for key in keys:
        flat = key.ravel()
        place = place * (int(flat.max()) - int(flat.min()) + 1) + (flat - flat.min())
    _, place = np.unique(place, return_inverse=True)
    flat_values = checked.ravel()
    sizes = np.bincount(place)[place]
    # Sums around the mean of all rows: a large common offset would cost the differences their digits.
    offset = flat_values.mean()
    sums = np.bincount(place, weights=flat_values - offset)[place] - (flat_values - offset)
    counts = sizes - 1
    means = np.where(counts > 0, offset + sums / np.maximum(counts, 1), 0.0)
    return Peers(means.reshape(checked.shape), counts.reshape(checked.shape))


def fit_coefficient(values: ArrayLike, peers: Peers) -> float:
    """
    Share of the peers' mean that explains the rows best, by least squares through the origin, between 0 and 1.

    :param values: one value per row
    :param peers: their peers
    :return: ``sum(v m) / sum(m^2)`` over the rows that have peers, clipped to [0, 1]; 0 if there are none or all
        means are 0
    """
    has_peers = peers.counts > 0
    checked, means = np.asarray(values, dtype=np.float64)[has_peers], peers.means[has_peers]
    squares = float(np.dot(means, means))
    if squares == 0.0:
        return 0.0
    return float(np.clip(np.dot(checked, means) / squares, 0.0, 1.0))


def residual_advantages(
    advantages: ArrayLike,
    groups: ArrayLike,
    episodes: ArrayLike,
    times: ArrayLike,
    remembered: PeerRows | None = None,
) -> Residual:
    """
    Take off what a group knows and the critic does not, such as a hidden parameter that all its members share:
    :math:`A_i - c \\, \\overline{A}_{-i}`, with the peers' mean at the same step of the same episode and ``c`` fitted over
    all rows. Where groups explain nothing ``c`` is 0, and the advantages stay what they are.

    :param advantages: advantages of each row, any shape
    :param groups: group of each row, same shape
    :param episodes: number of the episode, same shape
    :param times: steps since its beginning, same shape
    :param remembered: rows of earlier rollouts that are peers too
    :return: the residual advantages, the coefficient, and the mean number of peers
    """
    checked = np.asarray(advantages, dtype=np.float64)
    if remembered is None or not remembered.advantages.size:
        peers = leave_one_out(checked, groups, episodes, times)
    else:
        columns = zip((checked, groups, episodes, times), remembered, strict=True)
        means, counts = leave_one_out(*(np.concatenate([np.ravel(now), before]) for now, before in columns))
        n, shape = checked.size, checked.shape
        peers = Peers(means[:n].reshape(shape), counts[:n].reshape(shape))
    coefficient = fit_coefficient(checked, peers)
    mean_peers = float(peers.counts.mean()) if peers.counts.size else 0.0
    return Residual(checked - coefficient * peers.means, coefficient, mean_peers)


def centred_within_groups(advantages: ArrayLike, groups: ArrayLike) -> NDArray[np.float64]:
    """
    Advantages less their mean over all rows of the group. A group whose rows are all equal has advantages of exactly 0.

    :param advantages: advantages of each row, any shape
    :param groups: group of each row, same shape, numbered from 0
    :return: the centred advantages
    """
    checked, group = np.asarray(advantages, dtype=np.float64), np.asarray(groups, dtype=np.int64)
    if group.shape != checked.shape:
        raise ValueError(f"groups must have the shape {checked.shape} of the advantages, got {group.shape}")
    flat, flat_group = checked.ravel(), group.ravel()
    sizes = np.maximum(np.bincount(flat_group), 1)
    centred = flat - (np.bincount(flat_group, weights=flat) / sizes)[flat_group]
    centred[_spans(flat, flat_group) == 0.0] = 0.0
    return centred.reshape(checked.shape)


def _spans(values: NDArray[np.float64], groups: NDArray[np.int64]) -> NDArray[np.float64]:
    """Largest less smallest value of the group of each row; exact, which sums are not."""
    if values.size == 0:
        return values.copy()
    high, low = np.full(groups.max() + 1, -np.inf), np.full(groups.max() + 1, np.inf)
    np.maximum.at(high, groups, values)
    np.minimum.at(low, groups, values)
    return (high - low)[groups]
