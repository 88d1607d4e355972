"""Gates that compare the members of a group, which begin their episodes in the same starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sb3_budget.core.gate_rules import below_quantile
from sb3_budget.core.gates import Gate, Schedule
from sb3_budget.core.ranges import require_share
from sb3_budget.core.scores import RolloutView, Score, parse_score


class GroupGate(Gate, Protocol):
    """
    What :class:`~sb3_budget.SelectiveRolloutCallback` tells a gate that wants to hear of it. All of this is optional, and
    open to any gate.

    A gate with a true attribute ``whole_groups`` decides at its own time and for all members at once: the ages of looks
    and the audit, caps and coin of the callback, which are for single episodes, do not apply to it. With a true
    attribute ``drops`` besides, the episodes that it stops are left out of the loss, together with their group mates'.
    A gate with a true attribute ``needs_heads`` is refused where the policy has one critic.
    """

    def start_training(self, group_size: int) -> None:
        """
        Before a training's first step; episodes that are open may have been broken off.

        :param group_size: Slots per group, 1 without groups.
        """

    def end_episodes(
        self, slots: NDArray[np.int64], returns: NDArray[np.float64], lengths: NDArray[np.int64], reasons: Sequence[str]
    ) -> None:
        """
        After a step, and so after the view of it, where episodes ended with it.

        :param slots: Their slots, shape (n,).
        :param returns: Undiscounted sums of their raw rewards, shape (n,).
        :param lengths: Their lengths [steps], shape (n,).
        :param reasons: Why each ended: ``"terminated"``, ``"time_limit"``, ``"stopped"`` ...
        """

    def log_values(self) -> dict[str, float]:
        """
        :return: What to log at the end of a rollout, by key.
        """
        ...


def limit_group_stops(
    stop: NDArray[np.bool_],
    scores: NDArray[np.float64],
    groups: NDArray[np.int64],
    already_stopped: NDArray[np.int64],
    cap: int,
    rng: np.random.Generator,
) -> NDArray[np.bool_]:
    """
    Keep the number of stops in each group under a cap.

    :param stop: Slots that a gate would stop, shape (n_envs,).
    :param scores: Their scores; the lowest of a group are stopped first, ties in random order.
    :param groups: Number of the group of each slot, any integers, shape (n_envs,).
    :param already_stopped: How many of its group have been stopped before, shape (n_envs,).
    :param cap: Largest number of stops of a group, those before included.
    :param rng: Breaks ties.
    :return: As many of the given slots as the cap allows.
    """
    limited = np.zeros_like(stop)
    if not np.count_nonzero(stop):
        return limited
    shuffled = rng.permutation(np.flatnonzero(stop))
    stopped: dict[int, int] = {}
    for slot in shuffled[np.argsort(scores[shuffled], kind="stable")].tolist():
        n_stopped = stopped.setdefault(int(groups[slot]), int(already_stopped[slot]))
        if n_stopped < cap:
            limited[slot] = True
            stopped[int(groups[slot])] += 1
    return limited


def require_members(gate: str, group_size: int, needed: int) -> None:
    """
    :param gate: Name of the gate that asks.
    :param group_size: Slots per group.
    :param needed: Least number of members.
    :raises ValueError: if a group has fewer.
    """
    if group_size < needed:
        raise ValueError(
            f"{gate} compares at least {needed} members of a group, but group_size={group_size}: train with "
            "GRPO(..., group_size=...), or use QuantileGate"
        )


class _Race:
    """The members' scores at each age of the episodes of one start, and whom the gate has asked to stop."""

    def __init__(self) -> None:
        self.rungs: dict[int, dict[int, float]] = {}
        self.asked: set[int] = set()


