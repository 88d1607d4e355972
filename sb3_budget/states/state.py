"""Saves an environment with its wrappers, and puts another one into the same state."""

from __future__ import annotations

import copy
import pickle
from functools import lru_cache
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from stable_baselines3.common.monitor import Monitor

from sb3_budget.states.adapters import MUJOCO, PLAIN, Adapter, find_adapter, full_name
from sb3_budget.states.layers import chain, keeper, restore_layer, save_layer, unrecorded
from sb3_budget.states.plain import reseed
from sb3_budget.states.shared import Shared, dump, load

#: Version of what :class:`State` holds.
FORMAT = 2
NEEDS_KEEPER = (
    "The state of {} is its past, which is played again to restore it, and only a StateWrapper knows it: "
    "make_vec_env(..., wrapper_class=StateWrapper)"
)


class State(NamedTuple):
    """
    The state of an environment. It can be pickled, kept in thousands, and restored in another process.

    :param format: Version of the format.
    :param env: Class of the innermost environment.
    :param adapter: Name of the family's adapter.
    :param simulator: The simulator, pickled, without what is shared.
    :param shared: What other states have in common with this one; a pickle of the state holds it too.
    :param layers: Class and pickled state of each wrapper, the outermost first.
    :param observation: The observation that the environment had returned last, where it is known.
    :param steps: Simulator steps that saving has cost: those of the self-check, once per class and process.
    """

    format: int
    env: str
    adapter: str
    simulator: bytes
    shared: tuple[Shared, ...]
    layers: tuple[tuple[str, bytes], ...]
    observation: Any
    steps: int = 0

    @property
    def n_bytes(self) -> int:
        """Size of its pickle, in bytes. States that are kept or pickled together share some of it."""
        return len(pickle.dumps(self, protocol=pickle.HIGHEST_PROTOCOL))


class Restored(NamedTuple):
    """
    :param observation: The observation of the restored state, where it is known.
    :param steps: Simulator steps that the restore has cost: those played again.
    """

    observation: Any
    steps: int


class History(NamedTuple):
    """
    What decides the state of an environment that is saved by its past.

    :param generator: ``env.np_random`` before the last reset.
    :param seed: Seed of that reset.
    :param options: Its options.
    :param actions: Actions since then.
    :param generators: Generators that replaced ``env.np_random`` since then, each after how many actions.
    """

    generator: np.random.Generator | None
    seed: int | None
    options: dict[str, Any] | None
    actions: list[Any]
    generators: list[tuple[int, np.random.Generator]]


def capture(env: gym.Env, observation: Any = None, history: History | None = None, keep_records: bool = True) -> State:
    """
    Save without checking whether a restore would be exact; use :func:`~sb3_budget.states.save_state`.

    :param env: An environment that has been reset.
    :param observation: What it returned last.
    :param history: Its past, for an adapter that replays.
    :param keep_records: Whether ``Monitor``'s record of the episode and the like are part of it.
    :return: Its state.
    :raises ValueError: if it cannot be saved.
    """
    adapter = find_adapter(env)
    _require_outermost(env)
    if adapter.replays:
        if history is None:
            raise ValueError(NEEDS_KEEPER.format(type(env.unwrapped).__name__))
        payload: Any = history
    else:
        payload = _save_simulator(env.unwrapped, adapter)
    try:
        simulator, shared = dump(payload)
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        raise ValueError(f"What the adapter {adapter.name!r} saved cannot be pickled: {error}") from error
    layers = tuple((_layer_name(layer), save_layer(layer, keep_records)) for layer in _layers(env))
    name = full_name(type(env.unwrapped))
    return State(FORMAT, name, adapter.name, simulator, shared, layers, copy.deepcopy(observation))


def restore_state(
    env: gym.Env, state: State, keep_time: bool = True, seed: int | None = None, keep_records: bool = True
) -> Restored:
    """
    Put an environment into a saved state. It must have been reset before.

    :param env: An environment of the same class in wrappers of the same classes; any instance, in any process.
    :param state: What :func:`~sb3_budget.states.save_state` returned.
    :param keep_time: Whether ``TimeLimit`` goes on counting from the saved step (default), or anew.
    :param seed: Makes later noise independent of that of the saved environment. By default it is the same, so that
        equal actions have equal outcomes.
    :param keep_records: Whether ``Monitor`` and the like go on with the saved episode (default), or record one that
        begins here.
    :return: The observation at the saved state and the steps it took.
    :raises ValueError: if the state is that of another class, model or version, or is damaged.
    """
    _require_outermost(env)
    adapter = _check(env, state)
    try:
        payload = load(state.simulator, state.shared)
    except (EOFError, pickle.UnpicklingError, AttributeError, ImportError, IndexError) as error:
        raise ValueError(f"The saved state cannot be read: {type(error).__name__}: {error}") from error
    steps = 0
    if adapter.replays:
        if keeper(env) is None:
            raise ValueError(NEEDS_KEEPER.format(type(env.unwrapped).__name__))
        with unrecorded(env):
            steps = _replay(env, payload)
        if seed is not None:
            # Through the wrapper, which notes it: what follows is part of the past too.
            env.np_random = np.random.default_rng(seed)
    else:
        _restore_simulator(env.unwrapped, adapter, payload, None if seed is None else np.random.SeedSequence(seed))
    for layer, (_, data) in zip(_layers(env), state.layers, strict=True):
        restore_layer(layer, data, keep_time, keep_records)
    if keeper(env) is env:
        env.observation = copy.deepcopy(state.observation)
    return Restored(copy.deepcopy(state.observation), steps)


