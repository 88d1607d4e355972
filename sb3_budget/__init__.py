"""Stable-Baselines3 plugins that make every environment step teach more."""

__version__ = "0.1.0"

from importlib import import_module
from typing import Any

from sb3_budget.algorithms.grpo import GRPO
from sb3_budget.buffers.finished_group_buffer import FinishedGroupDictRolloutBuffer, FinishedGroupRolloutBuffer
from sb3_budget.buffers.group_rollout_buffer import GroupDictRolloutBuffer, GroupRolloutBuffer
from sb3_budget.buffers.selective_rollout_buffer import SelectiveDictRolloutBuffer, SelectiveRolloutBuffer
from sb3_budget.buffers.zero_variance_replay_buffer import (
    ZeroVarianceDictReplayBuffer,
    ZeroVarianceNStepReplayBuffer,
    ZeroVarianceReplayBuffer,
)
from sb3_budget.callbacks.active_verification_callback import ActiveVerificationCallback
from sb3_budget.callbacks.adaptive_horizon_callback import AdaptiveHorizonCallback
from sb3_budget.callbacks.adaptive_offset_callback import AdaptiveOffsetCallback
from sb3_budget.callbacks.adaptive_quantile_callback import AdaptiveQuantileCallback
from sb3_budget.callbacks.budget_allocator_callback import BudgetAllocatorCallback
from sb3_budget.callbacks.budget_callback import BudgetCallback
from sb3_budget.callbacks.critic_recycling_callback import CriticRecyclingCallback
from sb3_budget.callbacks.phase_penalty_callback import PhasePenaltyCallback
from sb3_budget.callbacks.rollout_length_callback import RolloutLengthCallback
from sb3_budget.callbacks.selective_rollout_callback import SelectiveRolloutCallback
from sb3_budget.callbacks.stability_callback import StabilityCallback
from sb3_budget.callbacks.staggered_reset_callback import StaggeredResetCallback
from sb3_budget.callbacks.value_audit_callback import ValueAuditCallback
from sb3_budget.callbacks.zero_variance_callback import ZeroVarianceCallback
from sb3_budget.core.anchor_horizons import DoublingHorizon
from sb3_budget.core.anchors import Anchors
from sb3_budget.core.cells import ExactCells, KMeansCells, ProjectedCells, QuantisedCells
from sb3_budget.core.convergence_gate import ConvergenceGate
from sb3_budget.core.gates import (
    ConfidenceGate,
    HeuristicGate,
    QuantileGate,
    RandomGate,
    RatioGate,
    RewardGate,
    ValueGate,
)
from sb3_budget.core.group_gates import GroupQuantileGate
from sb3_budget.core.region_roi import RegionRoi
from sb3_budget.core.rido import AdaptiveHorizons
from sb3_budget.core.scores import RolloutView
from sb3_budget.core.signal_bandit import SignalBandit
from sb3_budget.core.start_rules import DiscardRule, LevelReplayRule, RecycleRule, SkipRule
from sb3_budget.core.starts import PoolEntries
from sb3_budget.policies.critic_learning_rate import CriticLearningRatePolicy
from sb3_budget.policies.ensemble_actor_critic import (
    EnsembleActorCriticCnnPolicy,
    EnsembleActorCriticPolicy,
    EnsembleMultiInputActorCriticPolicy,
)
from sb3_budget.states.state_wrapper import StateWrapper
from sb3_budget.vec_env.episode_control_vec_env import EpisodeControlVecEnv
from sb3_budget.vec_env.hidden_context import HiddenContextWrapper
from sb3_budget.vec_env.spare_reset import SpareResetEnv
from sb3_budget.vec_env.staggered_reset_vec_env import StaggeredResetVecEnv
from sb3_budget.vec_env.start import Start
from sb3_budget.vec_env.start_pool import StartPool
from sb3_budget.vec_env.thread_vec_env import ThreadVecEnv

#: Names that need sb3-contrib and are imported when they are first used.
_CONTRIB = {
    "SelectiveMaskableDictRolloutBuffer": "sb3_budget.buffers.selective_maskable_buffer",
    "SelectiveMaskableRolloutBuffer": "sb3_budget.buffers.selective_maskable_buffer",
    "SelectiveRecurrentDictRolloutBuffer": "sb3_budget.buffers.selective_recurrent_buffer",
    "SelectiveRecurrentPPO": "sb3_budget.algorithms.selective_recurrent_ppo",
    "SelectiveRecurrentRolloutBuffer": "sb3_budget.buffers.selective_recurrent_buffer",
}


def __getattr__(name: str) -> Any:
    if name in _CONTRIB:
        return getattr(import_module(_CONTRIB[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "GRPO",
    "ActiveVerificationCallback",
    "AdaptiveHorizonCallback",
    "AdaptiveHorizons",
    "AdaptiveOffsetCallback",
    "AdaptiveQuantileCallback",
    "Anchors",
    "BudgetAllocatorCallback",
    "BudgetCallback",
    "ConfidenceGate",
    "ConvergenceGate",
    "CriticLearningRatePolicy",
    "CriticRecyclingCallback",
    "DiscardRule",
    "DoublingHorizon",
    "EnsembleActorCriticCnnPolicy",
    "EnsembleActorCriticPolicy",
    "EnsembleMultiInputActorCriticPolicy",
    "EpisodeControlVecEnv",
    "ExactCells",
    "FinishedGroupDictRolloutBuffer",
    "FinishedGroupRolloutBuffer",
    "GroupDictRolloutBuffer",
    "GroupQuantileGate",
    "GroupRolloutBuffer",
    "HeuristicGate",
    "HiddenContextWrapper",
    "KMeansCells",
    "LevelReplayRule",
    "PhasePenaltyCallback",
    "PoolEntries",
    "ProjectedCells",
    "QuantileGate",
    "QuantisedCells",
    "RandomGate",
    "RatioGate",
    "RecycleRule",
    "RegionRoi",
    "RewardGate",
    "RolloutLengthCallback",
    "RolloutView",
    "SelectiveDictRolloutBuffer",
    "SelectiveMaskableDictRolloutBuffer",
    "SelectiveMaskableRolloutBuffer",
    "SelectiveRecurrentDictRolloutBuffer",
    "SelectiveRecurrentPPO",
    "SelectiveRecurrentRolloutBuffer",
    "SelectiveRolloutBuffer",
    "SelectiveRolloutCallback",
    "SignalBandit",
    "SkipRule",
    "SpareResetEnv",
    "StabilityCallback",
    "StaggeredResetCallback",
    "StaggeredResetVecEnv",
    "Start",
    "StartPool",
    "StateWrapper",
    "ThreadVecEnv",
    "ValueAuditCallback",
    "ValueGate",
    "ZeroVarianceCallback",
    "ZeroVarianceDictReplayBuffer",
    "ZeroVarianceNStepReplayBuffer",
    "ZeroVarianceReplayBuffer",
]
