"""Exact save and restore of simulator state."""

from sb3_budget.states.adapters import REPLAY, Adapter, find_adapter, plain_adapter, register_adapter
from sb3_budget.states.exactness import SelfCheck, save_state, self_check
from sb3_budget.states.state import Restored, State, restore_state
from sb3_budget.states.state_wrapper import StateWrapper

__all__ = [
    "REPLAY",
    "Adapter",
    "Restored",
    "SelfCheck",
    "State",
    "StateWrapper",
    "find_adapter",
    "plain_adapter",
    "register_adapter",
    "restore_state",
    "save_state",
    "self_check",
]
