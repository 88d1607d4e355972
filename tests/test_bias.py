"""What stops do to expected returns: nothing with an exact critic, a known harm with one that errs, nothing with two."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest

import sb3_budget as sb
from sb3_budget import EpisodeControlVecEnv, SelectiveRolloutBuffer, SelectiveRolloutCallback
from tests.random_walk import GAMMA, INTERIOR, START, TRANSITIONS, VALUES, RandomWalks, TablePolicy, Walker, occupancy

#: Chance that any one of these tests fails though nothing is wrong; seeds are fixed, so that it does not happen twice.
ALPHA = 1e-4
N_ENVS, N_STEPS = 600, 36

pytestmark = pytest.mark.filterwarnings("ignore:The gate takes")  # walking costs less than any gate

GATES = {
    "quantile_value": lambda: sb.QuantileGate(0.3),
    "quantile_return": lambda: sb.QuantileGate(0.3, score="return"),
    "quantile_surprise": lambda: sb.QuantileGate(0.3, score="surprise"),
    "ratio": lambda: sb.RatioGate(0.5),
    "reward": lambda: sb.RewardGate(0.5),
    "value": lambda: sb.ValueGate(0.5),
    "threshold": lambda: sb.ValueGate(threshold=VALUES[START - 1]),
    "confidence": lambda: sb.ConfidenceGate(0.4, confidence=1.0),
    "heuristic": lambda: sb.HeuristicGate(lambda obs, info: obs[0] < START - 1),
    "random": lambda: sb.RandomGate(0.2),
}


class Rollout:
    """The first episode of each of many slots, or a later one, where there is one."""

    def __init__(self, gate, n_envs=N_ENVS, n_steps=N_STEPS, episode=1, judge_errors=0.0, bootstrap_errors=0.0, **kwargs):
        venv = EpisodeControlVecEnv(RandomWalks(n_envs, seed=0))
        model = Walker(TablePolicy, venv, n_steps=n_steps, batch_size=n_envs, gamma=GAMMA, device="cpu", seed=0)
        model.rollout_buffer_class = SelectiveRolloutBuffer
        model._setup_model()
        model.policy.judge_errors, model.policy.bootstrap_errors = judge_errors, bootstrap_errors
        given = {"check_interval": 3, "grace": 3, "warmup": 0, "audit_fraction": 0.0, **kwargs}
        model.learn(n_envs * n_steps, callback=SelectiveRolloutCallback(gate, **given))
        buffer = model.rollout_buffer
        rows = np.cumsum(buffer.episode_starts, axis=0) == episode
        begun = rows.any(axis=0)
        #: Rows of the episodes [n_steps, n_episodes].
        self.rows = rows[:, begun]
        self.stopped = (buffer.stops & rows).any(axis=0)[begun]
        self.states = buffer.observations[:, begun, 0].astype(int)
        self.factors = buffer.factors[:, begun]
        ages = np.arange(n_steps + 1)[:, None] - self.rows.argmax(axis=0)
        running = self.rows[-1] & ~model._last_episode_starts[begun]
        left = GAMMA ** ages[-1] * VALUES[model._last_obs[begun, 0].astype(int)]
        #: Discounted rewards, completed by a bootstrap at a stop and by the exact value at the end of the rollout.
        realised = np.where(self.rows, np.power(GAMMA, ages[:-1], dtype=float) * buffer.rewards[:, begun], 0.0)
        self.returns = realised.sum(axis=0) + running * left


def agrees(samples: np.ndarray, expected: float, n_tests: int = 1) -> bool:
    z = NormalDist().inv_cdf(1 - ALPHA / (2 * n_tests))
    return bool(abs(samples.mean() - expected) <= z * samples.std() / np.sqrt(len(samples)))


@pytest.mark.parametrize("name", GATES)
def test_with_an_exact_critic_no_gate_changes_the_expected_return(name):
    # The second episode: while the first ones run, gates that compare equal ages have no peers.
    rollout = Rollout(GATES[name](), episode=2)
    assert 0.1 < rollout.stopped.mean() < 0.999
    assert agrees(rollout.returns, VALUES[START], n_tests=len(GATES))


def test_an_episode_that_is_worth_nothing_after_a_stop_changes_it():
    rollout = Rollout(sb.HeuristicGate(lambda obs, info: obs[0] > START), bootstrap="none")
    assert not agrees(rollout.returns, VALUES[START])


# One look, at step 4; a stop is served one step later, so that two more rewards are realised before the bootstrap.
LOOK, SIGMA, THRESHOLD = 4, 2.0, VALUES[START] - 0.5
ONE_LOOK = {"check_interval": LOOK, "grace": LOOK, "n_steps": LOOK + 3, "n_envs": 4000}


def predicted_bias() -> float:
    """
    Errors are normal. Of the states s that a walk is in at the look, :math:`E[e; V(s) + e < c] = -\\sigma\\varphi((c - V(s)) /
    \\sigma)`, and this error completes the return if the walk goes on for two more steps.
    """
    reached = occupancy(LOOK + 1)[LOOK]
    goes_on = (TRANSITIONS @ TRANSITIONS).sum(axis=1)
    density = [NormalDist().pdf((THRESHOLD - value) / SIGMA) for value in VALUES[INTERIOR]]
    return float(-(GAMMA ** (LOOK + 2)) * SIGMA * (reached * goes_on * density).sum())


def test_a_critic_that_judges_and_completes_has_the_predicted_negative_bias():
    errors = np.random.default_rng(1).normal(0.0, SIGMA, ONE_LOOK["n_envs"])
    rollout = Rollout(sb.ValueGate(threshold=THRESHOLD), judge_errors=errors, bootstrap_errors=errors, **ONE_LOOK)
    assert predicted_bias() < -0.1
    assert agrees(rollout.returns, VALUES[START] + predicted_bias())
    assert not agrees(rollout.returns, VALUES[START])


def test_a_second_critic_that_completes_has_none():
    rng = np.random.default_rng(1)
    judge, bootstrap = rng.normal(0.0, SIGMA, (2, ONE_LOOK["n_envs"]))
    rollout = Rollout(sb.ValueGate(threshold=THRESHOLD), judge_errors=judge, bootstrap_errors=bootstrap, **ONE_LOOK)
    assert rollout.stopped.mean() > 0.1
    assert agrees(rollout.returns, VALUES[START])


@pytest.mark.parametrize("kwargs", [{}, {"audit_fraction": 0.3, "audit_step_fraction": 1.0}, {"max_stops_per_check": 300}])
def test_survivor_weights_recover_the_sums_of_undisturbed_episodes(kwargs):
    n_steps, given = 16, {"n_envs": 1500, "stop_probability": 0.5, "check_interval": 4, "grace": 4, **kwargs}
    rollout = Rollout(sb.QuantileGate(0.6), n_steps=n_steps, **given)
    assert rollout.stopped.mean() > 0.1
    # A function of the states in the place of a gradient.
    per_row = rollout.states * rollout.rows
    expected = (occupancy(n_steps) @ INTERIOR).sum()
    assert agrees((rollout.factors * per_row).sum(axis=0), expected, n_tests=3)
    assert not agrees(per_row.sum(axis=0), expected)
