"""What followed a state and an action, and what is known from many such outcomes, in constant memory."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

#: Keys and labels of at most this many bytes are kept as they are; of longer ones a digest is.
MOST_BYTES = 32


class Outcome(NamedTuple):
    """
    What followed a state and an action.

    :param numbers: What must agree up to the tolerance: the reward, and the next state where it is not whole numbers,
        shape (n,), of ``float32`` or ``float64``.
    :param label: What must agree exactly: a digest of the whole numbers of the next state.
    :param terminated: Whether the episode terminated. ``None`` if it was cut at this step, by a time limit or a stop, which
        says nothing about the environment.
    """

    numbers: NDArray[np.floating[Any]]
    label: bytes = b""
    terminated: bool | None = None


def digest(data: bytes) -> bytes:
    """
    :param data: Bytes of any length.
    :return: The same if they are few, else 16 bytes that stand for them.
    """
    return data if len(data) <= MOST_BYTES else hashlib.sha256(data, usedforsecurity=False).digest()[:16]


@dataclass(slots=True)
class Evidence:
    """
    Outcomes of one key so far (Welford, 1962, https://doi.org/10.1080/00401706.1962.10490022).

    As long as all are equal to the bit there is nothing to compute but their count.

    :param first: Numbers of the first outcome, as bytes.
    :param dtype: Their type.
    :param label: Label of all of them.
    :param count: How many there were.
    :param terminated: Whether they terminated the episode, ``None`` if all of them were cut.
    :param moments: Mean of the numbers, and sum of squared differences from it, once they have differed; each of shape (n,).
    """

    first: bytes
    dtype: np.dtype[Any]
    label: bytes
    count: int = 1
    terminated: bool | None = None
    moments: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None

    @classmethod
    def of(cls, outcome: Outcome) -> Evidence:
        """
        :param outcome: One outcome.
        :return: Evidence of it alone.
        """
        numbers = outcome.numbers
        return cls(numbers.tobytes(), numbers.dtype, outcome.label, 1, outcome.terminated)

    def is_repeated_by(self, outcome: Outcome) -> bool:
        """
        :param outcome: An outcome of the same key.
        :return: Whether all outcomes so far are equal to it to the bit.
        """
        numbers, label, terminated = outcome
        return (
            self.moments is None
            and self.first == numbers.tobytes()
            and self.label == label
            and self.terminated == terminated
            and self.dtype == numbers.dtype
        )

    def contradicts(self, other: Evidence, tolerance: float) -> bool:
        """
        :param other: Evidence of the same key.
        :param tolerance: Largest difference of means that is noise.
        :return: Whether both cannot be of one deterministic outcome.
        """
        if self.label != other.label:
            return True
        if self.terminated is not None and other.terminated is not None and self.terminated != other.terminated:
            return True
        if self._repeats(other):
            return False
        ours, theirs = self.mean, other.mean
        # Negated, so that NaN contradicts; evidence itself is finite.
        return len(ours) != len(theirs) or not bool((np.abs(theirs - ours) <= tolerance).all())

    def add(self, other: Evidence) -> None:
        """
        Count what does not contradict (Chan et al., 1979).

        :param other: Evidence of the same key; of a single outcome this is Welford's update.
        """
        if not self._repeats(other):
            total = self.count + other.count
            apart = other.mean - self.mean
            squares = self.squares + other.squares + apart**2 * (self.count * other.count / total)
            self.moments = self.mean + apart * (other.count / total), squares
        self.count += other.count
        if self.terminated is None:
            self.terminated = other.terminated

    def _repeats(self, other: Evidence) -> bool:
        return self.moments is None and other.moments is None and self.first == other.first and self.dtype == other.dtype

    @property
    def mean(self) -> NDArray[np.float64]:
        """Mean of the numbers, shape (n,)."""
        return np.frombuffer(self.first, self.dtype).astype(np.float64) if self.moments is None else self.moments[0]

    @property
    def squares(self) -> NDArray[np.float64]:
        """Sum of squared differences from the mean, shape (n,)."""
        return np.zeros(len(self.first) // self.dtype.itemsize) if self.moments is None else self.moments[1]

    @property
    def variances(self) -> NDArray[np.float64]:
        """Variance of each number, shape (n,)."""
        return self.squares / self.count
