"""Values by hand, against value iteration, and in graphs that do not end."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sb3_budget.core.transition_graph import exact_values, successors


def values(edges, ends=None, others=None, gamma=0.5):
    """Of (state, next state, reward); a next state in which no edge begins is an end, worth what ``ends`` says."""
    states, next_states, rewards = (list(column) for column in zip(*edges, strict=True))
    sources, targets = successors(states, next_states)
    end_values = [(ends or {}).get(state, 0.0) for state in next_states]
    names = list(dict.fromkeys(states))
    return exact_values(sources, targets, rewards, end_values, [(others or {}).get(name, -np.inf) for name in names], gamma)


def test_a_chain_by_hand():
    assert values([("a", "b", 1.0), ("b", "c", 2.0), ("c", "?", 4.0)], {"?": 8.0}).tolist() == [4.0, 6.0, 8.0]


def test_the_best_known_action_goes_on_and_the_end_value_decides_between_ends():
    edges = [("a", "b", 0.0), ("b", "x", 1.0), ("b", "y", 0.0)]
    assert values(edges, {"x": 0.0, "y": 4.0}).tolist() == [1.0, 1.0, 2.0]
    assert values(edges, {"x": 4.0, "y": 4.0}).tolist() == [1.5, 3.0, 2.0]


def test_an_action_outside_of_the_graph_counts_where_it_has_a_value_and_is_better():
    edges = [("a", "b", 0.0), ("b", "end", -1.0)]
    assert values(edges, {"b": 100.0}).tolist() == [-0.5, -1.0]
    assert values(edges, others={"b": 100.0}).tolist() == [50.0, -1.0]
    assert values(edges, others={"b": -9.0}).tolist() == [-0.5, -1.0]


def test_a_cycle_is_worth_what_it_pays_for_ever_unless_there_is_a_better_way_out():
    loop = [("a", "b", -1.0), ("b", "a", -1.0)]
    assert values(loop).tolist() == pytest.approx([-2.0, -2.0])
    assert values([*loop, ("b", "end", 3.0)]).tolist() == pytest.approx([0.5, -0.75, 3.0])
    assert values([("a", "a", 1.0), ("a", "end", 0.0)], gamma=0.9).tolist() == pytest.approx([10.0, 0.0])


@pytest.mark.parametrize("n_states", [30, 400, 2500])
@pytest.mark.parametrize("forward_first", [True, False])
@pytest.mark.parametrize("gamma", [0.95, 0.99, 0.999])
def test_a_reward_far_away_is_seen_from_everywhere(n_states, forward_first, gamma):
    edges = [
        edge
        for state in range(n_states)
        for edge in ((state, state + 1, float(state == n_states - 1)), (state, max(state - 1, 0), 0.0))[
            :: 1 if forward_first else -1
        ]
    ]
    forward = values(edges, gamma=gamma)[(0 if forward_first else 1) :: 2]
    expected = gamma ** np.arange(n_states - 1, -1, -1.0)
    assert np.abs(forward - expected).max() < 1e-5


def test_a_cycle_is_followed_until_nothing_is_left_of_what_it_pays():
    assert values([("a", "a", -1.0), ("a", "end", -700.0)], gamma=0.999).tolist() == pytest.approx([-700.3, -700.0])
    assert values([("a", "a", 1.0)], gamma=0.999).tolist() == pytest.approx([1000.0], rel=1e-5)


def test_no_transitions_have_no_values():
    assert exact_values([], [], [], [], [], 0.9).shape == (0,)


EDGES = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 7), st.sampled_from([-9.0, -1.0, 0.0, 1.0])), min_size=1, max_size=16
)
NUMBERS = st.lists(st.floats(-2, 2), min_size=8, max_size=8)


@settings(max_examples=200, deadline=None)
@given(EDGES, NUMBERS, NUMBERS, st.sets(st.integers(0, 5)), st.sampled_from([0.0, 0.5, 0.9]))
def test_values_are_those_of_value_iteration(edges, ends, others, with_others, gamma):
    def best(state, estimate):
        known = [value for (source, _, _), value in zip(edges, estimate, strict=True) if source == state]
        return max([*known, *([others[state]] if state in with_others else [])])

    begins = {source for source, _, _ in edges}
    expected = [0.0] * len(edges)
    for _ in range(200):
        expected = [
            reward + gamma * (best(target, expected) if target in begins else ends[target]) for _, target, reward in edges
        ]
    found = values(edges, dict(enumerate(ends)), {state: others[state] for state in with_others}, gamma)
    assert found.tolist() == pytest.approx(expected, abs=1e-6)
