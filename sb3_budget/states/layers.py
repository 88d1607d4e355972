"""The state of the wrappers around an environment: step counters, frame stacks, episode records."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import gymnasium as gym
from gymnasium.wrappers import NormalizeObservation, NormalizeReward, RecordEpisodeStatistics, RecordVideo, TimeLimit
from stable_baselines3.common.monitor import Monitor

from sb3_budget.states import pickling

#: How a wrapper is wired.
WIRING = {"env", "_action_space", "_observation_space", "_metadata", "_cached_spec", "_reward_range", "_saved_kwargs"}
#: What else of a wrapper is not its state: how it is configured, running statistics, what it keeps of finished episodes.
LEFT: tuple[tuple[type[gym.Wrapper], set[str]], ...] = (
    (TimeLimit, {"_max_episode_steps"}),
    (NormalizeObservation, {"obs_rms", "_update_running_mean"}),
    (NormalizeReward, {"return_rms", "_update_running_mean"}),
    (Monitor, {"results_writer", "t_start", "total_steps", "episode_returns", "episode_lengths", "episode_times"}),
    (RecordEpisodeStatistics, {"episode_count", "episode_start_time", "time_queue", "return_queue", "length_queue"}),
)
#: Wrappers that keep records of episodes.
RECORDERS = (Monitor, RecordEpisodeStatistics, RecordVideo)
#: Wrappers that learn from all that passes.
STATISTICS = (NormalizeObservation, NormalizeReward)
#: What counters and records hold at the beginning of an episode.
FRESH_TIME: tuple[tuple[type[gym.Wrapper], dict[str, Any]], ...] = ((TimeLimit, {"_elapsed_steps": 0}),)
FRESH_RECORDS: tuple[tuple[type[gym.Wrapper], dict[str, Any]], ...] = (
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


def keeper(env: gym.Env) -> Any:
    """
    :param env: An environment.
    :return: Its outermost ``StateWrapper``, ``None`` without one.
    """
    return next((layer for layer in chain(env) if getattr(layer, "keeps_states", False)), None)


def save_layer(layer: gym.Wrapper, keep_records: bool = True) -> bytes:
    """
    :param layer: A wrapper.
    :param keep_records: Whether the record of the present episode is saved, or one that begins here.
    :return: Its own state, without that of what it wraps.
    :raises ValueError: if it cannot be saved.
    """
    try:
        return pickling.dump(_attributes(layer) | ({} if keep_records else _fresh(layer, FRESH_RECORDS)), layer)
    except ValueError as error:
        raise ValueError(f"The state of the wrapper {type(layer).__name__} cannot be saved. {error}") from error


def restore_layer(layer: gym.Wrapper, data: bytes, keep_time: bool, keep_records: bool) -> None:
    """
    :param layer: A wrapper of the same class.
    :param data: What :func:`save_layer` returned.
    :param keep_time: Whether time limits go on from the saved state, or begin anew.
    :param keep_records: Whether records of the present episode do.
    """
    attributes = pickling.load(data, layer)
    for kept, table in ((keep_time, FRESH_TIME), (keep_records, FRESH_RECORDS)):
        attributes.update({} if kept else _fresh(layer, table))
    for name in _attributes(layer):
        if name not in attributes:
            delattr(layer, name)
    vars(layer).update(attributes)


@contextmanager
def unrecorded(env: gym.Env) -> Iterator[None]:
    """
    Steps and resets within belong to nobody's episode: afterwards all recorders are as they were, and nothing was written.
    Running statistics stand still.

    :param env: An environment.
    """
    recorders = [layer for layer in chain(env) if isinstance(layer, (*RECORDERS, *STATISTICS))]
    before = [{name: _copied(value) for name, value in vars(layer).items()} for layer in recorders]
    for layer in recorders:
        if isinstance(layer, Monitor):
            layer.results_writer = None
        if isinstance(layer, RecordVideo):
            layer.episode_trigger = layer.step_trigger = None
            layer.recording = False
        if isinstance(layer, STATISTICS):
            layer.update_running_mean = False
    try:
        yield
    finally:
        for layer, attributes in zip(recorders, before, strict=True):
            vars(layer).clear()
            vars(layer).update(attributes)


def _fresh(layer: gym.Wrapper, table: tuple[tuple[type[gym.Wrapper], dict[str, Any]], ...]) -> dict[str, Any]:
    found = (fresh for known, fresh in table if isinstance(layer, known))
    return copy.deepcopy(next(found, {}))


def _copied(value: Any) -> Any:
    # Lists and queues of finished episodes; deep copies would open files and windows again.
    return copy.copy(value) if hasattr(value, "append") else value


def _attributes(layer: gym.Wrapper) -> dict[str, Any]:
    if isinstance(layer, RecordVideo):
        return {}
    left = _left(type(layer))  # type: ignore[arg-type]  # mypy looks for __hash__ in its objects
    return {name: value for name, value in vars(layer).items() if name not in left and not pickling.is_shared(value)}


@lru_cache
def _left(cls: type[gym.Wrapper]) -> frozenset[str]:
    return frozenset(WIRING).union(*(names for known, names in LEFT if issubclass(cls, known)))
