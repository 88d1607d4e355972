"""Gates stop what lies below its peers, whatever the units and the zero of the scores."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from sb3_budget.core import gates as core
from sb3_budget.core.scores import RolloutView

EXAMPLES = settings(max_examples=25, deadline=None, derandomize=True)
#: Integers in floating point: sums and shifts of them are exact.
EXACT = npst.arrays(np.float64, st.integers(1, 40), elements=st.integers(-1000, 1000).map(float))
QUANTILES = st.floats(0.0, 1.0)


def view(values=None, look=None, n_envs=4, **given) -> RolloutView:
    values = np.zeros(n_envs) if values is None else np.asarray(values, dtype=np.float64)
    n_envs = len(values)
    fields = {
        "returns": np.zeros(n_envs),
        "discounts": np.ones(n_envs),
        "initial_values": np.full(n_envs, 1e12),
        "lengths": np.full(n_envs, 5),
        "value_heads": None,
        "obs": np.arange(n_envs)[:, None],
        "infos": [{} for _ in range(n_envs)],
        "progress_remaining": 1.0,
        "rng": np.random.default_rng(0),
    }
    return RolloutView(values=values, look=np.ones(n_envs, bool) if look is None else np.array(look), **{**fields, **given})


def primed(gate, peers, **given):
    """The gate with these peers in its window and none of them judged."""
    gate(view(peers, look=[False] * len(peers), **given))
    return gate


def test_nothing_is_judged_before_there_are_enough_peers():
    gate = core.QuantileGate(0.6)
    low = view([-9.0, 1.0, 2.0, 3.0])
    for _ in range(core.MIN_PEERS // 4):
        assert not gate(low).any()
    assert gate(low).tolist() == [True, True, False, False]


def test_slots_that_are_not_under_look_are_peers_and_not_judged():
    gate = primed(core.QuantileGate(0.5), np.arange(40.0))
    assert gate(view([0.0, 1.0, 39.0], look=[True, False, True])).tolist() == [True, False, False]
    assert len(gate._windows[-1]) == 43


def test_a_step_is_judged_by_what_was_seen_before_it():
    gate = primed(core.QuantileGate(1.0), np.zeros(40))
    assert not gate(view([0.0, 1e9])).any()


def test_an_episode_that_is_worth_as_much_as_at_its_start_can_be_spared():
    starts = np.array([-5.0, 5.0, 1.0, 100.0])
    present = [0.0, 0.0, 1.0, 39.0]
    gate = primed(core.QuantileGate(0.5, below_start=True, limit_rate=False), np.arange(40.0))
    assert gate(view(present, initial_values=starts)).tolist() == [False, True, False, False]
    gate = primed(core.QuantileGate(0.5, limit_rate=False), np.arange(40.0))
    assert gate(view(present, initial_values=starts)).tolist() == [True, True, True, False]


def test_no_more_than_the_quantile_of_the_looks_is_stopped():
    # All that is judged lies below the peers, as where episodes are worth most at their beginning.
    peers = np.full(core.WINDOW, 100.0)
    low = view([3.0, 1.0, 2.0, 4.0, 100.0], look=[True, True, True, True, False])
    assert primed(core.QuantileGate(0.5, limit_rate=False), peers)(low).tolist() == [True] * 4 + [False]
    assert primed(core.QuantileGate(0.5), peers)(low).tolist() == [False, True, True, False, False]


def test_the_quantile_may_be_a_schedule():
    gate = primed(core.QuantileGate(lambda progress: 1.0 - progress), np.arange(101.0))
    values = [30.0, 60.0]
    assert gate(view(values, progress_remaining=1.0)).tolist() == [False, False]
    assert gate(view(values, progress_remaining=0.5)).tolist() == [True, False]


def test_a_schedule_that_leaves_the_range_is_clipped():
    gate = primed(core.QuantileGate(lambda _: 1.7), np.arange(101.0))
    assert gate(view([99.0, 100.0])).tolist() == [True, False]


def test_the_return_score_compares_equal_ages_only():
    gate = core.QuantileGate(0.5, score="return")
    young, old = np.full(30, 2), np.full(30, 9)
    gate(view(np.zeros(30), returns=np.arange(30.0), lengths=young))
    gate(view(np.zeros(30), returns=100.0 + np.arange(30.0), lengths=old))
    stop = gate(view(np.zeros(4), returns=np.array([0.0, 29.0, 100.0, 129.0]), lengths=np.array([2, 2, 9, 9])))
    assert stop.tolist() == [True, False, True, False]


def test_ratio_gate_on_negative_returns_spares_the_average():
    gate = core.RatioGate(0.5)
    gate(view(np.zeros(30), returns=np.full(30, -10.0)))
    stop = gate(view(np.zeros(3), returns=np.array([-20.0, -10.0, -1.0])))
    assert stop.tolist() == [True, False, False]


def test_reward_gate_needs_no_critic():
    gate = core.RewardGate(deviations=1.0)
    gate(view(np.full(30, np.nan), returns=np.tile([-1.0, 1.0], 15)))
    assert gate(view(np.full(2, np.nan), returns=np.array([-1.5, -0.5]))).tolist() == [True, False]


def test_value_gate_by_deviations_and_by_threshold():
    peers = np.tile([-1.0, 1.0], 20)
    assert primed(core.ValueGate(2.0), peers)(view([-2.5, -1.5])).tolist() == [True, False]
    assert primed(core.ValueGate(threshold=0.5), peers)(view([0.4, 0.5])).tolist() == [True, False]


def test_confidence_gate_spares_what_the_heads_disagree_on():
    gate = primed(core.ConfidenceGate(0.5), np.arange(41.0))
    heads = np.array([[10.0, -15.0, 40.0], [10.0, 35.0, 40.0]])
    assert gate(view(heads.mean(axis=0), value_heads=heads)).tolist() == [True, False, False]
    lower = primed(core.ConfidenceGate(0.5, confidence=-1.0), np.arange(41.0))
    heads = np.array([[30.0, 10.0], [30.0, 50.0]])
    assert lower(view(heads.mean(axis=0), value_heads=heads)).tolist() == [False, True]


def test_confidence_gate_without_an_ensemble_says_what_it_needs():
    with pytest.raises(ValueError, match="EnsembleActorCriticPolicy"):
        primed(core.ConfidenceGate(), np.arange(40.0))(view([0.0]))


def test_heuristic_gate_sees_each_slot_and_only_those_under_look():
    seen = []
    gate = core.HeuristicGate(lambda obs, info: seen.append((int(obs[0]), info["id"])) or obs[0] == 2)
    infos = [{"id": slot} for slot in range(4)]
    assert gate(view(look=[True, False, True, True], infos=infos)).tolist() == [False, False, True, False]
    assert seen == [(0, 0), (2, 2), (3, 3)]


def test_heuristic_gate_hands_out_dict_observations_by_slot():
    obs = {"a": np.arange(2), "b": np.arange(2) * 10}
    gate = core.HeuristicGate(lambda obs, _: obs["a"] == 1 and obs["b"] == 10)
    assert gate(view(n_envs=2, obs=obs)).tolist() == [False, True]


def test_random_gate_tosses_its_coin_at_the_asked_rate():
    gate, rng = core.RandomGate(0.3), np.random.default_rng(0)
    looks = np.arange(1000) < 500
    stop = gate(view(np.zeros(1000), look=looks, rng=rng))
    assert not stop[500:].any() and 100 < stop.sum() < 200
    assert not core.RandomGate(0.0)(view(rng=rng)).any() and core.RandomGate(1.0)(view(rng=rng)).all()


@EXAMPLES
@given(st.integers(-1000, 1000))
def test_value_gates_ignore_a_shift_of_all_values(shift):
    rng = np.random.default_rng(1)
    peers, values = rng.integers(-99, 99, 64).astype(float), rng.integers(-99, 99, 32) + 0.3141
    for make in (core.QuantileGate, core.ValueGate):
        stop = primed(make(), peers)(view(values))
        np.testing.assert_array_equal(stop, primed(make(), peers + shift)(view(values + shift)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: core.QuantileGate(1.5), "quantile=1.5"),
        (lambda: core.QuantileGate(float("nan")), "quantile=nan"),
        (lambda: core.QuantileGate(score="best"), "score='best'"),
        (lambda: core.QuantileGate(window=3), "window=3 is less than the 20"),
        (lambda: core.RatioGate(-0.1), "ratio=-0.1"),
        (lambda: core.RewardGate(-1.0), "deviations=-1.0"),
        (lambda: core.ValueGate(float("nan")), "deviations=nan"),
        (lambda: core.ConfidenceGate(2.0), "quantile=2.0"),
        (lambda: core.RandomGate(1.1), "probability=1.1"),
        (lambda: core.HeuristicGate(3), "function of"),
    ],
)
def test_arguments_out_of_range_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
