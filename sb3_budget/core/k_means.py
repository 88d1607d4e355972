"""Clusters of points: Lloyd's algorithm."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def nearest(points: NDArray[np.float64], centres: NDArray[np.float64]) -> NDArray[np.int64]:
    """
    :param points: shape (n, n_dims)
    :param centres: shape (n_centres, n_dims)
    :return: the centre at the least distance of each point, the first of several, shape (n,)
    """
    distances = (centres**2).sum(axis=1) - 2.0 * points @ centres.T
    return distances.argmin(axis=1).astype(np.int64)


def lloyd(points: NDArray[np.float64], n_centres: int, rng: np.random.Generator, max_rounds: int = 50) -> NDArray[np.float64]:
    """
    K-means by Lloyd's algorithm from distant points (k-means++; Arthur & Vassilvitskii, 2007).

    :param points: shape (n, n_dims)
    :param n_centres: number of centres; there are fewer if there are fewer distinct points
    :param rng: chooses the first centres
    :param max_rounds: largest number of rounds
    :return: centres, shape (at most n_centres, n_dims). One that loses all its points stays where it is.
    """
    centres = points[rng.integers(len(points))][None]
    gaps = ((points - centres[0]) ** 2).sum(axis=1)
    while len(centres) < n_centres and gaps.any():
        centres = np.vstack([centres, points[rng.choice(len(points), p=gaps / gaps.sum())]])
        gaps = np.minimum(gaps, ((points - centres[-1]) ** 2).sum(axis=1))
    for _ in range(max_rounds):
        labels = nearest(points, centres)
        moved = centres.copy()
        for label in np.unique(labels):
            moved[label] = points[labels == label].mean(axis=0)
        if np.array_equal(moved, centres):
            break
        centres = moved
    return centres
