"""
State abstraction: observations that count as one state share a key.

Statistics that keys depend on are gathered by ``observe`` until ``freeze``, and never change after it: a key that drifts would
file one state under several names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from sb3_budget.core.k_means import lloyd, nearest

#: Observations of whole numbers with at most this many entries are their own keys.
MOST_EXACT_ENTRIES = 1024
#: Observations with at most this many dimensions are divided into a grid.
MOST_GRID_DIMS = 6
#: Bins are counted up to this far from the mean, so that outliers stay whole numbers.
FARTHEST_BIN = 1e9


@runtime_checkable
class Cells(Protocol):
    """Observations in, keys out. A user's function becomes one by :class:`FunctionCells`."""

    def observe(self, observations: ArrayLike) -> None:
        """
        :param observations: observations to gather statistics of, shape (n, ...), before ``freeze``
        """
        ...

    def freeze(self) -> None:
        """Fix all statistics. It comes before the first key; a second call does nothing."""
        ...

    def keys(self, observations: ArrayLike) -> list[Hashable]:
        """
        :param observations: shape (n, ...)
        :return: key of each, equal for observations of one cell
        """
        ...


# ---------------------------------------------------------------------- pure functions


def row_bytes(rows: NDArray[Any]) -> list[bytes]:
    """
    :param rows: numbers, shape (n, ...)
    :return: bytes of each row, equal for rows of equal numbers: 0.0 and -0.0 are one
    """
    if rows.dtype.kind == "f":
        rows = rows + 0.0
    data, n = rows.tobytes(), len(rows)
    if n == 1:
        return [data]
    width = len(data) // max(n, 1)
    return [data[i * width : (i + 1) * width] for i in range(n)]


def usable_scale(stds: NDArray[np.float64]) -> NDArray[np.float64]:
    """
    :param stds: standard deviation of each dimension, shape (n_dims,)
    :return: the same, but the mean of the others for a dimension that has not varied, and 1 if none has
    """
    varied = stds > 0.0
    return np.where(varied, stds, stds[varied].mean() if varied.any() else 1.0)


# ---------------------------------------------------------------------- cells


class ExactCells:
    """Every observation is a cell of its own. For discrete observations, and small ones of whole numbers as in MiniGrid."""

    def observe(self, observations: ArrayLike) -> None:
        pass

    def freeze(self) -> None:
        pass

    def keys(self, observations: ArrayLike) -> list[Hashable]:
        return list(row_bytes(np.asarray(observations)))


class FunctionCells:
    """
    A user's function as cells.

    :param fn: ``fn(observations)`` returns one hashable key per observation; ``keys`` raises a ``ValueError`` if it does not
    """

    def __init__(self, fn: Callable[[Any], Sequence[Hashable]]):
        self.fn = fn

    def observe(self, observations: ArrayLike) -> None:
        pass

    def freeze(self) -> None:
        pass

    def keys(self, observations: ArrayLike) -> list[Hashable]:
        keys = list(self.fn(observations))
        n = len(next(iter(observations.values())) if isinstance(observations, dict) else np.asarray(observations))
        if len(keys) != n:
            raise ValueError(f"The function of cells must return a key for each of {n} observations, got {len(keys)}")
        return keys


class _ScaledCells:
    """
    Counts in standard deviations from the mean of what was observed before ``freeze``.

    Mean and squares are merged batch by batch (Chan et al., 1979), so that no observation is kept.
    """

    def __init__(self) -> None:
        self.frozen = False
        self._n = 0
        self._mean: NDArray[np.float64] = np.zeros(0)
        self._squares: NDArray[np.float64] = np.zeros(0)
        self._scale: NDArray[np.float64] = np.zeros(0)

    def observe(self, observations: ArrayLike) -> None:
        if self.frozen:
            raise ValueError(f"{type(self).__name__} is frozen: its keys must not drift")
        rows = _flat_rows(observations)
        if not len(rows):
            return
        if not self._n:
            self._mean, self._squares = np.zeros(rows.shape[1]), np.zeros(rows.shape[1])
        total = self._n + len(rows)
        apart = rows.mean(axis=0) - self._mean
        self._squares += ((rows - rows.mean(axis=0)) ** 2).sum(axis=0) + apart**2 * self._n * len(rows) / total
        self._mean += apart * len(rows) / total
        self._n = total

    def freeze(self) -> None:
        if not self._n:
            raise ValueError(f"{type(self).__name__} has observed nothing: call observe() before freeze()")
        if not self.frozen:
            self._scale = usable_scale(np.sqrt(self._squares / self._n))
            self.frozen = True

    def _require_frozen(self) -> None:
        if not self.frozen:
            raise ValueError(f"{type(self).__name__} is not frozen: call freeze() before the first key")

    def scaled(self, observations: ArrayLike) -> NDArray[np.float64]:
        """
        :param observations: shape (n, ...)
        :return: standard deviations from the mean, shape (n, n_dims)
        """
        self._require_frozen()
        return (_flat_rows(observations) - self._mean) / self._scale


class QuantisedCells(_ScaledCells):
    """
    A grid over all dimensions, for few of them. The mean lies in the middle of a cell.

    :param bins_per_std: cells per standard deviation of a dimension, positive
    """

    def __init__(self, bins_per_std: float = 2.0):
        super().__init__()
        _require_positive("bins_per_std", bins_per_std)
        self.bins_per_std = bins_per_std

    def keys(self, observations: ArrayLike) -> list[Hashable]:
        return list(row_bytes(_bins(self.scaled(observations) * self.bins_per_std)))


