"""Batches are put together row by row."""

from __future__ import annotations

import pytest
import torch as th
from stable_baselines3.common.type_aliases import DictReplayBufferSamples, ReplayBufferSamples

from sb3_budget.buffers.replay_rows import join


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
