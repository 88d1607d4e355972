"""Paths by hand, against brute force, and in graphs that do not end."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sb3_budget.core.transition_graph import best_paths, successors


def paths(edges, values=None, gamma=0.5, max_steps=100):
    """Of (state, next state, reward); a next state in which no edge begins is an end, worth what ``values`` says."""
    states, next_states, rewards = (list(column) for column in zip(*edges, strict=True))
    sources, targets = successors(states, next_states)
    ends = [(values or {}).get(state, 0.0) for state in next_states]
    return best_paths(sources, targets, rewards, ends, gamma, max_steps)


def test_a_chain_by_hand():
    found = paths([("a", "b", 1.0), ("b", "c", 2.0), ("c", "?", 4.0)], {"?": 8.0})
    assert found.rewards.tolist() == [3.0, 4.0, 4.0]
    assert found.discounts.tolist() == [0.125, 0.25, 0.5]
    assert found.last.tolist() == [2, 2, 2] and found.lengths.tolist() == [3, 2, 1]


def test_the_best_known_action_goes_on_and_the_end_value_decides_between_ends():
    edges = [("a", "b", 0.0), ("b", "x", 1.0), ("b", "y", 0.0)]
    assert paths(edges, {"x": 0.0, "y": 4.0}).last.tolist() == [2, 1, 2]
    assert paths(edges, {"x": 4.0, "y": 4.0}).last.tolist() == [1, 1, 2]


def test_a_hopeful_value_of_a_state_with_a_known_action_does_not_count():
    found = paths([("a", "b", 0.0), ("b", "end", -1.0)], {"b": 100.0})
    assert (found.rewards + found.discounts * 0.0).tolist() == [-0.5, -1.0]


def test_a_cycle_without_an_end_is_one_step_and_with_one_leads_out():
    loop = [("a", "b", 1.0), ("b", "a", 1.0)]
    assert paths(loop).lengths.tolist() == [1, 1]
    assert paths([*loop, ("b", "end", -1.0)]).lengths.tolist()[2] == 1
    assert paths([("a", "a", 0.0), ("a", "end", 1.0)]).rewards.tolist() == [0.5, 1.0]


def test_a_path_that_pays_for_ever_is_cut():
    found = paths([("a", "a", 1.0), ("a", "end", 0.0)], gamma=0.9, max_steps=10)
    assert found.lengths.tolist() == [10, 1]
    assert found.rewards[0] == pytest.approx(sum(0.9**k for k in range(10)))
    assert found.discounts[0] == pytest.approx(0.9**10)


def test_no_transitions_have_no_paths():
    assert best_paths([], [], [], [], 0.9).rewards.shape == (0,)


#: State, how much further the next one is, reward.
EDGES = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 3), st.sampled_from([-1.0, 0.0, 1.0])), min_size=1, max_size=12)


@settings(max_examples=150, deadline=None)
@given(EDGES, st.lists(st.floats(-2, 2), min_size=8, max_size=8), st.sampled_from([0.5, 0.9, 1.0]))
def test_without_cycles_paths_are_the_best_ones_that_brute_force_finds(edges, values, gamma):
    edges = [(state, state + ahead, reward) for state, ahead, reward in edges]

    def best(state):
        onward = [reward + gamma * best(target) for source, target, reward in edges if source == state]
        return max(onward) if onward else values[state]

    found = paths(edges, dict(enumerate(values)), gamma)
    for row, (_, target, reward) in enumerate(edges):
        end = edges[found.last[row]][1]
        assert found.rewards[row] + found.discounts[row] * values[end] == pytest.approx(reward + gamma * best(target))
        assert found.discounts[row] == pytest.approx(gamma ** found.lengths[row])
        assert all(source != end for source, _, _ in edges)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5), st.sampled_from([-1.0, 1.0])), min_size=1, max_size=10))
def test_with_cycles_every_path_is_a_walk_of_known_transitions(edges):
    found = paths(edges, gamma=0.9, max_steps=7)
    rows = range(len(edges))
    reachable = {(row, 1): {(row, edges[row][2])} for row in rows}  # last row and sum of rewards, by length
    for length in range(2, 8):
        for row in rows:
            walks = {
                (last, edges[row][2] + 0.9 * total)
                for other in rows
                if edges[other][0] == edges[row][1]
                for last, total in reachable[other, length - 1]
            }
            reachable[row, length] = {(last, round(total, 9)) for last, total in walks}
    for row in rows:
        walks = reachable[row, int(found.lengths[row])]
        assert any(last == found.last[row] and total == pytest.approx(found.rewards[row]) for last, total in walks)
