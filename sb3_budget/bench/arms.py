"""The arms of the benchmark: what each adds to stock PPO."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecEnv

from sb3_budget.algorithms.grpo import GRPO
from sb3_budget.bench.literals import literal
from sb3_budget.bench.settings import Settings
from sb3_budget.buffers.selective_rollout_buffer import SelectiveDictRolloutBuffer, SelectiveRolloutBuffer
from sb3_budget.callbacks.selective_rollout_callback import SelectiveRolloutCallback
from sb3_budget.core import gates
from sb3_budget.vec_env.episode_control_vec_env import EpisodeControlVecEnv
from sb3_budget.vec_env.group_starts import GroupStarts
from sb3_budget.vec_env.staggered_reset_vec_env import StaggeredResetVecEnv


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
    :param control: keyword arguments of the callback from a :class:`Reference`, for arms that copy one
    :param copies: the arm that is copied
    :param group_size: slots per group of equal starts, ``None`` without groups
    :param group_relative: whether the advantages are relative to the group: GRPO instead of PPO
    """

    summary: str
    staggered: bool = True
    horizon_budget: str = "full"
    gate: float | None = None
    control: Callable[[Reference], dict[str, Any]] | None = None
    copies: str | None = None
    group_size: int | None = None
    group_relative: bool = False

    @property
    def selective(self) -> bool:
        """Whether the arm stops episodes by a gate."""
        return self.gate is not None or self.control is not None


def _same_rate(reference: Reference) -> dict[str, Any]:
    return {"gate": gates.RandomGate(reference.stop_probability)}


def _same_mean(reference: Reference) -> dict[str, Any]:
    """Stop at every multiple of the mean length: slots keep the phases they have when the warm-up ends."""
    length = max(1, round(reference.mean_length))
    return {"gate": gates.RandomGate(1.0), "check_interval": length, "grace": length, "audit_fraction": 0.0}


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
    "short-horizon": Arm("control: every episode as long as full's mean", control=_same_mean, copies="full"),
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
    base, plus, label = name.partition("+")
    if base not in ARMS or (plus and not label):
        raise ValueError(f"unknown arm {name!r}; there are {', '.join(ARMS)}, and arm+label for a second setting of one")
    return ARMS[base], plus + label


def copied_arm(name: str) -> str | None:
    """
    :param name: name of an arm
    :return: name of the arm whose runs it copies; a labelled control copies the arm with the same label
    """
    arm, label = split(name)
    return None if arm.copies is None else arm.copies + label


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
    if not arm.staggered:
        return venv
    defaults = {"horizon_budget": arm.horizon_budget, "gamma": settings.ppo.get("gamma", 0.99), "seed": seed}
    return StaggeredResetVecEnv(venv, **{**defaults, **settings.stagger})


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
        kwargs.update(arm.control(reference))
    return SelectiveRolloutCallback(**kwargs)


def algorithm(name: str) -> tuple[type[PPO], dict[str, Any]]:
    """
    :param name: name of an arm
    :return: its algorithm and the keyword arguments that only this one has
    """
    arm, _ = split(name)
    return (GRPO, {"group_size": arm.group_size}) if arm.group_relative else (PPO, {})


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
    chosen = SelectiveDictRolloutBuffer if isinstance(observation_space, spaces.Dict) else SelectiveRolloutBuffer
    return {"rollout_buffer_class": chosen, "rollout_buffer_kwargs": dict(settings.buffer)}
