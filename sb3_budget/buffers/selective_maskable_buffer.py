"""Weighted rollout buffers for MaskablePPO."""

from __future__ import annotations

from typing import Any

from gymnasium import spaces

from sb3_budget.buffers.selective_rollout_buffer import SelectiveBufferMixin

try:
    from sb3_contrib.common.maskable.buffers import MaskableDictRolloutBuffer, MaskableRolloutBuffer
except ImportError as error:
    raise ImportError("Buffers for MaskablePPO need sb3-contrib: pip install 'sb3-budget[contrib]'") from error


class SelectiveMaskableRolloutBuffer(SelectiveBufferMixin, MaskableRolloutBuffer):
    """
    ``MaskableRolloutBuffer`` with weights, for ``rollout_buffer_class`` of MaskablePPO.

    Arguments as :class:`~sb3_budget.SelectiveRolloutBuffer`. Dict observations need
    :class:`SelectiveMaskableDictRolloutBuffer`.

    :raises ValueError: if an argument is out of range or the observation space is a ``Dict``.
    """

    def __init__(
        self, buffer_size: int, observation_space: spaces.Space, action_space: spaces.Space, *args: Any, **kwargs: Any
    ):
        if isinstance(observation_space, spaces.Dict):
            raise ValueError(
                "SelectiveMaskableRolloutBuffer cannot hold Dict observations: use SelectiveMaskableDictRolloutBuffer"
            )
        super().__init__(buffer_size, observation_space, action_space, *args, **kwargs)


class SelectiveMaskableDictRolloutBuffer(SelectiveBufferMixin, MaskableDictRolloutBuffer):
    """
    ``MaskableDictRolloutBuffer`` with weights; otherwise as :class:`SelectiveMaskableRolloutBuffer`.

    :raises ValueError: if an argument is out of range or the observation space is not a ``Dict``.
    """

    def __init__(
        self, buffer_size: int, observation_space: spaces.Space, action_space: spaces.Space, *args: Any, **kwargs: Any
    ):
        if not isinstance(observation_space, spaces.Dict):
            raise ValueError(
                "SelectiveMaskableDictRolloutBuffer holds Dict observations only: use SelectiveMaskableRolloutBuffer"
            )
        super().__init__(buffer_size, observation_space, action_space, *args, **kwargs)