class GroupQuantileGate:
    """
    Stops a member of a group whose score lies below a quantile of what its group mates scored at the same age of the same
    episode, now or earlier: rungs, as in successive halving (Jamieson & Talwalkar, 2016,
    https://arxiv.org/abs/1502.07943). Members began alike, so that neither start nor age is in the way of the comparison.

    The first members to come to a rung find too few peers there and pass.

    :param quantile: Share of the peers, in ``[0, 1]``, or a schedule of the progress remaining.
    :param score: ``"return"`` (default), ``"value"``, ``"surprise"`` or a function of a :class:`~sb3_budget.RolloutView`.
    :param min_peers: Least number of group mates to compare with, positive.
    :param group_cap: Largest share of a group's members that may be stopped in one episode, in ``[0, 1]``.
    :param min_active: Least number of members that are not stopped in an episode.
    :raises ValueError: if an argument is out of range, or, when training starts, groups are too small.
    """

    def __init__(
        self,
        quantile: float | Schedule = 0.25,
        score: str | Score = "return",
        min_peers: int = 3,
        group_cap: float = 0.5,
        min_active: int = 1,
    ):
        for name, share in (("quantile", quantile), ("group_cap", group_cap)):
            if not callable(share):
                require_share(name, share)
        if min_peers < 1 or min_active < 0:
            raise ValueError(f"min_peers={min_peers} must be at least 1 and min_active={min_active} not negative")
        self.quantile = quantile
        self.min_peers, self.group_cap, self.min_active = min_peers, group_cap, min_active
        self._score, _ = parse_score(score)
        #: By group, then by number of the episode.
        self._open: dict[int, dict[int, _Race]] = {}

    def start_training(self, group_size: int) -> None:
        """
        Forget open episodes.

        :param group_size: Slots per group.
        :raises ValueError: if a group is too small for a comparison.
        """
        require_members(type(self).__name__, group_size, self.min_peers + 1)
        if self._cap(group_size) < 1:
            raise ValueError(
                f"group_cap={self.group_cap} and min_active={self.min_active} leave no member of group_size={group_size} "
                "that could be stopped"
            )
        self._open.clear()

    def __call__(self, view: RolloutView) -> NDArray[np.bool_]:
        due = view.look if view.due is None else view.due
        stop = np.zeros(len(due), dtype=bool)
        slots = due.nonzero()[0].tolist()
        if not slots or view.episodes is None or view.members is None:
            return stop
        scores, members = self._score(view), view.members
        races = {slot: self._enter(slot, float(scores[slot]), view) for slot in slots}
        # Without a stop that is carried out there is nothing to count against the cap.
        judged = [slot for slot in slots if view.look[slot]] if view.active else []
        again = np.zeros_like(stop)
        already = np.zeros(len(stop), dtype=np.int64)
        for slot in judged:
            asked = races[slot].asked
            again[slot], already[slot] = members[slot] in asked, len(asked)
            stop[slot] = self._below(int(members[slot]), races[slot].rungs[int(view.lengths[slot])], view)
        again &= stop
        races_of_slots = view.episodes * len(stop) + np.arange(len(stop)) // view.group_size
        stop = limit_group_stops(stop & ~again, scores, races_of_slots, already, self._cap(view.group_size), view.rng)
        for slot in stop.nonzero()[0].tolist():
            races[slot].asked.add(int(members[slot]))
        return stop | again

    def _enter(self, slot: int, score: float, view: RolloutView) -> _Race:
        """Leave a score at the slot's rung, and forget rungs that no member will come to any more."""
        assert view.episodes is not None and view.members is not None
        group, episode = slot // view.group_size, int(view.episodes[slot])
        races = self._open.setdefault(group, {})
        if episode not in races:
            last = view.episodes[group * view.group_size : (group + 1) * view.group_size].min()
            for passed in [number for number in races if number < last]:
                del races[passed]
            races[episode] = _Race()
        races[episode].rungs.setdefault(int(view.lengths[slot]), {})[int(view.members[slot])] = score
        return races[episode]

    def _below(self, member: int, rung: dict[int, float], view: RolloutView) -> bool:
        peers = np.array([score for other, score in rung.items() if other != member])
        if len(peers) < self.min_peers:
            return False
        quantile = self.quantile(view.progress_remaining) if callable(self.quantile) else self.quantile
        return bool(below_quantile(np.array([rung[member]]), peers, float(np.clip(quantile, 0.0, 1.0)))[0])

    def _cap(self, group_size: int) -> int:
        # A share of 0.3 of ten members is three of them, whatever rounding makes of the product.
        return min(int(self.group_cap * group_size + 1e-9), group_size - self.min_active)

    def __getstate__(self) -> dict[str, object]:
        # Numbers of episodes mean nothing to another training.
        return {**self.__dict__, "_open": {}}
