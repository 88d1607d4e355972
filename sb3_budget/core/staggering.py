"""Offsets that spread parallel environments over the phases of an episode, with measures of how well they are spread."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def even_offsets(n_envs: int, horizon: int) -> NDArray[np.int64]:
    """
    Phases at equal distances over the horizon: slot i gets ``floor(i * horizon / n_envs)``.

    :param n_envs: number of slots
    :param horizon: longest possible episode, in steps
    :return: offsets in ``[0, horizon)``, shape (n_envs,)
    """
    _require_positive(n_envs=n_envs, horizon=horizon)
    return np.arange(n_envs, dtype=np.int64) * horizon // n_envs


def block_offsets(n_envs: int, horizon: int, n_blocks: int, block_weights: ArrayLike | None = None) -> NDArray[np.int64]:
    """
    Phases in groups: the horizon is cut into blocks, and every slot starts where its block does, at
    ``floor(block * horizon / n_blocks)``. Slots take the blocks in turn. With weights, blocks get slots in proportion
    (largest remainder, ties to the earlier block), still dealt in turn; equal weights thus change nothing. Fewer slots
    than blocks would leave the end of the horizon bare, so that they get even offsets, whatever the weights.

    :param n_envs: number of slots
    :param horizon: longest possible episode, in steps
    :param n_blocks: number of blocks, at most one per step of the horizon
    :param block_weights: share of the slots that each block gets, up to a factor, shape (n_blocks,); None for equal shares
    :return: offsets in ``[0, horizon)``, shape (n_envs,)
    """
    _require_positive(n_envs=n_envs, horizon=horizon)
    _require_blocks(n_blocks, horizon)
    shares = None if block_weights is None else _block_shares(block_weights, n_blocks)
    if n_envs < n_blocks:
        return even_offsets(n_envs, horizon)
    if shares is None:
        blocks = np.arange(n_envs, dtype=np.int64) % n_blocks
    else:
        blocks = _deal(_apportion(n_envs, shares))
    return blocks * horizon // n_blocks


def random_offsets(n_envs: int, horizon: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """
    Independent phases, uniform over the horizon.

    :param n_envs: number of slots
    :param horizon: longest possible episode, in steps
    :param rng: source of randomness
    :return: offsets in ``[0, horizon)``, shape (n_envs,)
    """
    _require_positive(n_envs=n_envs, horizon=horizon)
    return rng.integers(0, horizon, size=n_envs, dtype=np.int64)


def mix_random(offsets: ArrayLike, horizon: int, random_fraction: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """
    Give a share of the slots, drawn without replacement, random phases instead of their own.

    :param offsets: offsets to start from, shape (n_envs,); left as they are
    :param horizon: longest possible episode, in steps
    :param random_fraction: share of the slots in ``[0, 1]``, rounded to a whole number of slots
    :param rng: source of randomness
    :return: a new array of offsets, shape (n_envs,)
    """
    _require_positive(horizon=horizon)
    if not 0.0 <= random_fraction <= 1.0:
        raise ValueError(f"random_fraction must be in [0, 1], got {random_fraction}")
    mixed = np.array(offsets, dtype=np.int64)
    n_random = round(random_fraction * mixed.size)
    if n_random > 0:
        slots = rng.choice(mixed.size, size=n_random, replace=False)
        mixed[slots] = random_offsets(n_random, horizon, rng)
    return mixed


def rank_slice(n_envs: int, rank: int, world_size: int) -> tuple[int, int]:
    """
    Share one set of offsets among several processes: make offsets for ``global_n`` slots in each of them, and let
    each keep ``offsets[start::world_size]``, so that its slot i is the global slot ``i * world_size + rank``.

    :param n_envs: number of slots of this process; the same in all of them
    :param rank: index of this process
    :param world_size: number of processes
    :return: ``(global_n, start)``
    """
    _require_positive(n_envs=n_envs, world_size=world_size)
    if not 0 <= rank < world_size:
        raise ValueError(f"rank must be in [0, world_size={world_size}), got {rank}")
    return world_size * n_envs, rank


def n_blocks(horizon: int, n_steps: int, multiplier: int = 1) -> int:
    """
    Number of blocks that match a rollout length: ``ceil(horizon / n_steps) * multiplier``, at most ``horizon``.

    :param horizon: longest possible episode, in steps
    :param n_steps: steps per environment and rollout
    :param multiplier: how many blocks per rollout length, for a finer spread
    :return: number of blocks
    """
    _require_positive(horizon=horizon, n_steps=n_steps, multiplier=multiplier)
    return min(-(-horizon // n_steps) * multiplier, horizon)


def suggest_n_steps(horizon: int) -> tuple[int, int]:
    """
    Range of rollout lengths for which staggering is worth while: a tenth to a fifth of the horizon.

    :param horizon: longest possible episode, in steps
    :return: shortest and longest suggested ``n_steps``, at least 1
    """
    _require_positive(horizon=horizon)
    return max(1, horizon // 10), max(1, horizon // 5)


def phase_blocks(ages: ArrayLike, horizon: int, n_blocks: int) -> NDArray[np.int64]:
    """
    The block of the horizon that each sample lies in; block g begins at ``floor(g * horizon / n_blocks)``, as in
    block_offsets.

    :param ages: steps since the start of the episode, any shape; clipped to ``[0, horizon)``
    :param horizon: longest possible episode, in steps
    :param n_blocks: number of blocks, at most one per step of the horizon
    :return: blocks in ``[0, n_blocks)``, same shape
    """
    _require_positive(horizon=horizon)
    _require_blocks(n_blocks, horizon)
    clipped = np.clip(np.asarray(ages, dtype=np.int64), 0, horizon - 1)
    # The last g with floor(g * horizon / n_blocks) <= age; plain age * n_blocks // horizon would put a block's first
    # step into the block before it wherever n_blocks does not divide the horizon.
    return ((clipped + 1) * n_blocks - 1) // horizon


def phase_histogram(ages: ArrayLike, horizon: int, n_blocks: int) -> NDArray[np.int64]:
    """
    Count samples per block of the horizon.

    :param ages: steps since the start of the episode, any shape; clipped to ``[0, horizon)``
    :param horizon: longest possible episode, in steps
    :param n_blocks: number of blocks, at most one per step of the horizon
    :return: counts, shape (n_blocks,)
    """
    blocks = phase_blocks(ages, horizon, n_blocks).ravel()
    return np.bincount(blocks, minlength=n_blocks).astype(np.int64)


def phase_coverage(counts: ArrayLike) -> float:
    """
    Share of the blocks that got a sample.

    :param counts: samples per block, shape (n_blocks,)
    :return: share in ``[0, 1]``
    """
    return float(np.mean(_require_counts(counts) > 0))


def phase_entropy(counts: ArrayLike) -> float:
    """
    Entropy of the samples over the blocks, relative to its largest value, ``log(n_blocks)``: 0 if all samples are in
    one block (or there are none), 1 if they are evenly spread. A single block with samples counts as evenly spread.

    :param counts: samples per block, shape (n_blocks,)
    :return: relative entropy in ``[0, 1]``
    """
    checked = _require_counts(counts)
    total = checked.sum()
    if total == 0:
        return 0.0
    if checked.size == 1:
        return 1.0
    shares = checked[checked > 0] / total
    entropy = -np.sum(shares * np.log(shares)) / np.log(checked.size)
    return float(np.clip(entropy, 0.0, 1.0))


def circular_dispersion(ages: ArrayLike, horizon: int) -> float:
    """
    Circular variance of the phases, ``1 - |mean(exp(2 pi i age / horizon))|``: 0 if all environments are at one phase
    (or there are none), 1 if their phases balance.

    :param ages: steps since the start of the episode, any shape
    :param horizon: longest possible episode, in steps
    :return: dispersion in ``[0, 1]``
    """
    _require_positive(horizon=horizon)
    phases = np.asarray(ages, dtype=np.float64)
    if phases.size == 0:
        return 0.0
    resultant = np.abs(np.mean(np.exp(2j * np.pi * phases / horizon)))
    return float(np.clip(1.0 - resultant, 0.0, 1.0))


def _require_positive(**values: int) -> None:
    for name, value in values.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")


def _require_blocks(n_blocks: int, horizon: int) -> None:
    if not 1 <= n_blocks <= horizon:
        raise ValueError(f"n_blocks must be between 1 and horizon={horizon}, got {n_blocks}")


def _require_counts(counts: ArrayLike) -> NDArray[np.float64]:
    checked = np.asarray(counts, dtype=np.float64)
    if checked.ndim != 1 or checked.size == 0:
        raise ValueError(f"counts must have the shape (n_blocks,) with at least one block, got {checked.shape}")
    if not np.all(np.isfinite(checked) & (checked >= 0)):
        raise ValueError(f"counts must be finite and not negative, got {checked.min()}")
    return checked


def _block_shares(block_weights: ArrayLike, n_blocks: int) -> NDArray[np.float64]:
    weights = np.asarray(block_weights, dtype=np.float64)
    if weights.shape != (n_blocks,):
        raise ValueError(f"block_weights must have the shape ({n_blocks},), one per block, got {weights.shape}")
    if not np.all(np.isfinite(weights) & (weights >= 0)) or weights.max() == 0:
        raise ValueError(f"block_weights must be finite, not negative and not all 0, got {weights.tolist()}")
    scaled = weights / weights.max()
    shares: NDArray[np.float64] = scaled / scaled.sum()
    return shares


def _apportion(n_envs: int, shares: NDArray[np.float64]) -> NDArray[np.int64]:
    """Whole numbers of slots closest to the shares (largest remainder)."""
    quotas = n_envs * shares
    counts = np.floor(quotas).astype(np.int64)
    # Rounded, so that remainders which only differ by floating-point noise tie.
    remainders = np.round(quotas - counts, 9)
    missing = n_envs - int(counts.sum())
    counts[np.argsort(-remainders, kind="stable")[:missing]] += 1
    return counts


def _deal(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Block of every slot, when blocks take a slot in turn until each has its number."""
    blocks = np.repeat(np.arange(counts.size, dtype=np.int64), counts)
    turns = np.arange(blocks.size) - np.repeat(np.cumsum(counts) - counts, counts)
    return blocks[np.lexsort((blocks, turns))]
