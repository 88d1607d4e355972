"""Which of some scores are too low, and how many of their episodes may be stopped."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: Number of looks that a limited rate is an average over.
RATE_LOOKS = 1000


def below_quantile(scores: NDArray[np.float64], peers: NDArray[np.float64], quantile: float) -> NDArray[np.bool_]:
    """
    Count instead of sort: the few slots of a look are ranked among thousands of peers in a fraction of the time that
    ``np.quantile`` takes.

    :param scores: Scores to judge, shape (n,).
    :param peers: Scores to compare with, shape (m,).
    :param quantile: Share of the peers, in ``[0, 1]``.
    :return: Whether a score lies below the peers' quantile, the smallest peer that is at least as large as that share
        of them (``method="inverted_cdf"`` of ``np.quantile``). Where all peers are equal none does.
    """
    return (peers <= scores[:, None]).sum(axis=1) < quantile * len(peers)


def below_ratio(scores: NDArray[np.float64], peers: NDArray[np.float64], ratio: float) -> NDArray[np.bool_]:
    """
    :param scores: Scores to judge.
    :param peers: Scores to compare with.
    :param ratio: Share of the mean that a score must reach, in ``[0, 1]``.
    :return: Whether a score lies below the mean by more than ``(1 - ratio) * |mean|``. For a positive mean that is
        ``score < ratio * mean``; for a negative one the threshold lies as far below the mean, and not above it.
    """
    mean = peers.mean()
    return scores < mean - (1.0 - ratio) * abs(mean)


def below_deviations(scores: NDArray[np.float64], peers: NDArray[np.float64], deviations: float) -> NDArray[np.bool_]:
    """
    :param scores: Scores to judge.
    :param peers: Scores to compare with.
    :param deviations: Number of standard deviations, not negative.
    :return: Whether a score lies below the peers' mean by more than so many standard deviations. It does not change
        when a constant is added to all scores.
    """
    return scores < peers.mean() - deviations * peers.std()


def limit_stops(
    stop: NDArray[np.bool_], scores: NDArray[np.float64], max_stops: int, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """
    Keep the number of stops under a cap.

    :param stop: Slots that a gate would stop, shape (n_envs,).
    :param scores: Their scores; the lowest are stopped first, ties in random order.
    :param max_stops: Largest number of stops.
    :param rng: Breaks ties.
    :return: At most ``max_stops`` of the given slots.
    """
    if np.count_nonzero(stop) <= max_stops:
        return stop
    candidates = np.flatnonzero(stop)
    limited = np.zeros_like(stop)
    shuffled = rng.permutation(candidates)
    limited[shuffled[np.argsort(scores[shuffled], kind="stable")[: max(0, max_stops)]]] = True
    return limited


class RateLimit:
    """
    Keeps the share of looks that end in a stop under a limit, as an average over about :data:`RATE_LOOKS` looks.

    Peers include states that are younger than any that is judged. Where episodes are worth most at their beginning,
    more than the quantile of the judged states lies below that of the peers; cutting them puts still more weight on
    the beginning, and the gate shuts out all else.
    """

    def __init__(self) -> None:
        self._looks = 0.0
        self._stops = 0.0

    def __call__(
        self,
        stop: NDArray[np.bool_],
        look: NDArray[np.bool_],
        scores: NDArray[np.float64],
        share: float,
        rng: np.random.Generator,
    ) -> NDArray[np.bool_]:
        """
        :param stop: Slots that a gate would stop, shape (n_envs,).
        :param look: Slots that were judged, shape (n_envs,).
        :param scores: Scores of all slots; the lowest are stopped first.
        :param share: The limit, in ``[0, 1]``.
        :param rng: Breaks ties.
        :return: As many of the given slots as the limit allows.
        """
        n_looks = int(np.count_nonzero(look))
        if not n_looks:
            return stop
        kept = max(0.0, 1.0 - n_looks / RATE_LOOKS)
        self._looks = kept * self._looks + n_looks
        self._stops *= kept
        stop = limit_stops(stop, scores, int(share * self._looks - self._stops), rng)
        self._stops += int(np.count_nonzero(stop))
        return stop
