"""Equal weights are stock SB3 bit for bit; unequal ones give the weighted mean, without bias and without tiny batches."""

from __future__ import annotations

import pickle
from statistics import NormalDist

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.buffers import DictRolloutBuffer, RolloutBuffer

from sb3_budget.buffers.selective_rollout_buffer import SelectiveDictRolloutBuffer, SelectiveRolloutBuffer

ALPHA = 1e-4
OBS = spaces.Box(-np.inf, np.inf, (1,))
DICT = spaces.Dict({"a": OBS, "b": spaces.Box(-np.inf, np.inf, (2,))})
ACTION = spaces.Discrete(2)


def fill(buffer, marks=None, seed=0):
    """Rows that know their place: the observation of slot i at step t is 100 * i + t. ``marks(buffer, t)`` as a callback."""
    rng = np.random.default_rng(seed)
    buffer.reset()
    for t in range(buffer.buffer_size):
        if marks is not None:
            marks(buffer, t)
        place = (100.0 * np.arange(buffer.n_envs) + t)[:, None].astype(np.float32)
        obs = {"a": place, "b": np.hstack([place, -place])} if isinstance(buffer.observation_space, spaces.Dict) else place
        rewards = rng.normal(size=buffer.n_envs)
        values = th.as_tensor(rng.normal(size=buffer.n_envs), dtype=th.float32)
        starts = np.full(buffer.n_envs, t == 0, dtype=np.float32)
        buffer.add(obs, np.zeros((buffer.n_envs, 1)), rewards, starts, values, values)
    buffer.compute_returns_and_advantage(th.zeros(buffer.n_envs), np.zeros(buffer.n_envs))
    return buffer


def make(n_steps=6, n_envs=3, space=OBS, **kwargs):
    cls = SelectiveDictRolloutBuffer if isinstance(space, spaces.Dict) else SelectiveRolloutBuffer
    return cls(n_steps, space, ACTION, device="cpu", n_envs=n_envs, gamma=0.9, gae_lambda=0.8, **kwargs)


def places(samples) -> np.ndarray:
    obs = samples.observations
    return (obs["a"] if isinstance(obs, dict) else obs).numpy().ravel()


def spread_weights(buffer, t):
    buffer.scale_slots(range(buffer.n_envs), 0.1 + 0.1 * np.arange(buffer.n_envs) + 0.05 * t)


def assert_same(ours, theirs):
    for a, b in zip(ours, theirs, strict=True):
        pairs = [(a[key], b[key]) for key in a] if isinstance(a, dict) else [(a, b)]
        assert all(th.equal(x, y) for x, y in pairs)


@pytest.mark.parametrize("space", [OBS, DICT])
@pytest.mark.parametrize("batch_size", [4, 5, None])
@pytest.mark.parametrize("factor", [1.0, 0.5, 0.0])
def test_equal_weights_are_stock_bit_for_bit_down_to_the_global_generator(space, batch_size, factor):
    stock_class = DictRolloutBuffer if space is DICT else RolloutBuffer
    stock = fill(stock_class(6, space, ACTION, device="cpu", n_envs=3, gamma=0.9, gae_lambda=0.8))
    ours = fill(make(space=space), lambda buffer, _: buffer.scale_slots(range(3), factor))
    drawn = []
    for buffer in (stock, ours):
        np.random.seed(7)  # noqa: NPY002  # SB3 draws from the global generator
        batches = [batch for _ in range(2) for batch in buffer.get(batch_size)]
        drawn.append((batches, np.random.random()))  # noqa: NPY002  # as above
    for a, b in zip(drawn[0][0], drawn[1][0], strict=True):
        assert_same(a, b)
    assert drawn[0][1] == drawn[1][1]


def test_thinning_leaves_the_global_generator_alone():
    buffer = fill(make(seed=0), spread_weights)
    np.random.seed(7)  # noqa: NPY002  # SB3 draws from the global generator
    expected = np.random.random()  # noqa: NPY002  # as above
    np.random.seed(7)  # noqa: NPY002  # as above
    list(buffer.get(4))
    assert np.random.random() == expected  # noqa: NPY002  # as above


