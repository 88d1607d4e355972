"""The arms of the benchmark: what each adds to stock PPO, or to stock DQN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecEnv

from sb3_budget.algorithms.grpo import GRPO
from sb3_budget.bench.literals import literal
from sb3_budget.bench.settings import Settings
from sb3_budget.buffers.selective_rollout_buffer import SelectiveDictRolloutBuffer, SelectiveRolloutBuffer
from sb3_budget.callbacks.budget_allocator_callback import BudgetAllocatorCallback
from sb3_budget.callbacks.selective_rollout_callback import MIN_SURVIVAL, SelectiveRolloutCallback
from sb3_budget.core import gates
from sb3_budget.core.starts import PoolEntries
from sb3_budget.vec_env.episode_control_vec_env import EpisodeControlVecEnv
from sb3_budget.vec_env.group_starts import GroupStarts
from sb3_budget.vec_env.staggered_reset_vec_env import StaggeredResetVecEnv
from sb3_budget.vec_env.start_pool import StartPool

#: Number of starts in the pools of the arms that have one.
POOL_SIZE = 200


class Reference(NamedTuple):
    """
    What a control copies from the finished run of another arm with the same env and seed.

    :param stop_probability: share of looks at which that run's gate wanted to stop
    :param mean_length: its mean episode length after the warm-up
    """

    stop_probability: float
    mean_length: float


class Arm(NamedTuple):
    """
    :param summary: what it is, for the report
    :param staggered: whether the training env is a ``StaggeredResetVecEnv``
    :param horizon_budget: its horizon budget
    :param gate: quantile of the value gate, ``None`` without a gate
    :param control: keyword arguments of the callback from a :class:`Reference` and those given, for arms that copy one
    :param copies: the arm that is copied
    :param group_size: slots per group of equal starts, ``None`` without groups
    :param group_relative: whether the advantages are relative to the group: GRPO instead of PPO
    :param pool: rule of a pool of :data:`POOL_SIZE` starts that groups begin in, ``None`` for new ones without end
    :param allocator: priority of the archived states that episodes begin in, ``None`` without an archive
    :param replay: what fills the batches of a DQN, see ``replay_arms.build``; ``None`` for on-policy arms
    """

    summary: str
    staggered: bool = True
    horizon_budget: str = "full"
    gate: float | None = None
    control: Callable[[Reference, dict[str, Any]], dict[str, Any]] | None = None
    copies: str | None = None
    group_size: int | None = None
    group_relative: bool = False
    pool: str | None = None
    allocator: str | None = None
    replay: str | None = None

    @property
    def selective(self) -> bool:
        """Whether the arm stops episodes by a gate."""
        return self.gate is not None or self.control is not None


def _same_rate(reference: Reference, given: dict[str, Any]) -> dict[str, Any]:
    """Stop at random, and wait where the gate that is copied waits."""
    return {"min_survival": MIN_SURVIVAL, **given, "gate": gates.RandomGate(reference.stop_probability)}


def _same_mean(reference: Reference, given: dict[str, Any]) -> dict[str, Any]:
    """Stop at every multiple of the mean length: slots keep the phases they have when the warm-up ends."""
    length = max(1, round(reference.mean_length))
    return {**given, "gate": gates.RandomGate(1.0), "check_interval": length, "grace": length, "audit_fraction": 0.0}


ARMS = {
    "stock": Arm("stock SB3 PPO", staggered=False),
    "stagger": Arm("staggered first episodes"),
    "horizon": Arm("stagger + discount horizon budget", horizon_budget="discount"),
    "select": Arm("stagger + value gate, quantile 0.25", gate=0.25),
    "full": Arm("stagger + value gate, quantile 0.4: what we recommend", gate=0.4),
    "random-gate": Arm("control: stops at random, as often as full", control=_same_rate, copies="full"),
    "grpo": Arm("GRPO on groups of 4", staggered=False, group_size=4, group_relative=True),
    "grpo-8": Arm("GRPO on groups of 8", staggered=False, group_size=8, group_relative=True),
    "grouped": Arm("control: PPO on the starts of grpo", staggered=False, group_size=4),
    "grpo+select": Arm("GRPO + value gate, quantile 0.25", staggered=False, gate=0.25, group_size=4, group_relative=True),
    "grpo+random-gate": Arm(
        "control: stops at random, as often as grpo+select",
        staggered=False,
        control=_same_rate,
        copies="grpo+select",
        group_size=4,
        group_relative=True,
    ),
    "grpo+short-horizon": Arm(
        "control: every episode as long as grpo+select's mean",
        staggered=False,
        control=_same_mean,
        copies="grpo+select",
        group_size=4,
        group_relative=True,
    ),
    "grpo+pool": Arm(
        "GRPO on a pool of 200 starts, recycled", staggered=False, group_size=4, group_relative=True, pool="recycle"
    ),
    "grpo+pool-plr": Arm(
        "GRPO on a pool of 200 starts, by level replay", staggered=False, group_size=4, group_relative=True, pool="plr"
    ),
    "grpo+pool-uniform": Arm(
        "control: GRPO on the same 200 starts, drawn evenly",
        staggered=False,
        group_size=4,
        group_relative=True,
        pool="uniform",
    ),
    "allocate": Arm("starts in archived states by predicted contrast", staggered=False, allocator="contrast"),
    "allocate-novelty": Arm("starts in archived states by novelty", staggered=False, allocator="novelty"),
    "allocate-advantage": Arm("starts in archived states by absolute advantage", staggered=False, allocator="advantage"),
    "uniform-archive": Arm("control: starts in archived states, all alike", staggered=False, allocator="uniform"),
    "short-horizon": Arm("control: every episode as long as full's mean", control=_same_mean, copies="full"),
    "dqn": Arm("stock SB3 DQN", staggered=False, replay="stock"),
    "dqn+pool": Arm("DQN, a share of each batch from the pool of deterministic transitions", staggered=False, replay="pool"),
    "dqn+graph": Arm("dqn+pool with exact targets from the graph", staggered=False, replay="graph"),
    "dqn+explore": Arm("dqn+graph with optimism about what was never tried", staggered=False, replay="explore"),
    "dqn+uniform-pool": Arm(
        "control: the same share from all distinct transitions, unchecked", staggered=False, replay="distinct"
    ),
}


GATES = {
    gate.__name__: gate
    for gate in (
        gates.QuantileGate,
        gates.RatioGate,
        gates.RewardGate,
        gates.ValueGate,
        gates.ConfidenceGate,
        gates.RandomGate,
    )
}
"""Gates that a hyperparameter file may name, as in ``gate: "QuantileGate(0.4, score='return')"``."""


def split(name: str) -> tuple[Arm, str]:
    """
    :param name: an arm, or ``arm+label`` for the same arm with hyperparameters of its own
    :return: the arm and ``+label`` (or an empty string)
    """
    for base in sorted(ARMS, key=len, reverse=True):
        label = name.removeprefix(base)
        if name.startswith(base) and (not label or (label.startswith("+") and len(label) > 1)):
            if set(label) & set("/\\"):
                raise ValueError(f"the label of {name!r} is part of a file name, and must not contain a slash")
            return ARMS[base], label
    raise ValueError(f"unknown arm {name!r}; there are {', '.join(ARMS)}, and arm+label for a second setting of one")


def copied_arm(name: str) -> str | None:
    """
    :param name: name of an arm
    :return: name of the arm whose runs it copies; a labelled control copies the arm with the same label
    """
    arm, label = split(name)
    return None if arm.copies is None else arm.copies + label


def baseline(name: str) -> str:
    """
    :param name: name of an arm
    :return: name of the arm that it is measured against
    """
    return "stock" if split(name)[0].replay is None else "dqn"


def wrap(name: str, venv: VecEnv, settings: Settings, seed: int) -> VecEnv:
    """
    :param name: name of an arm
    :param venv: the bare training env
    :param settings: hyperparameters
    :param seed: seed of the wrapper
    :return: the env as the arm wants it, below ``VecNormalize``
    """
    arm, _ = split(name)
    if arm.group_size is not None:
        control = EpisodeControlVecEnv(venv, seed=seed)
        if not arm.group_relative:
            control.set_start_sampler(GroupStarts(venv.num_envs, arm.group_size, seed))
        return control
    if arm.allocator is not None:
        return EpisodeControlVecEnv(venv, seed=seed)
    if not arm.staggered:
        return venv
    defaults = {"horizon_budget": arm.horizon_budget, "gamma": settings.ppo.get("gamma", 0.99), "seed": seed}
    # The arm itself says whether it staggers: enabled=False, for a callback that switches it on, would be stock.
    return StaggeredResetVecEnv(venv, **{**defaults, **settings.stagger, "enabled": True})


def callback(name: str, settings: Settings, seed: int, reference: Reference | None) -> SelectiveRolloutCallback | None:
    """
    :param name: name of an arm
    :param settings: hyperparameters
    :param seed: seed of the callback
    :param reference: what a control copies
    :return: the arm's callback
    """
    arm, _ = split(name)
    if not arm.selective:
        return None
    kwargs: dict[str, Any] = {"gate": arm.gate, "seed": seed, **settings.selective}
    if isinstance(kwargs["gate"], str):
        kwargs["gate"] = literal(kwargs["gate"], GATES)
    if arm.control is not None:
        if reference is None:
            raise ValueError(f"the arm {name} copies {copied_arm(name)}, which has not run")
        kwargs = arm.control(reference, kwargs)
    return SelectiveRolloutCallback(**kwargs)


def allocator(name: str, settings: Settings, seed: int) -> BudgetAllocatorCallback | None:
    """
    :param name: name of an arm
    :param settings: hyperparameters
    :param seed: seed of the callback
    :return: the callback that decides where the arm's episodes begin
    """
    arm, _ = split(name)
    if arm.allocator is None:
        return None
    return BudgetAllocatorCallback(**{"priority": arm.allocator, "seed": seed, **settings.allocator})


def _evenly(entries: PoolEntries, rng: np.random.Generator) -> int:
    return int(rng.integers(len(entries.weights)))


def algorithm(name: str, seed: int) -> tuple[type[PPO], dict[str, Any]]:
    """
    :param name: name of an arm
    :param seed: seed of a pool of starts
    :return: its algorithm and the keyword arguments that only this one has
    """
    arm, _ = split(name)
    if not arm.group_relative:
        return PPO, {}
    own: dict[str, Any] = {"group_size": arm.group_size}
    if arm.pool is not None:
        own["start_rule"] = StartPool(POOL_SIZE, _evenly if arm.pool == "uniform" else arm.pool, seed=seed)
    return GRPO, own


def buffer(name: str, settings: Settings, observation_space: spaces.Space) -> dict[str, Any]:
    """
    :param name: name of an arm
    :param settings: hyperparameters
    :param observation_space: of the training env
    :return: keyword arguments of the algorithm that choose its rollout buffer
    """
    arm, _ = split(name)
    if not arm.selective:
        return {}
    if arm.group_relative:
        return {"rollout_buffer_kwargs": dict(settings.buffer)}
    chosen = SelectiveDictRolloutBuffer if isinstance(observation_space, spaces.Dict) else SelectiveRolloutBuffer
    return {"rollout_buffer_class": chosen, "rollout_buffer_kwargs": dict(settings.buffer)}
