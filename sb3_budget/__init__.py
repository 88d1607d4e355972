"""Stable-Baselines3 plugins that make every environment step teach more."""

__version__ = "0.1.0"

from sb3_budget.buffers.selective_rollout_buffer import SelectiveDictRolloutBuffer, SelectiveRolloutBuffer
from sb3_budget.callbacks.selective_rollout_callback import SelectiveRolloutCallback
from sb3_budget.callbacks.staggered_reset_callback import StaggeredResetCallback
from sb3_budget.core.gates import (
    ConfidenceGate,
    HeuristicGate,
    QuantileGate,
    RandomGate,
    RatioGate,
    RewardGate,
    ValueGate,
)
from sb3_budget.core.scores import RolloutView
from sb3_budget.vec_env.episode_control_vec_env import EpisodeControlVecEnv
from sb3_budget.vec_env.staggered_reset_vec_env import StaggeredResetVecEnv
from sb3_budget.vec_env.start import Start

__all__ = [
    "ConfidenceGate",
    "EpisodeControlVecEnv",
    "HeuristicGate",
    "QuantileGate",
    "RandomGate",
    "RatioGate",
    "RewardGate",
    "RolloutView",
    "SelectiveDictRolloutBuffer",
    "SelectiveRolloutBuffer",
    "SelectiveRolloutCallback",
    "StaggeredResetCallback",
    "StaggeredResetVecEnv",
    "Start",
    "ValueGate",
]