def test_thinning_estimates_the_weighted_mean():
    buffer = fill(make(n_steps=8, n_envs=4, seed=1), spread_weights)
    weights, advantages = buffer.weights.copy().ravel(), buffer.advantages.copy().ravel()
    keep = weights / weights.max()
    sums, counts = [], []
    for _ in range(1000):
        (batch,) = buffer.get(None)
        sums.append(batch.advantages.sum().item())
        counts.append(len(batch.advantages))
    z = NormalDist().inv_cdf(1 - ALPHA / 2)
    assert abs(np.mean(sums) - (keep * advantages).sum()) <= z * np.std(sums) / np.sqrt(len(sums))
    assert set(counts) <= {int(np.floor(keep.sum())), int(np.ceil(keep.sum()))}


def test_thinning_estimates_the_weighted_gradient_on_average():
    buffer = fill(make(n_steps=16, n_envs=8, seed=2), spread_weights)
    model = th.nn.Linear(1, 1)
    weights, returns = buffer.weights.T.ravel().copy(), buffer.returns.T.ravel().copy()
    obs = buffer.observations.transpose(1, 0, 2).reshape(-1, 1).copy() / 100.0

    def gradient(x, y, w):
        loss = (th.as_tensor(w) * (model(x).flatten() - y) ** 2).sum() / w.sum()
        return np.concatenate([g.numpy().ravel() for g in th.autograd.grad(loss, list(model.parameters()))])

    exact = gradient(th.as_tensor(obs), th.as_tensor(returns), weights)
    draws = []
    for _ in range(400):
        (batch,) = buffer.get(None)
        draws.append(gradient(batch.observations / 100.0, batch.returns, np.ones(len(batch.returns), dtype=np.float32)))
    z = NormalDist().inv_cdf(1 - ALPHA / 4)
    errors = np.abs(np.mean(draws, axis=0) - exact)
    # The number of kept rows varies by one at most, so that the mean over them has next to no ratio bias.
    assert (errors <= z * np.std(draws, axis=0) / np.sqrt(len(draws)) + 0.002 * np.abs(exact)).all()


@pytest.mark.parametrize("space", [OBS, DICT])
def test_each_epoch_is_a_fresh_draw_of_distinct_rows_with_all_rows_of_largest_weight(space):
    buffer = fill(make(space=space, seed=0), lambda buffer, _: buffer.scale_slots(0, 0.3))
    epochs = [np.concatenate([places(batch) for batch in buffer.get(4)]) for _ in range(8)]
    for rows in epochs:
        assert len(np.unique(rows)) == len(rows)
        assert set(rows[rows >= 100]) == {100.0 * slot + t for slot in (1, 2) for t in range(6)}
    assert len({tuple(np.sort(rows)) for rows in epochs}) > 1


@pytest.mark.parametrize("batch_size", [1, 2, 4, 7, None])
def test_no_batch_of_one_row_and_no_empty_epoch(batch_size):
    def keep_one(buffer, t):
        buffer.scale_slots([0, 1, 2], [float(t == 2), 0.0, 0.0])

    for marks in (keep_one, spread_weights):
        buffer = fill(make(seed=0), marks)
        for _ in range(5):
            sizes = [len(batch.returns) for batch in buffer.get(batch_size)]
            assert sizes and min(sizes) >= 2
            assert len(sizes) == 1 if batch_size is None else max(sizes) < 2 * max(2, batch_size)


def stop_slot_one(buffer, t):
    if t == 3:
        buffer.mark_stopped(1)


def test_tail_weights_fall_towards_the_stop():
    weights = fill(make(early_weight=0.25), stop_slot_one).weights
    decay = 0.9 * 0.8
    np.testing.assert_allclose(weights[:4, 1], 1.0 - 0.75 * decay ** np.arange(3, -1, -1), rtol=1e-6)
    assert (weights[:, [0, 2]] == 1.0).all() and (weights[4:, 1] == 1.0).all()


