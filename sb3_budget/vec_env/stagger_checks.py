"""Which arguments of the staggering go together."""

from __future__ import annotations

from typing import Any

from sb3_budget.core import staggering

#: Number of phase bins that coverage and entropy are measured in when no blocks were asked for.
PHASE_BINS = 20
MODES = ("first_episode", "warmup", "jitter", "snapshot")


def check_mode(mode: str, offsets: Any, weighs_blocks: bool, reassign_every: int | None, undoes_starts: bool) -> None:
    """
    :param mode: What shifts the slots.
    :param offsets: The rule of the offsets.
    :param weighs_blocks: Whether weights of blocks were given.
    :param reassign_every: Number of episodes between two offsets of a slot.
    :param undoes_starts: Whether episodes end by another rule than that of their start.
    :raises ValueError: if there is no such mode, or an argument does nothing in it or works against it.
    """
    if mode not in MODES:
        raise ValueError(f"mode={mode!r} is not one of 'first_episode', 'warmup', 'jitter' and 'snapshot'")
    if reassign_every is not None and reassign_every < 1:
        raise ValueError(f"reassign_every={reassign_every} must be at least 1 episode")
    if mode == "snapshot" and (undoes_starts or reassign_every is not None):
        raise ValueError(
            "mode='snapshot' decides in which block each episode begins: group_reset, reassign_every and horizon_budget "
            "would undo that"
        )
    if weighs_blocks and mode != "snapshot" and offsets != "blocks":
        raise ValueError(
            f"block_weights are for the blocks of offsets='blocks' or mode='snapshot': with offsets={offsets!r} and "
            f"mode={mode!r} they do nothing"
        )


def check_fractions(random_fraction: float, full_fraction: float, jitter_fraction: float) -> None:
    """
    :param random_fraction: Share of the slots.
    :param full_fraction: Share of the episodes.
    :param jitter_fraction: Share of the horizon.
    :raises ValueError: if one is out of range.
    """
    if not (0.0 <= random_fraction <= 1.0 and 0.0 <= full_fraction <= 1.0 and 0.0 <= jitter_fraction < 1.0):
        raise ValueError(
            f"random_fraction={random_fraction} and full_fraction={full_fraction} must lie in [0, 1], "
            f"jitter_fraction={jitter_fraction} in [0, 1)"
        )


def count_blocks(mode: str, horizon: int, n_blocks: int | None, n_steps: int | None, multiplier: int) -> int:
    """
    :param mode: What shifts the slots.
    :param horizon: Length of a full episode [steps].
    :param n_blocks: The user's number of blocks.
    :param n_steps: Rollout length that blocks are to match.
    :param multiplier: Blocks per rollout length.
    :return: Number of blocks, or of bins that phases are measured in.
    :raises ValueError: if the horizon cannot be divided so.
    """
    if n_blocks is not None:
        if not 1 <= n_blocks <= horizon:
            raise ValueError(f"n_blocks={n_blocks} must lie between 1 and the horizon of {horizon} steps")
        return n_blocks
    if n_steps is None:
        return min(PHASE_BINS, horizon)
    blocks = staggering.n_blocks(horizon, n_steps, multiplier)
    if mode == "snapshot" and blocks < 2:
        raise ValueError(
            f"mode='snapshot' needs at least 2 blocks, but n_steps={n_steps} covers the horizon of {horizon} steps: give "
            "n_blocks"
        )
    return blocks
