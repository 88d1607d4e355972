"""The record of a gate, on cases that can be checked by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from sb3_budget.core.audit import audit_statistics

EXAMPLES = settings(max_examples=25, deadline=None, derandomize=True)
TRIPLES = npst.arrays(np.float64, st.tuples(st.just(3), st.integers(1, 30)), elements=st.integers(-50, 50).map(float))


def test_closed_form():
    statistics = audit_statistics(np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.0, 4.0, 0.0, 4.0]), np.full(4, 2.5))
    assert statistics.n == 4
    assert statistics.precision == 0.5 and statistics.false_stop_ratio == 0.5
    assert statistics.value_bias == pytest.approx((1 - 2 + 3 + 0) / 4)
    assert statistics.value_rmse == pytest.approx(np.sqrt((1 + 4 + 9 + 0) / 4))


def test_a_tail_as_good_as_the_reference_was_stopped_in_vain():
    assert audit_statistics(np.zeros(1), np.ones(1), np.ones(1)).precision == 0.0


def test_without_a_record_everything_is_unknown():
    statistics = audit_statistics(np.zeros(0), np.zeros(0), np.zeros(0))
    assert statistics.n == 0 and np.isnan(statistics[1:]).all()


@EXAMPLES
@given(TRIPLES, st.integers(-50, 50))
def test_a_shift_of_all_values_changes_nothing(triples, shift):
    before, after = audit_statistics(*triples), audit_statistics(*(triples + shift))
    np.testing.assert_allclose(after, before, atol=1e-9)


@EXAMPLES
@given(TRIPLES)
def test_bounds(triples):
    statistics = audit_statistics(*triples)
    assert 0.0 <= statistics.precision <= 1.0
    assert statistics.precision + statistics.false_stop_ratio == pytest.approx(1.0)
    assert abs(statistics.value_bias) <= statistics.value_rmse + 1e-9
