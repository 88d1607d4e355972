"""The gate that stops a whole group once its members do the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sb3_budget.core.calibration import Calibration
from sb3_budget.core.convergence import edit_distance, gaussian_distance, return_spread
from sb3_budget.core.gates import WINDOW
from sb3_budget.core.group_gates import require_members
from sb3_budget.core.groups import equal_returns
from sb3_budget.core.ranges import require_share
from sb3_budget.core.scores import RolloutView, ScoreWindow, return_score
from sb3_budget.core.starts import Moments, add_values


class GroupPrefixes(NamedTuple):
    """
    What the members of a group have done in the first steps of one episode.

    :param actions: Actions before clipping, shape (n_members, n_steps, ...).
    :param stds: The policy's standard deviations at these steps, same shape; ``None`` for discrete actions.
    :param scores: Estimated returns :math:`R_{0:L} + \\gamma^L V(s_L)`, shape (n_members,).
    :param scale: Standard deviation of the estimated returns of all groups of late.
    """

    actions: NDArray[Any]
    stds: NDArray[np.float64] | None
    scores: NDArray[np.float64]
    scale: float


Distance = Callable[[GroupPrefixes], float]


def action_distance(prefixes: GroupPrefixes) -> float:
    """
    :param prefixes: What the members have done.
    :return: Edit distance of discrete actions, distance beyond the noise of continuous ones.
    """
    if prefixes.stds is not None:
        return gaussian_distance(prefixes.actions, prefixes.stds)
    return edit_distance(prefixes.actions)


def spread_distance(prefixes: GroupPrefixes) -> float:
    """
    :param prefixes: What the members have done.
    :return: Spread of their estimated returns relative to that of all groups.
    """
    return return_spread(prefixes.scores, prefixes.scale)


DISTANCES: dict[str, Distance] = {"actions": action_distance, "returns": spread_distance}


class _Member(NamedTuple):
    actions: NDArray[Any]
    stds: NDArray[np.float64] | None
    score: float


class _Group:
    """The episodes of one start by member, until the last of them has ended."""

    def __init__(self) -> None:
        self.prefixes: dict[int, _Member] = {}
        self.returns: dict[int, float] = {}
        #: Infinite where a member ended before it could be compared.
        self.distance = np.inf
        #: How many groups it stands for, which is 0 where its returns do not tell.
        self.weight = 1.0


class ConvergenceGate:
    """
    Stops all members of a group once what they did in the first steps of an episode has become alike (Zhai & Wang, 2026,
    https://arxiv.org/abs/2605.05802). Where all members will have the same return, the rest of the episode has nothing to
    tell about which action is better.

    The decision is made once, when the last member is ``steps`` old; a group of which a member ended earlier runs on.
    Members that are older by then are stopped too, those that have gone on to their next episode are not.

    At first the gate only watches: of each finished group it notes the distance and whether all returns were alike.
    Afterwards it cuts at the largest distance whose precision on these groups was at least ``precision_floor``. A share of
    the groups that it would cut runs on, stands for those that do not, and keeps the threshold up to date. What is noted
    are the latest 200 groups, or ``calibration_groups`` where that is more.

    :param steps: Age at which members are compared [steps]. About a third of the horizon in the paper.
    :param threshold: Cut at distances up to this one, instead of one that is calibrated.
    :param precision_floor: Share of the cut groups that must have had zero variance, in ``[0, 1]``.
    :param calibration_groups: Nothing is cut before so many groups have finished.
    :param arm_at: Nothing is cut while the share of groups with zero variance is smaller, in ``[0, 1]``: where groups
        hardly ever have none, there is little to save and the precision is a guess.
    :param audit_fraction: Chance that a group runs on which the gate would cut, in ``[0, 1]``; positive where the threshold
        is calibrated or ``arm_at`` is positive. The audit of the callback, which is one of single episodes, does not concern
        this gate.
    :param distance: ``"actions"`` (default): mean edit distance of discrete actions, in ``[0, 1]``; for Gaussian ones
        the mean squared distance beyond the policy's noise. ``"returns"``: spread of the estimated returns, for dense
        rewards. Or a function of a :class:`~sb3_budget.core.convergence_gate.GroupPrefixes`.
    :param tolerance: Returns of a group that differ by no more have zero variance, in units of the standard deviation of
        all returns.
    :param fate: ``"stop"`` (default): the critic completes the returns. ``"drop"``: as in the paper, the group's episodes
        are left out of the loss, with the rows of the present rollout; needs the buffer of :class:`~sb3_budget.GRPO`.
    :raises ValueError: if an argument is out of range, or, when training starts, there are no groups.
    """

    whole_groups = True

    def __init__(
        self,
        steps: int = 10,
        threshold: float | None = None,
        precision_floor: float = 0.8,
        calibration_groups: int = 50,
        arm_at: float = 0.1,
        audit_fraction: float = 0.1,
        distance: str | Distance = "actions",
        tolerance: float = 1e-6,
        fate: str = "stop",
    ):
        if steps < 1 or calibration_groups < 0:
            raise ValueError(f"steps={steps} must be at least 1 and calibration_groups={calibration_groups} not negative")
        shares = {"precision_floor": precision_floor, "arm_at": arm_at, "audit_fraction": audit_fraction}
        for name, share in shares.items():
            require_share(name, share)
        if threshold is None and (audit_fraction == 0.0 or calibration_groups == 0):
            raise ValueError(
                f"audit_fraction={audit_fraction} and calibration_groups={calibration_groups} must be positive for a "
                "threshold that is calibrated on groups which run on: give a threshold, or let some run on"
            )
        if audit_fraction == 0.0 and arm_at > 0.0:
            raise ValueError(
                f"audit_fraction=0 lets no group run on that is cut, so that arm_at={arm_at} would look at all others alone: "
                "let some run on, or set arm_at=0"
            )
        if not tolerance >= 0.0:
            raise ValueError(f"tolerance={tolerance} must not be negative")
        if not callable(distance) and distance not in DISTANCES:
            raise ValueError(f"distance={distance!r} is not one of {sorted(DISTANCES)} or a callable")
        if fate not in ("stop", "drop"):
            raise ValueError(f"fate={fate!r} is neither 'stop' nor 'drop'")
        self.steps = steps
        self.audit_fraction = audit_fraction
        self.tolerance = tolerance
        self.drops = fate == "drop"
        #: Number of groups that were cut.
        self.n_cut = 0
        self.calibration = Calibration(threshold, precision_floor, calibration_groups, arm_at)
        self._distance: Distance = distance if callable(distance) else DISTANCES[distance]
        self._needs_std = self._distance is action_distance
        self._scores = ScoreWindow(WINDOW)
        #: Of the returns of all episodes that were not stopped.
        self._moments = Moments()
        self._forget()

    def _forget(self) -> None:
        self._open: dict[tuple[int, int], _Group] = {}
        self._actions: NDArray[Any] | None = None
        self._stds: NDArray[np.float64] | None = None

    # ------------------------------------------------------------------ hooks

    def start_training(self, group_size: int) -> None:
        """
        Forget open episodes; what was noted of finished groups stays.

        :param group_size: Slots per group.
        :raises ValueError: if there are no groups.
        """
        require_members(type(self).__name__, group_size, 2)
        self._forget()

    def __call__(self, view: RolloutView) -> NDArray[np.bool_]:
        stop = np.zeros(len(view.look), dtype=bool)
        if view.episodes is None or view.members is None or view.actions is None:
            return stop
        if self._actions is None:
            self._begin(view)
        self._keep(view)
        for slot in (self._watched & (view.lengths == self.steps)).nonzero()[0].tolist():
            group = self._arrive(slot, view)
            if len(group.prefixes) == self._group_size and self._cuts(group, view):
                mates = np.arange(len(stop)) // self._group_size == slot // self._group_size
                stop |= mates & (view.episodes == view.episodes[slot])
        return stop

    def end_episodes(
        self, slots: NDArray[np.int64], returns: NDArray[np.float64], lengths: NDArray[np.int64], reasons: Sequence[str]
    ) -> None:
        """
        Note the groups whose last member has ended.

        :param slots: Slots whose episode ended.
        :param returns: Undiscounted sums of their raw rewards.
        :param lengths: Their lengths.
        :param reasons: Why each ended.
        """
        if self._actions is None:
            return
        for slot, total, reason in zip(slots.tolist(), returns.tolist(), reasons, strict=True):
            place = slot // self._group_size, int(self._episodes[slot])
            group = self._open.setdefault(place, _Group())
            group.returns[int(self._members[slot])] = total
            if reason == "stopped" or not self._watched[slot]:
                group.weight = 0.0
            else:
                self._moments = add_values(self._moments, [total])
            if len(group.returns) == self._group_size:
                del self._open[place]
                if group.weight > 0.0:
                    equal = equal_returns(list(group.returns.values()), self.tolerance, self._moments.std)
                    self.calibration.note(group.distance, equal, group.weight)

    def log_values(self) -> dict[str, float]:
        """
        :return: What the gate knows of the latest groups, by key.
        """
        log = {"budget/gate_groups_cut": float(self.n_cut), "budget/gate_zero_variance": self.calibration.zero_variance}
        if np.isfinite(self.calibration.median_distance):
            log["budget/gate_distance"] = self.calibration.median_distance
        if self.calibration.threshold is not None:
            log["budget/gate_threshold"] = self.calibration.threshold
        return log

    # ------------------------------------------------------------------ parts

    def _begin(self, view: RolloutView) -> None:
        assert view.actions is not None
        # Bits are floating-point numbers too.
        continuous = np.issubdtype(view.actions.dtype, np.floating) and (view.actions != np.round(view.actions)).any()
        if self._needs_std and continuous and view.action_std is None:
            raise ValueError(
                "ConvergenceGate measures continuous actions in the policy's standard deviations, which are not those of a "
                "plain Gaussian here: use distance='returns'"
            )
        n_envs, *dims = view.actions.shape
        self._group_size = view.group_size
        #: Slots whose present episode has been followed from its beginning.
        self._watched = np.zeros(n_envs, dtype=bool)
        self._actions = np.zeros((n_envs, self.steps, *dims), dtype=view.actions.dtype)
        self._stds = None if view.action_std is None else np.zeros((n_envs, self.steps, *dims))

    def _keep(self, view: RolloutView) -> None:
        """Append the actions of this step."""
        assert self._actions is not None and view.episodes is not None
        assert view.members is not None and view.actions is not None
        self._episodes, self._members = view.episodes, view.members
        self._watched |= view.lengths == 0
        young = (view.lengths < self.steps).nonzero()[0]
        if len(young):
            ages = view.lengths[young]
            self._actions[young, ages] = view.actions[young]
            if self._stds is not None and view.action_std is not None:
                self._stds[young, ages] = view.action_std.reshape(view.actions.shape)[young]

    def _arrive(self, slot: int, view: RolloutView) -> _Group:
        """Leave a member's prefix with its group: the slot may be in its next episode before the last one comes."""
        assert self._actions is not None and view.episodes is not None and view.members is not None
        group = self._open.setdefault((slot // self._group_size, int(view.episodes[slot])), _Group())
        score = return_score(view)[slot]
        self._scores.add(np.array([score]))
        stds = None if self._stds is None else self._stds[slot].copy()
        group.prefixes[int(view.members[slot])] = _Member(self._actions[slot].copy(), stds, float(score))
        return group

    def _cuts(self, group: _Group, view: RolloutView) -> bool:
        actions, stds, scores = zip(*group.prefixes.values(), strict=True)
        stacked = None if stds[0] is None else np.stack(stds)
        prefixes = GroupPrefixes(np.stack(actions), stacked, np.array(scores), float(self._scores.scores.std()))
        group.distance = self._distance(prefixes)
        if not (view.active and self.calibration.cuts(group.distance)):
            return False
        if view.rng.random() < self.audit_fraction:
            # It stands for all that would have been cut like it, or the threshold would be fitted to the others alone.
            group.weight /= self.audit_fraction
            return False
        group.weight = 0.0
        self.n_cut += 1
        return True

    def __getstate__(self) -> dict[str, Any]:
        # Numbers of episodes mean nothing to another training.
        return {**self.__dict__, "_open": {}, "_actions": None, "_stds": None}
