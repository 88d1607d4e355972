"""What a gate may offer beyond being called."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sb3_budget.core.scores import RolloutView


def require_uncapped(gate: Any, stop_probability: float, *caps: int | None) -> None:
    """
    :param gate: A gate.
    :param stop_probability: Chance that an episode which it rejects is stopped.
    :param caps: Caps on the number of stops.
    :raises ValueError: if coin or caps would tear the groups apart that the gate wants to stop whole.
    """
    if getattr(gate, "whole_groups", False) and (stop_probability < 1.0 or caps.count(None) < len(caps)):
        raise ValueError(
            f"stop_probability, max_stops_per_check and max_stops_per_rollout spare single episodes, but "
            f"{type(gate).__name__} stops whole groups: leave them out"
        )


class GateHooks:
    """
    Calls the optional parts of a gate, see :class:`~sb3_budget.core.group_gates.GroupGate`, where it has them.

    :param gate: The gate.
    :param buffer: The rollout buffer.
    :param group_size: Slots per group, 1 without groups.
    :param has_heads: Whether the policy has several critics.
    :raises ValueError: if the gate cannot work with these groups or this policy, or the buffer cannot drop episodes.
    """

    def __init__(self, gate: Any, buffer: Any, group_size: int, has_heads: bool):
        if getattr(gate, "needs_heads", False) and not has_heads:
            raise ValueError(f"{type(gate).__name__} needs a policy with several critics: use EnsembleActorCriticPolicy")
        self.whole_groups = bool(getattr(gate, "whole_groups", False))
        self._end = getattr(gate, "end_episodes", None)
        self._log = getattr(gate, "log_values", None)
        self._group_size = group_size
        drops = self.whole_groups and getattr(gate, "drops", False)
        self._drop = getattr(buffer, "drop_episodes", None) if drops else None
        start = getattr(gate, "start_training", None)
        if start is not None:
            start(group_size)
        if drops and self._drop is None:
            raise ValueError(
                f"{type(gate).__name__} leaves groups out of the loss, which {type(buffer).__name__} cannot do, as it has no "
                "drop_episodes(): use the buffer of GRPO, or fate='stop'"
            )

    def drop(self, mask: NDArray[np.bool_], view: RolloutView) -> None:
        """
        :param mask: Slots that the gate has asked to stop, shape (n_envs,).
        :param view: What it was shown.
        """
        if self._drop is not None and np.count_nonzero(mask):
            assert view.episodes is not None
            slots = np.flatnonzero(mask)
            groups, episodes = slots // self._group_size, view.episodes[slots]
            self._drop(set(zip(groups.tolist(), episodes.tolist(), strict=True)))

    def end(self, dones: NDArray[np.bool_], infos: Any) -> None:
        """
        :param dones: Slots whose episode ended with the step, shape (n_envs,).
        :param infos: The slots' ``info``.
        """
        if self._end is not None:
            slots = np.flatnonzero(dones)
            ends = [infos[slot]["sb3_budget"] for slot in slots]
            returns = np.array([end["return"] for end in ends])
            self._end(slots, returns, np.array([end["length"] for end in ends]), [end["reason"] for end in ends])

    def log_values(self) -> dict[str, float]:
        """
        :return: What the gate wants logged, by key.
        """
        return {} if self._log is None else self._log()
