"""Groups of whole episodes where slots take their time: no group is held up, and equal lengths change nothing."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv

from sb3_budget import GRPO, StartPool
from sb3_budget.vec_env.group_starts import GroupStarts
from tests.algorithms.test_grpo_whole_episodes import SMALL, parameters, pendulums


class Sluggish(gym.Env):
    """Slot 0 takes ten times as many steps to its end as the others."""

    observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, length):
        self.length = length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.start = 0, np.float32(self.np_random.uniform(-1, 1))
        return np.array([self.start]), {}

    def step(self, action):
        self.steps += 1
        return np.array([self.start]), float(action), False, self.steps == self.length, {}


class Waiting(BaseCallback):
    """How many starts are open, how many rows wait, and in which observation each start's episodes began."""

    def __init__(self):
        super().__init__()
        self.open, self.carried, self.begun = [], [], {}

    def _on_step(self):
        return True

    def _on_rollout_end(self):
        buffer = self.model.rollout_buffer
        self.open.append(len(buffer.outcomes._open))
        self.carried.append(len(buffer._carried))
        for row, slot in np.argwhere(buffer.episode_starts > 0).tolist():
            place = slot // buffer.group_size, int(buffer.episodes[row, slot])
            self.begun.setdefault(place, []).append((int(buffer.members[row, slot]), buffer.observations[row, slot, 0]))


@pytest.mark.parametrize("advantage", ["outcome", "return_to_go"])
def test_a_slow_slot_holds_no_group_up_for_longer_than_its_episodes(advantage):
    lengths, waiting = (40, 4, 4, 4), Waiting()
    venv = DummyVecEnv([lambda length=length: Sluggish(length) for length in lengths])
    pool = StartPool(50, lambda entries, rng: int(rng.integers(50)), seed=0)
    model = GRPO(
        "MlpPolicy", venv, group_size=4, advantage=advantage, start_rule=pool, **{**SMALL, "n_steps": 20, "batch_size": 40}
    )
    model.learn(4 * 20 * 40, callback=waiting)
    # A count for each slot would have left it 180 starts behind in the end.
    assert max(waiting.open) <= 4 and max(waiting.carried) <= 4 * 2 * 40
    assert waiting.carried[-1] <= max(waiting.carried[:10])
    assert model.rollout_buffer.row_age <= 4
    whole = [begun for begun in waiting.begun.values() if len(begun) == 4]
    assert len(whole) >= len(waiting.begun) - 2 > 140
    assert all(sorted(member for member, _ in begun) == [0, 1, 2, 3] for begun in whole)
    assert all(len({observation for _, observation in begun}) == 1 for begun in whole)
    # The pool hears of the groups that finish after later ones, and forgets nothing that is still open.
    assert pool.entries.visits.sum() >= len(whole) - 4 and len(pool._given) <= 4


def test_where_lengths_are_equal_starts_are_counted_by_slot(monkeypatch):
    runs = [parameters(pendulums(n_steps=50).learn(1200))]
    monkeypatch.setattr(GroupStarts, "_next_episode", lambda self, slot, group: int(self.episodes[slot]) + 1)
    runs.append(parameters(pendulums(n_steps=50).learn(1200)))
    np.testing.assert_array_equal(*runs)
    assert (runs[0] != parameters(pendulums(n_steps=50))).any()