def _require_outermost(env: gym.Env) -> None:
    known = keeper(env)
    if known is not None and known is not env:
        raise ValueError(
            f"A StateWrapper must be the outermost wrapper, but {type(env).__name__} is around it: it would not know its state"
        )


def _layers(env: gym.Env) -> list[gym.Wrapper]:
    return [layer for layer in chain(env) if not getattr(layer, "keeps_states", False)]


def _layer_name(layer: gym.Wrapper) -> str:
    return _class_name(type(layer))  # type: ignore[arg-type]  # mypy looks for __hash__ in its objects


@lru_cache
def _class_name(cls: type[gym.Wrapper]) -> str:
    # RL Zoo replaces Gymnasium's TimeLimit by a subclass, in the processes that import it. What it keeps is the same.
    return full_name(next(base for base in cls.__mro__ if base.__module__ != "rl_zoo3.gym_patches"))


def _check(env: gym.Env, state: State) -> Adapter:
    if not isinstance(state, State):
        raise ValueError(f"A state is what save_state returns, not a {type(state).__name__}")
    if state.format != FORMAT:
        raise ValueError(f"The state has format {state.format}, this version of sb3_budget reads format {FORMAT}")
    name = full_name(type(env.unwrapped))
    if state.env != name:
        raise ValueError(f"The state is one of {state.env}, not of {name}")
    wrappers, saved = [_layer_name(layer) for layer in _layers(env)], [layer for layer, _ in state.layers]
    if wrappers != saved:
        raise ValueError(f"The state was saved in the wrappers {saved}, but this environment has {wrappers}")
    adapter = find_adapter(env)
    if adapter.name != state.adapter:
        raise ValueError(f"The state was saved by the adapter {state.adapter!r}, this environment has {adapter.name!r}")
    return adapter


def _save_simulator(env: gym.Env, adapter: Adapter) -> tuple[Any, dict[str, Any]]:
    """The environment, and those that it holds as attributes, as mazes hold the robot in them."""
    inner = {name: _save_simulator(value, find_adapter(value)) for name, value in _inner(env, adapter).items()}
    return adapter.save(env), inner


def _restore_simulator(
    env: gym.Env, adapter: Adapter, payload: tuple[Any, dict[str, Any]], seeds: np.random.SeedSequence | None
) -> None:
    own, inner = payload
    environments = _inner(env, adapter)
    children = [None] * len(inner) if seeds is None else seeds.spawn(len(inner))
    for (name, saved), child in zip(inner.items(), children, strict=True):
        _restore_simulator(environments[name], find_adapter(environments[name]), saved, child)
    seed = None if seeds is None else int(seeds.generate_state(1)[0])
    if seed is None:
        adapter.restore(env, own)
    elif adapter.restore_reseeded is not None:
        adapter.restore_reseeded(env, own, seed)
    else:
        adapter.restore(env, own)
        reseed(env, seed)


def _inner(env: gym.Env, adapter: Adapter) -> dict[str, gym.Env]:
    """Environments in its attributes, of families that are known; an adapter of the user's saves what it finds right."""
    if adapter not in (PLAIN, MUJOCO):
        return {}
    found = {name: value for name, value in vars(env).items() if isinstance(value, gym.Env) and value is not env}
    for name, value in found.items():
        if isinstance(value, gym.Wrapper):
            raise ValueError(
                f"The attribute {name!r} is a wrapped environment, whose wrappers are not saved: register_adapter takes "
                "functions of your own"
            )
    return found


def _replay(env: gym.Env, history: History) -> int:
    if history.generator is not None:
        env.unwrapped.np_random = copy.deepcopy(history.generator)
    env.reset(seed=history.seed, options=history.options)
    generators = {after: generator for after, generator in history.generators}
    monitors = [layer for layer in chain(env) if isinstance(layer, Monitor)]
    for number in range(len(history.actions) + 1):
        if number in generators:
            env.np_random = copy.deepcopy(generators[number])
        if number < len(history.actions):
            env.step(history.actions[number])
            for monitor in monitors:
                # A past may be longer than the time limit, where an episode was given the full time again half-way.
                monitor.needs_reset = False
    return len(history.actions)
