"""The predictor learns a known chance, and draws from no generator but its own."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch as th

from sb3_budget.policies.success_predictor import SuccessPredictor


def logistic(n, seed):
    """Examples whose chance of success is a logistic function of the first feature."""
    rng = np.random.default_rng(seed)
    observations = rng.normal(size=(n, 3)).astype(np.float32)
    chances = 1.0 / (1.0 + np.exp(-2.0 * observations[:, 0]))
    return observations, chances, rng.random(n) < chances


def show(predictor, observations):
    """In two parts, as they come in training."""
    predictor.observe(observations[: len(observations) // 3])
    predictor.observe(observations[len(observations) // 3 :])
    predictor.freeze()


def test_scales_are_those_of_all_that_was_seen():
    predictor, rng = SuccessPredictor(4, seed=0), np.random.default_rng(0)
    seen = np.stack(
        [rng.normal(5.0, 2.0, 300), np.eye(2)[rng.integers(0, 2, 300), 0], np.zeros(300), np.arange(300) % 8], axis=1
    )
    show(predictor, seen)
    mean, scale = predictor._scale
    np.testing.assert_allclose(mean, seen.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(scale[[0, 1, 3]], seen.std(axis=0)[[0, 1, 3]], rtol=1e-5)
    # What has not varied has the scale of the others.
    assert scale[2] == pytest.approx(seen.std(axis=0)[[0, 1, 3]].mean(), rel=1e-5)


def test_a_state_that_was_never_seen_is_no_certainty():
    predictor = SuccessPredictor(9, seed=0)
    seen = np.eye(9)[[0, 1, 2] * 100]
    show(predictor, seen)
    predictor.add(seen, np.tile([False, True, False], 100))
    predictor.train(200)
    assert ((predictor.predict(np.eye(9)[3:]) > 0.02) & (predictor.predict(np.eye(9)[3:]) < 0.98)).all()


def test_on_a_logistic_problem_it_is_calibrated():
    predictor = SuccessPredictor(3, seed=0)
    observations, _, succeeded = logistic(8000, 0)
    show(predictor, observations)
    predictor.add(observations, succeeded)
    predictor.train(1500)
    held_out, chances, _ = logistic(4000, 1)
    predicted = predictor.predict(held_out)
    assert np.abs(predicted - chances).mean() < 0.04
    order = np.argsort(predicted)
    for part in np.array_split(order, 8):
        assert predicted[part].mean() == pytest.approx(chances[part].mean(), abs=0.05)


def test_the_brier_score_is_of_predictions_made_before():
    predictor = SuccessPredictor(3, seed=0)
    assert np.isnan(predictor.brier_score)
    observations, _, succeeded = logistic(4000, 0)
    show(predictor, observations)
    predictor.add(observations, succeeded)
    predictor.train(500)
    held_out, chances, outcomes = logistic(4000, 1)
    predictor.add(held_out, outcomes)
    assert predictor.brier_score == pytest.approx(np.mean((chances - outcomes) ** 2), abs=0.01)


def test_it_keeps_the_latest_examples():
    predictor = SuccessPredictor(1, memory=5, seed=0)
    predictor.add(np.arange(3.0)[:, None], np.zeros(3, bool))
    predictor.add(np.arange(3.0, 7.0)[:, None], np.ones(4, bool))
    assert len(predictor) == 5
    assert sorted(predictor._observations.ravel().tolist()) == [2, 3, 4, 5, 6]


def test_nothing_else_is_drawn_from_and_runs_repeat():
    th.manual_seed(7)
    expected = th.rand(1)
    th.manual_seed(7)
    runs = []
    for _ in range(2):
        predictor = SuccessPredictor(3, seed=3)
        assert (predictor.predict(np.zeros((2, 3))) == 0.5).all()
        observations, _, succeeded = logistic(100, 0)
        show(predictor, observations)
        predictor.add(observations, succeeded)
        predictor.train(5)
        runs.append(predictor.predict(observations))
    assert th.equal(th.rand(1), expected)
    np.testing.assert_array_equal(*runs)


def test_it_goes_on_after_pickling():
    predictor = SuccessPredictor(3, seed=0)
    observations, _, succeeded = logistic(200, 0)
    show(predictor, observations)
    predictor.add(observations, succeeded)
    predictor.train(3)
    copy = pickle.loads(pickle.dumps(predictor))
    for each in (predictor, copy):
        each.train(3)
    np.testing.assert_array_equal(copy.predict(observations), predictor.predict(observations))
