"""Scores are what their formulas say, and a window forgets the oldest of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sb3_budget.core import scores as core

EXAMPLES = settings(max_examples=25, deadline=None, derandomize=True)


def view() -> core.RolloutView:
    return core.RolloutView(
        values=np.array([2.0, -4.0]),
        returns=np.array([1.0, 3.0]),
        discounts=np.array([1.0, 0.25]),
        initial_values=np.array([2.0, 5.0]),
        lengths=np.array([0, 2]),
        look=np.array([True, True]),
        value_heads=None,
        obs=None,
        infos=None,
        progress_remaining=1.0,
        rng=np.random.default_rng(0),
    )


def test_closed_forms():
    assert core.value_score(view()).tolist() == [2.0, -4.0]
    assert core.return_score(view()).tolist() == [3.0, 2.0]
    assert core.surprise_score(view()).tolist() == [1.0, -3.0]


def test_which_scores_compare_across_ages():
    assert {name: core.parse_score(name)[1] for name in core.SCORES} == {"value": True, "return": False, "surprise": True}


def test_a_function_of_the_user_is_taken_as_it_is():
    def score(view: core.RolloutView) -> np.ndarray:
        return -view.values

    assert core.parse_score(score) == (score, True)


def test_an_unknown_score_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"'best' is not one of \['return', 'surprise', 'value'\]"):
        core.parse_score("best")


@EXAMPLES
@given(st.integers(1, 12), st.lists(st.integers(0, 9), max_size=8))
def test_a_window_holds_the_latest_scores(size, batches):
    window = core.ScoreWindow(size)
    everything = np.arange(float(sum(batches)))
    for batch in np.split(everything, np.cumsum(batches)[:-1]) if batches else []:
        window.add(batch)
    latest = everything[-size:]
    assert len(window) == len(latest)
    np.testing.assert_array_equal(np.sort(window.scores), latest)


def test_an_empty_window_is_refused():
    with pytest.raises(ValueError, match="size 0"):
        core.ScoreWindow(0)
