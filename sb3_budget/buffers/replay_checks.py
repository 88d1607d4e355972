"""What no buffer with a pool can be beside, refused when it is made."""

from __future__ import annotations

from typing import Any

from gymnasium import spaces
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer


def require_replay_parent(buffer: Any, observation_space: spaces.Space, kwargs: dict[str, Any]) -> None:
    """
    Refuse what would be wrong in silence, or fail with a sentence that does not say the fix.

    :param buffer: A buffer with a pool.
    :param observation_space: Its observation space.
    :param kwargs: Its arguments for Stable-Baselines3's buffer.
    :raises ValueError: if it cannot hold these observations, or its parent cannot have a pool beside it.
    """
    name = type(buffer).__name__
    if isinstance(observation_space, spaces.Dict) != isinstance(buffer, DictReplayBuffer):
        is_dict = "are" if isinstance(observation_space, spaces.Dict) else "are not"
        raise ValueError(
            f"{name} cannot hold these observations, which {is_dict} a Dict: use ZeroVarianceDictReplayBuffer for a Dict, and "
            "ZeroVarianceReplayBuffer otherwise"
        )
    if isinstance(buffer, HerReplayBuffer):
        raise ValueError(f"{name} cannot be a HerReplayBuffer: virtual goals change rewards after the fact")
    if kwargs.get("optimize_memory_usage"):
        raise ValueError(f"{name} needs next observations of their own: optimize_memory_usage must be False")
    if isinstance(buffer, NStepReplayBuffer) and "gamma" not in kwargs:
        raise ValueError(
            f"{name} discounts by itself: pass replay_buffer_kwargs={{'gamma': ..., 'n_steps': ...}}, the model's gamma"
        )
    if "n_steps" in kwargs and not isinstance(buffer, NStepReplayBuffer):
        raise ValueError(f"{name} has rows of one step, not n_steps={kwargs['n_steps']}: use ZeroVarianceNStepReplayBuffer")


def require_no_stops(name: str, infos: list[dict[str, Any]]) -> None:
    """
    :param name: Name of a buffer that does not tell cuts from ends.
    :param infos: What the environments said of a step.
    :raises ValueError: if an episode was stopped: what is stored would be a terminal state.
    """
    if any(info.get("sb3_budget", {}).get("reason") in ("stopped", "horizon") for info in infos):
        raise ValueError(
            f"{name} with handle_timeout_termination=False stores a stopped episode's end as a terminal state: leave it True"
        )
