"""Peers of earlier rollouts count like those of the present one."""

from __future__ import annotations

import numpy as np
import pytest

from sb3_budget.core.groups import PeerRows, residual_advantages
from sb3_budget.core.peer_memory import PeerMemory


def rows(advantages, groups, episodes, times):
    return PeerRows(np.array(advantages, dtype=float), *(np.array(key) for key in (groups, episodes, times)))


def test_a_member_that_is_behind_meets_what_the_others_left():
    memory = PeerMemory(2)
    memory.add(rows([4.0, 9.0], [0, 1], [3, 3], [7, 7]), np.array([3, 3]))
    found = residual_advantages([2.0, 5.0], [0, 0], [3, 3], [7, 8], memory.rows)
    # The first row has one peer, of advantage 4, and none has the second: c = 2 * 4 / 4^2.
    assert found.coefficient == pytest.approx(0.5)
    np.testing.assert_allclose(found.advantages, [0.0, 5.0])
    assert found.mean_peers == 0.5


def test_rows_are_forgotten_when_too_old_or_when_nobody_can_meet_them():
    memory = PeerMemory(2)
    for rollout in range(4):
        memory.add(rows([float(rollout)] * 2, [0, 1], [rollout, 10], [0, 0]), np.array([3, 10]))
    assert memory.rows is not None
    np.testing.assert_array_equal(memory.rows.advantages, [2.0, 3.0, 3.0])


def test_no_memory_is_none():
    memory = PeerMemory(0)
    memory.add(rows([1.0], [0], [0], [0]), np.array([0]))
    assert memory.rows is None
    with pytest.raises(ValueError, match="remember_peers=-1"):
        PeerMemory(-1)
