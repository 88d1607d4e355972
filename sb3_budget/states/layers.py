"""The state of the wrappers around an environment: step counters, frame stacks, episode records."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium as gym
from gymnasium.wrappers import RecordEpisodeStatistics, TimeLimit
from stable_baselines3.common.monitor import Monitor

from sb3_budget.states import pickling

#: Attributes of wrappers that a restore leaves alone: how they are wired, and what they keep of finished episodes.
WIRING = {"env", "_action_space", "_observation_space", "_metadata", "_cached_spec", "_reward_range", "_saved_kwargs"}
RECORDS: tuple[tuple[type[gym.Wrapper], set[str]], ...] = (
    (
        Monitor,
        {"results_writer", "t_start", "total_steps", "episode_returns", "episode_lengths", "episode_times"},
    ),
    (
        RecordEpisodeStatistics,
        {"episode_count", "episode_start_time", "time_queue", "return_queue", "length_queue"},
    ),
)
#: What wrappers that count steps and rewards hold at the beginning of an episode.
FRESH: tuple[tuple[type[gym.Wrapper], dict[str, Any]], ...] = (
    (TimeLimit, {"_elapsed_steps": 0}),
    (Monitor, {"rewards": []}),
    (RecordEpisodeStatistics, {"episode_returns": 0.0, "episode_lengths": 0}),
)


def chain(env: gym.Env) -> list[gym.Wrapper]:
    """
    :param env: An environment.
    :return: Its wrappers, the outermost first.
    """
    layers = []
    while isinstance(env, gym.Wrapper):
        layers.append(env)
        env = env.env
    return layers


def save_layer(layer: gym.Wrapper) -> bytes:
    """
    :param layer: A wrapper.
    :return: Its own state, without that of what it wraps.
    :raises ValueError: if it cannot be saved.
    """
    owner = vars(layer)
    left = WIRING.union(*(names for known, names in RECORDS if isinstance(layer, known)))
    attributes = {name: value for name, value in owner.items() if name not in left and not pickling.is_shared(value)}
    try:
        return pickling.dump(attributes, owner)
    except ValueError as error:
        raise ValueError(f"The state of the wrapper {type(layer).__name__} cannot be saved. {error}") from error


def restore_layer(layer: gym.Wrapper, data: bytes, keep_time: bool) -> None:
    """
    :param layer: A wrapper of the same class.
    :param data: What :func:`save_layer` returned.
    :param keep_time: Whether time limits and records of the episode go on from the saved state, or begin anew.
    """
    attributes: dict[str, Any] = pickling.load(data, vars(layer))
    if not keep_time:
        for known, fresh in FRESH:
            if isinstance(layer, known):
                attributes.update(copy.deepcopy(fresh))
    vars(layer).update(attributes)
