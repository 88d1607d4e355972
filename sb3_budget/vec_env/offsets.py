"""How far each slot is shifted."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sb3_budget.core import staggering

#: ``offsets(n_envs, horizon, rng)`` returns one offset [steps] per slot, each in ``[0, horizon)``.
OffsetRule = Callable[[int, int, np.random.Generator], ArrayLike]


def draw_offsets(
    rule: str | OffsetRule,
    n_envs: int,
    horizon: int,
    n_blocks: int | None,
    block_weights: ArrayLike | None,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """
    :param rule: ``"even"``, ``"blocks"``, ``"random"`` or a callable.
    :param n_envs: Number of slots.
    :param horizon: Length of a full episode [steps].
    :param n_blocks: Number of blocks, for ``"blocks"``.
    :param block_weights: Relative number of slots per block.
    :param rng: Source of randomness.
    :return: One offset [steps] per slot.
    :raises ValueError: for another rule, ``"blocks"`` without a number of blocks, or a callable's bad offsets.
    """
    if callable(rule):
        return check_offsets(rule(n_envs, horizon, rng), n_envs, horizon)
    if rule == "even":
        return staggering.even_offsets(n_envs, horizon)
    if rule == "blocks":
        if n_blocks is None:
            raise ValueError("offsets='blocks' needs n_steps (the rollout length) or n_blocks")
        return staggering.block_offsets(n_envs, horizon, n_blocks, block_weights)
    if rule == "random":
        return staggering.random_offsets(n_envs, horizon, rng)
    raise ValueError(f"offsets={rule!r} is not 'even', 'blocks', 'random' or a callable")


def check_offsets(offsets: ArrayLike, n_envs: int, horizon: int) -> NDArray[np.int64]:
    """
    :param offsets: A user's offsets.
    :param n_envs: Number of slots.
    :param horizon: Length of a full episode [steps].
    :return: The same as integers.
    :raises ValueError: if they are not ``n_envs`` numbers in ``[0, horizon)``.
    """
    given = np.asarray(offsets)
    if given.shape != (n_envs,) or given.min() < 0 or given.max() >= horizon:
        raise ValueError(f"Offsets must be {n_envs} numbers in [0, {horizon}), got {given.tolist()}")
    return given.astype(np.int64)
