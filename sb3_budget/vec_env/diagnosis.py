"""What staggering does in a run."""

from __future__ import annotations

from typing import NamedTuple


class StaggerDiagnosis(NamedTuple):
    """
    What staggering does in this run.

    :param phase_coverage: Share of phase bins that a step fell into since the last measurement.
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
