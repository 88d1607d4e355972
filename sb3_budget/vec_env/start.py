"""Where an episode begins."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

from sb3_budget.states.state import State


class Start(NamedTuple):
    """
    One way to begin an episode.

    ``seed`` and ``options`` may be given together, ``snapshot`` only by itself; with none, the start is the environment's
    own reset under a name.

    :param id: Name of the start. It is reported as ``info["sb3_budget"]["start_id"]`` when the episode ends.
    :param seed: Passed to ``env.reset(seed=...)``. The slot's generator is re-seeded afterwards, so that the
        seed decides the start state and nothing later.
    :param options: Passed to ``env.reset(options=...)``.
    :param snapshot: A saved state to begin in, from :meth:`EpisodeControlVecEnv.get_states
        <sb3_budget.EpisodeControlVecEnv.get_states>` or :func:`sb3_budget.states.save_state`.
    :param keep_time: Whether the environment's time limit goes on counting from the saved step (default), or grants a
        full episode.
    :param reseed: Whether noise after a snapshot is the slot's own (default). Otherwise it is that of the saved
        environment, and equal actions have equal outcomes, up to and including the slot's next own reset.
    :param horizon: Longest length of the episode, in steps. ``None`` leaves the environment's own limit.
    """

    id: Hashable
    seed: int | None = None
    options: dict[str, Any] | None = None
    snapshot: State | None = None
    keep_time: bool = True
    reseed: bool = True
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
    given = [name for name in ("seed", "options") if getattr(start, name) is not None]
    if start.snapshot is not None and given:
        raise ValueError(
            f"Start {start.id!r} has a snapshot, which is a whole state, and {' and '.join(given)}: give one of them"
        )
    if start.snapshot is None and not (start.keep_time and start.reseed):
        raise ValueError(f"Start {start.id!r} has keep_time or reseed, which only say how a snapshot goes on, and no snapshot")
    if start.snapshot is not None and not isinstance(start.snapshot, State):
        raise ValueError(f"Start {start.id!r} has a snapshot that is no State but a {type(start.snapshot).__name__}")
    if start.horizon is not None and start.horizon < 1:
        raise ValueError(f"Start {start.id!r} has horizon={start.horizon}: it must be at least 1 step")
