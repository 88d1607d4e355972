"""What would have become of the episodes that a gate wanted to stop."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class AuditStatistics(NamedTuple):
    """
    A gate's record on the episodes that were allowed to run on.

    :param n: Number of audited episodes that have ended.
    :param precision: Share whose realised tail was worth less than the critic's mean value of all slots when the gate
        asked for the stop. A critic that is biased upwards raises it for any gate, so compare it with that of a
        :class:`~sb3_budget.RandomGate` of the same rate.
    :param false_stop_ratio: ``1 - precision``.
    :param value_bias: Mean of the critic's value at the would-be stop minus the realised discounted tail: the bias
        of the bootstrap of stopped episodes.
    :param value_rmse: Root mean square of the same difference.
    """

    n: int
    precision: float
    false_stop_ratio: float
    value_bias: float
    value_rmse: float


def audit_statistics(
    values: NDArray[np.float64], tails: NDArray[np.float64], references: NDArray[np.float64]
) -> AuditStatistics:
    """
    :param values: Critic's value at the would-be stop, shape (n,).
    :param tails: Realised discounted return from there on, shape (n,).
    :param references: Mean value over all slots at that time, shape (n,).
    :return: The gate's record; NaN throughout where there is none.
    """
    if len(values) == 0:
        return AuditStatistics(0, np.nan, np.nan, np.nan, np.nan)
    precision = float((tails < references).mean())
    errors = values - tails
    return AuditStatistics(
        n=len(values),
        precision=precision,
        false_stop_ratio=1.0 - precision,
        value_bias=float(errors.mean()),
        value_rmse=float(np.sqrt((errors**2).mean())),
    )
