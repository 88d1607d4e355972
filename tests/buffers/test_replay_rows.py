"""Observations with and without names survive the way through columns, and batches are put together row by row."""

from __future__ import annotations

import numpy as np
import pytest
import torch as th
from stable_baselines3.common.type_aliases import DictReplayBufferSamples, ReplayBufferSamples

from sb3_budget.buffers.replay_rows import entries, field, join, part_of


@pytest.mark.parametrize("observations", [np.arange(6).reshape(3, 2), {"a": np.arange(3), "b": np.arange(6).reshape(3, 2)}])
def test_observations_come_back_from_their_columns(observations):
    parts = {"observations": observations, "next_observations": observations}
    columns = {field(part, name): array for part, given in parts.items() for name, array in entries(given).items()}
    columns["rewards"] = np.zeros(3)
    back = part_of(columns, "observations")
    assert isinstance(back, dict) == isinstance(observations, dict)
    for name, array in entries(back, 1).items():
        assert np.array_equal(array, entries(observations)[name][1])


@pytest.mark.parametrize("discounts", [True, False])
@pytest.mark.parametrize("kind", [ReplayBufferSamples, DictReplayBufferSamples])
def test_batches_are_joined_in_order(kind, discounts):
    def batch(*values):
        column = th.tensor(values)[:, None]
        observations = {"a": column} if kind is DictReplayBufferSamples else column
        return kind(observations, column, observations, column, column, column if discounts else None)

    joined = join(batch(1, 2), batch(3))
    assert type(joined) is kind and (joined.discounts is not None) == discounts
    observations = joined.observations["a"] if kind is DictReplayBufferSamples else joined.observations
    for column in (observations, joined.actions, joined.rewards, joined.dones):
        assert column.flatten().tolist() == [1, 2, 3]
