"""Thinning of sequences through the mask of the padding."""

import numpy as np
import pytest
import torch as th
from gymnasium import spaces

pytest.importorskip("sb3_contrib")

from sb3_contrib.common.recurrent.buffers import RecurrentRolloutBuffer
from sb3_contrib.common.recurrent.type_aliases import RNNStates

from sb3_budget.buffers.selective_recurrent_buffer import (
    SelectiveRecurrentDictRolloutBuffer,
    SelectiveRecurrentRolloutBuffer,
)

ACTIONS = spaces.Discrete(3)
BOX = spaces.Box(-1.0, 1.0, (2,), np.float32)
DICT = spaces.Dict(a=BOX)
N_STEPS, N_ENVS = 16, 3
HIDDEN = (N_STEPS, 1, N_ENVS, 4)


def filled(buffer_class=SelectiveRecurrentRolloutBuffer, starts=(), **kwargs):
    """A buffer in which observation, value and hidden state of a row hold its flat index."""
    is_dict = issubclass(buffer_class, SelectiveRecurrentDictRolloutBuffer)
    buffer = buffer_class(N_STEPS, DICT if is_dict else BOX, ACTIONS, HIDDEN, "cpu", n_envs=N_ENVS, **kwargs)
    return fill(buffer, is_dict, starts)


def fill(buffer, is_dict=False, starts=()):
    for step in range(buffer.buffer_size):
        index = np.arange(N_ENVS, dtype=np.float32) * buffer.buffer_size + step
        obs = np.repeat(index[:, None], 2, axis=1)
        state = th.as_tensor(index)[None, :, None].expand(1, N_ENVS, 4)
        buffer.add(
            {"a": obs} if is_dict else obs,
            np.zeros((N_ENVS, 1)),
            np.ones(N_ENVS),
            np.array([step == 0 or (step, slot) in starts for slot in range(N_ENVS)]),
            th.as_tensor(index),
            th.zeros(N_ENVS),
            lstm_states=RNNStates((state, state), (state, state)),
        )
    return buffer


def finish(buffer):
    buffer.compute_returns_and_advantage(th.zeros(N_ENVS), np.zeros(N_ENVS))
    return buffer


def trusted(samples) -> list[int]:
    """Flat indices of the rows that count."""
    return samples.old_values[samples.mask > 1e-8].int().tolist()


def test_equal_weights_sample_as_the_parent_does():
    stock, ours = filled(RecurrentRolloutBuffer, starts={(5, 1)}), filled(starts={(5, 1)})
    batches = []
    for buffer in (stock, ours):
        np.random.seed(4)  # noqa: NPY002  # SB3 draws from the global generator
        batches.append(list(finish(buffer).get(10)))
    for expected, got in zip(*batches, strict=True):
        assert th.equal(expected.observations, got.observations)
        assert th.equal(expected.mask, got.mask)
        assert th.equal(expected.lstm_states.pi[0], got.lstm_states.pi[0])


@pytest.mark.parametrize("buffer_class", [SelectiveRecurrentRolloutBuffer, SelectiveRecurrentDictRolloutBuffer])
def test_left_out_rows_stay_in_their_sequence_but_not_in_the_loss(buffer_class):
    buffer = filled(buffer_class, starts={(10, 1)}, early_weight=0.0, weighting="trajectory", seed=0)
    buffer.stops[9, 1] = True
    finish(buffer)
    stopped = set(range(N_STEPS, N_STEPS + 10))
    kept, seen = [], set()
    for samples in buffer.get(12):
        kept.extend(trusted(samples))
        seen.update(samples.old_values.int().tolist())
        obs = samples.observations["a"] if isinstance(samples.observations, dict) else samples.observations
        assert th.equal(obs[:, 0], samples.old_values)
    assert sorted(kept) == sorted(set(range(N_STEPS * N_ENVS)) - stopped)
    assert stopped <= seen


def test_sequences_start_from_their_own_hidden_states():
    buffer = filled(starts={(10, 1)}, seed=0)
    buffer.factors[::2] = 0.5
    finish(buffer)
    for samples in buffer.get(9):
        n_sequences = samples.lstm_states.pi[0].shape[1]
        first = samples.old_values.reshape(n_sequences, -1)[:, 0]
        assert th.equal(samples.lstm_states.pi[0][0, :, 0], first)
        assert th.equal(samples.lstm_states.vf[1][0, :, 0], first)


@pytest.mark.parametrize("n_steps", [N_STEPS // 4, N_STEPS * 2])
def test_hidden_states_follow_another_number_of_rows(n_steps):
    buffer = filled(seed=0)
    buffer.resize_at_reset(n_steps)
    buffer.reset()
    finish(fill(buffer, starts={(3, 1)}))
    for samples in buffer.get(9):
        first = samples.old_values.reshape(samples.lstm_states.pi[0].shape[1], -1)[:, 0]
        assert th.equal(samples.lstm_states.pi[0][0, :, 0], first)


def test_minibatches_hold_nearly_equal_numbers_of_rows_that_count():
    buffer = filled(seed=0)
    buffer.factors[:] = 0.1
    buffer.factors[:3] = 1.0
    finish(buffer)
    for _ in range(20):
        sizes = [len(trusted(samples)) for samples in buffer.get(4)]
        assert min(sizes) > 1
        assert max(sizes) - min(sizes) <= 1


def test_two_rows_stay_where_one_outweighs_all_others():
    buffer = filled(seed=0)
    buffer.factors[:] = 0.0
    buffer.factors[3, 0] = 1.0
    finish(buffer)
    assert [len(trusted(samples)) for samples in buffer.get(4)] == [2]


def test_rows_are_kept_with_the_probability_of_their_weight():
    buffer = filled(seed=0)
    buffer.factors[:, 1] = 0.25
    finish(buffer)
    n_epochs = 200
    counts = np.zeros(N_STEPS * N_ENVS)
    for _ in range(n_epochs):
        for samples in buffer.get(16):
            counts[trusted(samples)] += 1
    rates = counts.reshape(N_ENVS, N_STEPS) / n_epochs
    assert (rates[[0, 2]] == 1.0).all()
    # Systematic sampling keeps exactly a quarter of the slot; each row stays within five standard deviations.
    assert rates[1].mean() == pytest.approx(0.25)
    assert np.abs(rates[1] - 0.25).max() < 5 * np.sqrt(0.25 * 0.75 / n_epochs)


def test_the_global_generator_is_left_alone():
    buffer = filled(seed=0)
    buffer.factors[0] = 0.5
    finish(buffer)
    np.random.seed(1)  # noqa: NPY002  # what SB3 draws from
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    list(buffer.get(8))
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002


def test_observation_spaces_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="use SelectiveRecurrentDictRolloutBuffer"):
        SelectiveRecurrentRolloutBuffer(N_STEPS, DICT, ACTIONS, HIDDEN)
    with pytest.raises(ValueError, match="use SelectiveRecurrentRolloutBuffer"):
        SelectiveRecurrentDictRolloutBuffer(N_STEPS, BOX, ACTIONS, HIDDEN)


def test_wrong_weights_are_refused():
    with pytest.raises(ValueError, match="early_weight=-1"):
        SelectiveRecurrentRolloutBuffer(N_STEPS, BOX, ACTIONS, HIDDEN, early_weight=-1.0)
