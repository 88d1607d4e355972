"""Where an episode begins."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple


class Start(NamedTuple):
    """
    One way to begin an episode.

    At most one of ``seed`` and ``options`` is set; with neither, the start is the environment's own
    reset under a name.

    :param id: Name of the start. It is reported as ``info["sb3_budget"]["start_id"]`` when the episode ends.
    :param seed: Passed to ``env.reset(seed=...)``. The slot's generator is re-seeded afterwards, so that the
        seed decides the start state and nothing later.
    :param options: Passed to ``env.reset(options=...)``.
    :param horizon: Longest length of the episode, in steps. ``None`` leaves the environment's own limit.
    """

    id: Hashable
    seed: int | None = None
    options: dict[str, Any] | None = None
    horizon: int | None = None


#: Asked with the slot's index at each of its resets; ``None`` means the environment's own reset.
StartSampler = Callable[[int], Start | None]


def check_start(start: Start) -> None:
    """
    :param start: A start that a sampler returned.
    :raises ValueError: if its fields contradict each other.
    """
    if not isinstance(start, Start):
        raise ValueError(f"A start sampler must return a Start or None, not {type(start).__name__}")
    if start.seed is not None and start.options is not None:
        raise ValueError(f"Start {start.id!r} has a seed and options: give one of them")
    if start.horizon is not None and start.horizon < 1:
        raise ValueError(f"Start {start.id!r} has horizon={start.horizon}: it must be at least 1 step")
