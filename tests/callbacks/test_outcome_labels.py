"""Observations are labelled by what became of their episode."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from sb3_budget.callbacks.outcome_labels import EXAMPLES, LEAST_RETURNS, OutcomeLabels, features


def info(total, reason="terminated", **more):
    return {"sb3_budget": {"return": total, "reason": reason}, **more}


def run(labels, slot_returns):
    """Episodes of three steps in one slot; the observation is the number of the step."""
    outcomes = []
    for number, total in enumerate(slot_returns):
        for step in range(3):
            ended = labels.add(np.array([[10 * number + step]], dtype=np.float32), np.array([step == 2]), [info(total)])
        outcomes.append(ended)
    return outcomes


def test_a_return_above_the_median_is_a_success_once_there_is_a_median():
    labels = OutcomeLabels(None)
    labels.start(1)
    outcomes = run(labels, [5.0] * LEAST_RETURNS + [5.0, 6.0, 4.0])
    assert [ended.outcomes for ended in outcomes[LEAST_RETURNS:]] == [[False], [True], [False]]
    np.testing.assert_array_equal(outcomes[-2].examples.ravel(), [210, 211, 212])
    assert outcomes[-2].succeeded.tolist() == [True] * 3


def test_the_best_return_stays_a_success_when_most_episodes_reach_it():
    labels = OutcomeLabels(None)
    labels.start(1)
    outcomes = run(labels, [0.0] + [1.0] * LEAST_RETURNS + [1.0, 0.0])
    assert [ended.outcomes for ended in outcomes[-2:]] == [[True], [False]]


def test_an_episode_that_was_cut_short_is_no_success():
    labels = OutcomeLabels(None)
    labels.start(1)
    run(labels, [-200.0] * LEAST_RETURNS)
    for reason, expected in (("horizon", False), ("stopped", False), ("time_limit", True)):
        ended = labels.add(np.zeros((1, 1), np.float32), np.array([True]), [info(-50.0, reason)])
        assert ended.outcomes == [expected]


def test_the_environment_knows_better_and_the_user_best():
    for rule, expected in ((None, True), (lambda given: given["sb3_budget"]["return"] > 0, False)):
        labels = OutcomeLabels(rule)
        labels.start(1)
        ended = labels.add(np.zeros((1, 1), np.float32), np.array([True]), [info(-1.0, is_success=True)])
        assert ended.outcomes == [expected]


def test_slots_are_followed_apart():
    labels = OutcomeLabels(lambda given: given["sb3_budget"]["return"] > 0)
    labels.start(2)
    assert labels.add(np.array([[1.0], [2.0]], np.float32), np.array([False, False]), [{}, {}]) is None
    ended = labels.add(np.array([[3.0], [4.0]], np.float32), np.array([False, True]), [{}, info(1.0)])
    assert ended.examples.ravel().tolist() == [2.0, 4.0]
    ended = labels.add(np.array([[5.0], [6.0]], np.float32), np.array([True, True]), [info(0.0), info(1.0)])
    assert ended.examples.ravel().tolist() == [1.0, 3.0, 5.0, 6.0]
    assert ended.succeeded.tolist() == [False, False, False, True]


def test_of_a_long_episode_evenly_spaced_observations_stay():
    labels = OutcomeLabels(lambda given: True)
    labels.start(1)
    for step in range(2000):
        ended = labels.add(np.array([[step]], np.float32), np.array([step == 1999]), [info(0.0)])
    kept = ended.examples.ravel()
    assert EXAMPLES / 2 < len(kept) <= EXAMPLES
    assert set(np.diff(kept)) == {8.0}


def test_observations_as_vectors():
    assert features(spaces.Discrete(3, start=1), np.array([1, 3])).tolist() == [[1, 0, 0], [0, 0, 1]]
    assert features(spaces.Box(0, 1, (2, 2)), np.ones((3, 2, 2))).shape == (3, 4)
    space = spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Box(0, 1, (1,))})
    assert features(space, {"a": np.array([1]), "b": np.array([[0.5]])}).tolist() == [[0, 1, 0.5]]
    assert features(spaces.MultiDiscrete([2, 3]), np.array([[1, 2]])).tolist() == [[0, 1, 0, 0, 1]]


def test_of_many_states_only_the_ones_that_were_seen_take_room():
    seen = features(spaces.Discrete(10**7), np.array([3, 10**7 - 1]))
    assert seen.shape == (2, 10**7) and np.argwhere(seen).tolist() == [[0, 3], [1, 10**7 - 1]]
