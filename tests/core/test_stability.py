"""Fluctuation and forgetting of a history of evaluations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from sb3_budget.core import stability as core

EXAMPLES = settings(max_examples=50, deadline=None, derandomize=True)
#: Integers in floating point: sums and shifts of them are exact.
HISTORIES = npst.arrays(np.float64, st.integers(1, 40), elements=st.integers(-1000, 1000).map(float))


def test_fluctuation_of_a_zigzag():
    # Inner moving means of three are +-1/3, the ends' means of two are 0.
    history = np.array([1.0, -1.0, 1.0, -1.0])
    assert core.fluctuation(history, 3) == pytest.approx(np.std([1.0, -4 / 3, 4 / 3, -1.0]))
    assert core.fluctuation(history, 3, first=1) == pytest.approx(np.std([-4 / 3, 4 / 3, -1.0]))


@EXAMPLES
@given(HISTORIES, st.integers(1, 50), st.integers(-1000, 1000))
def test_fluctuation_ignores_a_shift(history, window, shift):
    fluctuation = core.fluctuation(history, window)
    assert core.fluctuation(history + shift, window) == pytest.approx(fluctuation, abs=1e-9)
    assert core.fluctuation(history, 1) == 0.0
    assert core.fluctuation(np.full_like(history, shift), window) == pytest.approx(0.0, abs=1e-9)


def test_each_fall_counts_once():
    history = [0.0, 1.0, 0.7, 0.9, 0.5, 0.4, 1.2, 0.9, 1.2]
    assert core.forgetting_events(history, 0.2) == 3
    assert core.forgetting_events(history, 0.45) == 1
    assert core.forgetting_events(history, 1.0) == 0


@EXAMPLES
@given(HISTORIES, st.floats(0.0, 100.0))
def test_a_rising_history_forgets_nothing(history, tolerance):
    assert core.forgetting_events(np.sort(history), tolerance) == 0
    assert core.forgetting_events(history, np.ptp(history)) == 0
    assert core.forgetting_events(history, tolerance) <= len(history) // 2


def test_bad_input_is_refused():
    for bad in ([], [[1.0]]):
        with pytest.raises(ValueError, match=r"shape \(n,\) with at least one value"):
            core.fluctuation(bad, 3)
        with pytest.raises(ValueError, match=r"shape \(n,\) with at least one value"):
            core.forgetting_events(bad, 0.1)
    with pytest.raises(ValueError, match="window must be at least 1"):
        core.fluctuation([1.0], 0)
    with pytest.raises(ValueError, match=r"first must lie in \[0, 2\), got 2"):
        core.fluctuation([1.0, 2.0], 1, first=2)
    with pytest.raises(ValueError, match="tolerance must not be negative"):
        core.forgetting_events([1.0], -0.1)
