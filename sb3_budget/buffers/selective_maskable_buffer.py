"""Weighted rollout buffers for MaskablePPO."""

from __future__ import annotations

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


class SelectiveMaskableDictRolloutBuffer(SelectiveBufferMixin, MaskableDictRolloutBuffer):
    """
    ``MaskableDictRolloutBuffer`` with weights; otherwise as :class:`SelectiveMaskableRolloutBuffer`.

    :raises ValueError: if an argument is out of range or the observation space is not a ``Dict``.
    """