def test_trajectory_weights_and_survivor_factors_multiply():
    def marks(buffer, t):
        stop_slot_one(buffer, t)
        if t >= 2:
            buffer.scale_slots(1, 4.0)

    weights = fill(make(early_weight=0.25, weighting="trajectory"), marks).weights
    assert weights[:, 1].tolist() == [0.25, 0.25, 1.0, 1.0, 4.0, 4.0]


def test_a_trusted_stop_changes_nothing_and_a_reset_forgets():
    buffer = fill(make(early_weight=1.0), stop_slot_one)
    assert buffer.uniform and buffer.effective_samples == 18
    buffer = fill(make(early_weight=0.0), stop_slot_one)
    assert not buffer.uniform and buffer.effective_samples < 18
    assert fill(buffer).uniform and not buffer.stops.any()


def test_same_seed_same_rows_and_a_given_seed_wins_over_the_models():
    def rows(buffer, seed=None):
        buffer.seed(seed)
        return np.concatenate([places(batch) for batch in fill(buffer, spread_weights).get(4)]).tolist()

    assert rows(make(), 5) == rows(make(), 5) != rows(make(), 6)
    assert rows(make(seed=5), 6) == rows(make(seed=5), 7)


def test_a_new_size_waits_for_the_reset():
    buffer = fill(make(seed=0), spread_weights)
    buffer.resize_at_reset(4)
    assert len(np.concatenate([places(batch) for batch in buffer.get(None)])) > 0 and buffer.buffer_size == 6
    fill(buffer, spread_weights)
    assert buffer.weights.shape == (4, 3) and buffer.buffer_size == 4


def test_pickle_goes_on_as_the_original():
    buffer = fill(make(seed=0), spread_weights)
    copy = pickle.loads(pickle.dumps(buffer))
    for a, b in zip(buffer.get(4), copy.get(4), strict=True):
        assert_same(a, b)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"early_weight": 1.5}, "early_weight=1.5"),
        ({"early_weight": float("nan")}, "early_weight=nan"),
        ({"weighting": "half"}, "weighting='half'"),
    ],
)
def test_arguments_out_of_range_are_refused(kwargs, message):
    with pytest.raises(ValueError, match=message):
        make(**kwargs)


def test_the_wrong_class_for_the_observations_is_refused():
    with pytest.raises(ValueError, match="use SelectiveDictRolloutBuffer"):
        SelectiveRolloutBuffer(4, DICT, ACTION)
    with pytest.raises(ValueError, match="use SelectiveRolloutBuffer"):
        SelectiveDictRolloutBuffer(4, OBS, ACTION)


def test_bad_marks_are_refused():
    buffer = make()
    with pytest.raises(ValueError, match="finite and non-negative"):
        buffer.scale_slots(0, -1.0)
    with pytest.raises(ValueError, match="finite and non-negative"):
        buffer.scale_slots([0, 1], [1.0, np.nan])
    with pytest.raises(ValueError, match="boolean mask"):
        buffer.mark_stopped(np.array([False, True, False]))
    with pytest.raises(ValueError, match="buffer_size=0"):
        buffer.resize_at_reset(0)


@pytest.mark.parametrize("algorithm", [PPO, A2C])
def test_models_keep_the_class_and_its_arguments_through_save_and_load(algorithm, tmp_path):
    kwargs = {"early_weight": 0.5, "weighting": "trajectory"}
    extra = {"batch_size": 16} if algorithm is PPO else {}
    model = algorithm(
        "MlpPolicy",
        "CartPole-v1",
        n_steps=32,
        rollout_buffer_class=SelectiveRolloutBuffer,
        rollout_buffer_kwargs=kwargs,
        device="cpu",
        **extra,
    )
    model.save(tmp_path / "model.zip")
    loaded = algorithm.load(tmp_path / "model.zip", env=model.get_env(), device="cpu")
    assert type(loaded.rollout_buffer) is SelectiveRolloutBuffer
    assert (loaded.rollout_buffer.early_weight, loaded.rollout_buffer.weighting) == (0.5, "trajectory")
    loaded.learn(64)
