"""Levels of unequal wealth and size, made anew at every reset: a task of the benchmark on MiniGrid."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

try:
    from minigrid.core.constants import OBJECT_TO_IDX
    from minigrid.core.world_object import Goal
    from minigrid.envs import FourRoomsEnv
except ImportError as error:
    raise ImportError("Levels need MiniGrid: pip install 'sb3-budget[minigrid]'") from error

#: Kinds of cells that the policy tells apart.
KINDS = np.array([OBJECT_TO_IDX[kind] for kind in ("empty", "wall", "goal")])
#: Side of a level in cells, walls included; odd.
SMALLEST, LARGEST = 7, 13
MOST_GOALS = 12
MAX_STEPS = 64


class LevelsEnv(FourRoomsEnv):
    """
    MiniGrid's four rooms, where the seed of a reset draws their size, doors, number of goals and places. A goal that is
    reached pays 1 and comes up elsewhere, until the time is up: large and poor levels allow few, small and rich ones many.

    The policy sees the 7 by 7 cells before it, through walls, one-hot (empty, wall, goal), and its direction, as one flat
    vector; it turns left, turns right, or goes forward. The view is cut out of the level's array, which is several times
    as fast as MiniGrid's own.

    :param max_steps: Steps of every episode.
    :param kwargs: Keyword arguments of ``MiniGridEnv``, e.g. ``render_mode``.
    """

    def __init__(self, max_steps: int = MAX_STEPS, **kwargs: Any):
        super().__init__(max_steps=max_steps, see_through_walls=True, **kwargs)
        self.observation_space = spaces.Box(0.0, 1.0, (self.agent_view_size**2 * len(KINDS) + 4,), np.float32)
        self.action_space = spaces.Discrete(3)

    def _gen_grid(self, width: int, height: int) -> None:
        self.width = self.height = 2 * self._rand_int(SMALLEST // 2, LARGEST // 2 + 1) + 1
        super()._gen_grid(self.width, self.height)
        for _ in range(self._rand_int(0, MOST_GOALS)):
            self.place_obj(Goal())
        self._read_cells()

    def _read_cells(self) -> None:
        """The level as an array, with walls around it as far as one can see."""
        kinds = self.grid.encode()[:, :, 0]
        self._cells = np.pad(kinds, self.agent_view_size, constant_values=OBJECT_TO_IDX["wall"])

    def gen_obs(self) -> Any:
        """
        :return: what the policy sees
        """
        size = self.agent_view_size
        left, top, _, _ = self.get_view_exts()
        view = np.rot90(self._cells[left + size : left + 2 * size, top + size : top + 2 * size], -self.agent_dir - 1)
        direction = np.arange(4) == self.agent_dir
        return np.concatenate([(view[:, :, None] == KINDS).ravel(), direction]).astype(np.float32)

    def _reward(self) -> float:
        return 1.0

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, reached, truncated, info = super().step(int(action))
        if reached:
            x, y = self.agent_pos
            self.grid.set(x, y, None)
            self.place_obj(Goal())
            self._read_cells()
            observation = self.gen_obs()
        return observation, float(reward), False, truncated, info
