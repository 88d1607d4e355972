"""What staggering does in a run."""

from __future__ import annotations

from typing import NamedTuple

#: Share of first episodes ending by themselves from which on staggering is reported to be idle.
DISPERSED_SHARE = 0.75


class StaggerDiagnosis(NamedTuple):
    """
    What staggering does in this run.

    :param phase_coverage: Share of phase bins that a step fell into since the measurement before.
    :param phase_entropy: Entropy of those bins, 1 for an even spread.
    :param dispersion: Circular dispersion of the slots' present phases: 0 when all are in step, 1 when even.
    :param early_end_ratio: Share of slots whose first episode ended by itself before its staggered end.
    :param advice: Reasons why staggering cannot help here; empty when none was found.
    """

    phase_coverage: float
    phase_entropy: float
    dispersion: float
    early_end_ratio: float
    advice: tuple[str, ...]


def static_advice(lone: bool, n_steps: int | None, horizon: int) -> list[str]:
    """
    :param lone: Whether there is one slot, with nothing but other slots to be shifted against.
    :param n_steps: Rollout length, if it is known.
    :param horizon: Length of a full episode [steps].
    :return: Reasons, known before any step, why staggering cannot help.
    """
    advice = []
    if lone:
        advice.append("there is one slot, and staggering shifts slots against each other")
    if n_steps is not None and n_steps >= horizon:
        advice.append(f"a rollout of {n_steps} steps covers the horizon of {horizon} steps by itself")
    return advice


def measured_advice(early_end_ratio: float) -> list[str]:
    """
    :param early_end_ratio: See :class:`StaggerDiagnosis`, of first episodes that are over.
    :return: Reasons why staggering did not help.
    """
    if early_end_ratio < DISPERSED_SHARE:
        return []
    return [f"{early_end_ratio:.0%} of the first episodes ended by themselves before their offset could shift them"]