class ProjectedCells(_ScaledCells):
    """
    A grid over a few random directions, for images and other observations of many dimensions. Near observations share a cell
    more often than distant ones (locality-sensitive hashing; Datar et al., 2004, https://doi.org/10.1145/997817.997857).

    :param n_dims: number of directions, at least 1
    :param bins: cells per standard deviation of a direction, on average over directions, positive
    :param seed: of the directions. Equal seeds give equal keys, in any process.
    """

    def __init__(self, n_dims: int = 6, bins: float = 2.0, seed: int = 0):
        super().__init__()
        _require_positive("n_dims", n_dims)
        _require_positive("bins", bins)
        self.n_dims, self.bins, self.seed = n_dims, bins, seed
        self._directions: NDArray[np.float64] = np.zeros(0)
        self._middle: NDArray[np.float64] = np.zeros(0)

    def freeze(self) -> None:
        if self.frozen:
            return
        super().freeze()
        size = self._mean.size
        directions = np.random.default_rng(self.seed).normal(size=(size, self.n_dims)) / math.sqrt(size)
        # The scale goes into the directions once, rather than into every image.
        self._directions = directions / self._scale[:, None] * self.bins
        self._middle = self._mean @ self._directions

    def keys(self, observations: ArrayLike) -> list[Hashable]:
        self._require_frozen()
        return list(row_bytes(_bins(_flat_rows(observations) @ self._directions - self._middle)))


class KMeansCells(_ScaledCells):
    """
    The nearest of a number of centres, found by k-means in a sample of what was observed before ``freeze``.

    :param n_cells: number of centres, at least 1; there are fewer if fewer distinct observations were seen
    :param seed: of the sample and the first centres
    :param sample_size: size of the sample, in which every observation has the same chance to be, at least 1
    """

    def __init__(self, n_cells: int = 64, seed: int = 0, sample_size: int = 4096):
        super().__init__()
        _require_positive("n_cells", n_cells)
        _require_positive("sample_size", sample_size)
        self.n_cells, self.sample_size = n_cells, sample_size
        self._rng = np.random.default_rng(seed)
        self._sample: NDArray[np.float64] = np.zeros(0)
        self.centres: NDArray[np.float64] = np.zeros(0)

    def observe(self, observations: ArrayLike) -> None:
        seen = self._n
        super().observe(observations)
        rows = _flat_rows(observations)
        if not seen:
            self._sample = np.zeros((0, rows.shape[1]))
        # Reservoir: the i-th observation takes a random place among i, if that is one of the sample's.
        places = np.arange(seen, seen + len(rows))
        late = places >= self.sample_size
        places[late] = self._rng.integers(0, places[late] + 1)
        self._sample = np.vstack([self._sample, rows[~late]])
        taken = late & (places < self.sample_size)
        self._sample[places[taken]] = rows[taken]

    def freeze(self) -> None:
        if self.frozen:
            return
        super().freeze()
        self.centres = lloyd(self.scaled(self._sample), self.n_cells, self._rng)
        self._sample = np.zeros(0)

    def keys(self, observations: ArrayLike) -> list[Hashable]:
        return list(nearest(self.scaled(observations), self.centres).tolist())


def parse_cells(cells: Cells | Callable[[Any], Sequence[Hashable]] | None) -> Cells | None:
    """
    :param cells: an object like the ones here, a function for :class:`FunctionCells`, or ``None``
    :return: the object, or ``None``
    :raises ValueError: if it is none of these
    """
    # A class has the methods, too, and can be called.
    if not isinstance(cells, type):
        if cells is None or isinstance(cells, Cells):
            return cells
        if callable(cells):
            return FunctionCells(cells)
    raise ValueError(f"cells={cells!r} is neither an object like QuantisedCells() nor a function of observations")


def default_cells(observation_shape: tuple[int, ...], dtype: DTypeLike, is_discrete: bool) -> Cells:
    """
    :param observation_shape: shape of one observation
    :param dtype: its type
    :param is_discrete: whether it is the number of a state
    :return: :class:`ExactCells` for discrete observations and few whole numbers, :class:`QuantisedCells` for few dimensions,
        :class:`ProjectedCells` otherwise
    """
    size = math.prod(observation_shape)
    if is_discrete or (np.dtype(dtype).kind in "biu" and size <= MOST_EXACT_ENTRIES):
        return ExactCells()
    return QuantisedCells() if size <= MOST_GRID_DIMS else ProjectedCells()


def _bins(scaled: NDArray[np.float64]) -> NDArray[np.int64]:
    # np.clip takes three times as long on few rows, and a key is needed in every step.
    return np.rint(np.minimum(np.maximum(scaled, -FARTHEST_BIN), FARTHEST_BIN)).astype(np.int64)


def _flat_rows(observations: ArrayLike) -> NDArray[np.float64]:
    rows = np.asarray(observations, dtype=np.float64)
    if rows.ndim == 0 or not np.isfinite(rows).all():
        raise ValueError(f"observations must be finite and have the shape (n, ...), got {rows.shape}")
    return rows.reshape(len(rows), math.prod(rows.shape[1:]))


def _require_positive(name: str, value: float) -> None:
    if not value > 0:
        raise ValueError(f"{name} must be positive, got {value}")
