"""What the steps of a rollout tell of archived states."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.buffers import RolloutBuffer

from sb3_budget.callbacks.note_rows import OWN_ENDS
from sb3_budget.callbacks.start_plan import Brought, StartPlan
from sb3_budget.core.anchor_record import AnchorRecord, credit, large_cuts, one_step_errors
from sb3_budget.core.anchors import advantage_priority, progress_priority, spread_priority, td_priority


class CellStart(NamedTuple):
    """
    Name of a start in an archived cell.

    :param kind: ``"cell"``, for whoever reads ``info["sb3_budget"]["start_id"]``.
    :param row: The cell's row in the archive.
    :param version: How often the row had changed hands.
    """

    kind: str
    row: int
    version: int


class Measured(NamedTuple):
    """
    What is measured, since something asks for it. Advantages always are.

    :param td_errors: One-step errors of the critic.
    :param spread: Disagreement of several critics.
    :param progress: Learning progress of the returns from each state.
    :param cuts: Ends by a horizon while advantages were large.
    :param brought: What the rollout has brought.
    """

    td_errors: bool
    spread: bool
    progress: bool
    cuts: bool
    brought: bool

    @classmethod
    def of(cls, plan: StartPlan, model: BaseAlgorithm) -> Measured:
        """
        :param plan: What starts are chosen by.
        :param model: The algorithm.
        :return: What has to be measured for that.
        :raises ValueError: if the algorithm cannot provide it.
        """
        signals = plan.signals
        if not hasattr(model, "rollout_buffer"):
            for asked, name in (
                (advantage_priority in signals, "priority='advantage'"),
                (td_priority in signals, "priority='td'"),
                (plan.doubles, "horizon='adaptive'"),
            ):
                if asked:
                    raise ValueError(f"{name} needs an on-policy algorithm, not {type(model).__name__}")
        if spread_priority in signals and getattr(model.policy, "n_critics", 1) < 2:
            raise ValueError("priority='critic_spread' needs several critics: EnsembleActorCriticPolicy")
        return cls(
            td_errors=td_priority in signals,
            spread=spread_priority in signals,
            progress=progress_priority in signals,
            cuts=plan.doubles,
            brought=plan.learns,
        )


class RolloutNotes:
    """
    Takes notes at each step, and puts them into the record when the rollout ends.

    :param record: What is known of each row of the archive.
    :param measured: What is measured.
    :param running: Slots whose episode began before notes were taken, maybe in a state of another archive, shape (n_envs,).
    """

    def __init__(self, record: AnchorRecord, measured: Measured, running: NDArray[np.bool_]):
        self.record, self.measured = record, measured
        self._began_before = running.copy()
        self._follows_ends = measured.progress or measured.cuts or measured.brought
        self._start()

    def _start(self) -> None:
        self._rows: list[NDArray[np.int64]] = []
        self._versions: list[NDArray[np.int64]] = []
        self._spreads: list[NDArray[np.float64]] = []
        #: Step, slot, row and version of episodes from archived states that a horizon ended.
        self._cuts: list[tuple[int, int, int, int]] = []
        #: Row, version, length and return of episodes from archived states.
        self._ended: list[tuple[int, int, int, float]] = []
        self._own_returns: list[float] = []

    def step(self, rows: NDArray[np.int64], versions: NDArray[np.int64], policy: Any, dones: Any, infos: Any) -> None:
        """
        :param rows: Rows of the cells in which the step was taken, -1 for none, shape (n_envs,).
        :param versions: How often each of these rows has changed hands, shape (n_envs,).
        :param policy: The policy.
        :param dones: Slots whose episode ended.
        :param infos: The slots' ``info``.
        """
        self._rows.append(rows)
        self._versions.append(versions)
        if self.measured.spread:
            self._spreads.append(policy.last_value_heads.std(dim=0, correction=0).numpy(force=True).astype(np.float64))
        if self._follows_ends:
            for slot in np.flatnonzero(dones & ~self._began_before).tolist():
                self._end(slot, infos[slot]["sb3_budget"])
            self._began_before &= ~dones

    def _end(self, slot: int, end: dict[str, Any]) -> None:
        start_id = end["start_id"]
        if not isinstance(start_id, CellStart):
            if end["reason"] in OWN_ENDS:
                self._own_returns.append(end["return"])
            return
        _, row, version = start_id
        self._ended.append((row, version, end["length"], end["return"]))
        if self.measured.progress:
            present = self.record.present(np.array([row]), np.array([version]))
            credit(self.record.progress, present, np.array([end["return"]]))
        if self.measured.cuts and end["reason"] == "horizon":
            self._cuts.append((len(self._rows) - 1, slot, row, version))

    def brought(self, buffer: RolloutBuffer | None, n_envs: int) -> Brought:
        """
        :param buffer: The rollout with its returns, ``None`` off-policy.
        :param n_envs: Number of slots.
        :return: What it has brought, as far as there are notes of it.
        """
        rows, versions, lengths, returns = np.array(self._ended, dtype=np.float64).reshape(-1, 4).T
        began = self.record.present(rows.astype(np.int64), versions.astype(np.int64))
        visited, errors, critic_error = np.zeros(0, dtype=np.int64), np.zeros(0), None
        if buffer is not None:
            squares = (buffer.returns - buffer.values) ** 2
            critic_error = float(np.mean(squares))
            if self._rows:
                visited = self._visited().ravel()
                errors = squares[: len(self._rows)].ravel().astype(np.float64)
        return Brought(
            len(self._rows) * n_envs,
            self._own_returns,
            critic_error,
            began,
            lengths.astype(np.int64),
            returns,
            visited,
            errors,
        )

    def _visited(self) -> NDArray[np.int64]:
        """:return: Rows of the cells in which steps were taken, as far as they are theirs still, shape (n_steps, n_envs)."""
        return self.record.present(np.stack(self._rows), np.stack(self._versions))

    def close(self, buffer: RolloutBuffer | None) -> None:
        """
        :param buffer: The rollout with its advantages, ``None`` off-policy.
        """
        if buffer is not None and self._rows:
            rows = self._visited()
            n = len(rows)
            credit(self.record.advantages, rows, np.abs(buffer.advantages[:n]))
            if self.measured.td_errors:
                errors = one_step_errors(buffer.rewards[:n], buffer.values[:n], buffer.episode_starts[:n], buffer.gamma)
                credit(self.record.td_errors, rows, errors)
            if self.measured.spread:
                credit(self.record.spread, rows, np.stack(self._spreads))
            if self._cuts:
                ends, slots, began, versions = np.array(self._cuts).T
                large = large_cuts(buffer.advantages[:n], buffer.episode_starts[:n], ends, slots)
                present = self.record.present(began, versions)
                np.add.at(self.record.cuts, present[large & (present >= 0)], 1)
        self._start()
