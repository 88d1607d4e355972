"""Observations with and without names survive the way through columns."""

from __future__ import annotations

import numpy as np
import pytest

from sb3_budget.core.transition_fields import columns_of, entries, part_of


@pytest.mark.parametrize("observations", [np.arange(6).reshape(3, 2), {"a": np.arange(3), "b": np.arange(6).reshape(3, 2)}])
def test_observations_come_back_from_their_columns(observations):
    columns = columns_of("observations", observations) | columns_of("next_observations", observations)
    assert len(columns) == 2 * len(entries(observations))
    columns["rewards"] = np.zeros(3)
    back = part_of(columns, "observations")
    assert isinstance(back, dict) == isinstance(observations, dict)
    for name, array in entries(back).items():
        assert np.array_equal(array, entries(observations)[name])
