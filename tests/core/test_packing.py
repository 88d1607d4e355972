"""What goes through columns comes back as it was, whatever it was."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sb3_budget.core.determinism import DeterminismDetector
from sb3_budget.core.evidence import Evidence, Outcome
from sb3_budget.core.packing import narrow, pack, unpack

OUTCOMES = st.tuples(
    st.integers(0, 5),
    st.sampled_from([0.0, 1e-9, 5.0]),
    st.sampled_from([b"", b"label"]),
    st.sampled_from([True, False, None]),
    st.sampled_from([np.float32, np.float64]),
)


def outcome(number, label, terminated, dtype):
    return Outcome(np.array([number, 1.0], dtype=dtype), label, terminated)


@settings(max_examples=100, deadline=None)
@given(st.lists(OUTCOMES, max_size=40), st.lists(OUTCOMES, max_size=20))
def test_a_detector_that_was_pickled_goes_on_as_the_one_that_was_not(before, after):
    detector = DeterminismDetector(min_count=3, max_keys=4)
    for key, *rest in before:
        detector.observe(key, outcome(*rest))
    again = pickle.loads(pickle.dumps(detector))
    for key, *rest in after:
        assert again.observe(key, outcome(*rest)) == detector.observe(key, outcome(*rest))
    assert (again.n_promoted, again.n_stochastic, again.n_candidates) == (
        detector.n_promoted,
        detector.n_stochastic,
        detector.n_candidates,
    )
    for key in range(6):
        one, other = detector.evidence(key), again.evidence(key)
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            assert (one.first, one.dtype, one.label, one.count) == (other.first, other.dtype, other.label, other.count)
            assert one.terminated is other.terminated and (one.moments is None) == (other.moments is None)
            assert np.array_equal(one.variances, other.variances) and np.array_equal(one.mean, other.mean)


def test_evidence_of_one_kind_takes_few_bytes_beside_what_it_holds():
    numbers = np.arange(17, dtype=np.float32)
    table = {key.to_bytes(16, "big"): Evidence.of(Outcome(numbers + key, b"", False)) for key in range(1_000)}
    # 16 of the key, 68 of the numbers.
    assert len(pickle.dumps(pack(table))) < 1_000 * (16 + 68 + 8)
    assert dict(unpack(pack(table))) == table


@pytest.mark.parametrize(("largest", "n_bytes"), [(0, 1), (255, 1), (256, 2), (2**32, 8)])
def test_natural_numbers_take_as_few_bytes_as_the_largest_needs(largest, n_bytes):
    packed = narrow(np.array([0, largest]))
    assert packed.tolist() == [0, largest] and packed.itemsize == n_bytes
    assert narrow(np.zeros(0, dtype=np.int64)).tolist() == []
