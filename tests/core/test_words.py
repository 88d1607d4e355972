"""Packed words come back bit by bit, whatever they are expected to be, and those that repeat take no space."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sb3_budget.core.words import pack, resolve, unpack

EXAMPLES = settings(max_examples=200, deadline=None, derandomize=True)
WORDS = st.integers(0, 40).flatmap(lambda n: arrays(np.uint64, n, elements=st.sampled_from([0, 1, 2, 1 << 63, (1 << 64) - 1])))


@EXAMPLES
@given(WORDS, st.data())
def test_any_words_come_back_with_any_links(words, data):
    links = np.array([data.draw(st.integers(0, place)) for place in range(len(words))], dtype=np.int64)
    ends = resolve(links)
    np.testing.assert_array_equal(ends[ends], ends)
    np.testing.assert_array_equal(unpack(pack(words, ends), ends), words)


def test_a_chain_leads_to_its_end():
    assert resolve(np.array([0, 0, 1, 2, 4, 3])).tolist() == [0, 0, 0, 0, 4, 0]


def test_signs_of_zero_and_nan_come_back():
    numbers = np.array([0.0, -0.0, np.nan, -np.nan, np.inf, 1.5])
    links = np.array([0, 0, 2, 2, 4, 4])
    assert unpack(pack(numbers.view(np.uint64), links), links).tobytes() == numbers.tobytes()


def test_only_what_is_neither_zero_nor_a_repetition_takes_space():
    numbers = np.array([0.0, 3.0, 3.0, 3.0, 0.0, 5.0])
    links = np.array([0, 1, 1, 1, 4, 5])
    assert len(pack(numbers.view(np.uint64), links)) == 1 + 2 * 8


def test_packed_words_of_another_length_are_refused():
    data = pack(np.array([1, 2], dtype=np.uint64), np.arange(2))
    with pytest.raises(ValueError, match="Packed words of 16 bytes should have 17"):
        unpack(data[:-1], np.arange(2))
