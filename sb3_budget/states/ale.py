"""States of Atari games."""

from __future__ import annotations

import importlib.metadata
import math
from typing import Any

from sb3_budget.states import plain

NOOP = 0
#: Chance that the emulator still holds another action than the no-op after :func:`_forget_action`.
NEGLIGIBLE = 1e-12
#: Among so many places a seed chooses one in the emulator's stream of random numbers.
PLACES = 32
LEFT = frozenset({"ale"})


def save(env: Any) -> tuple[str, Any, Any, bytes]:
    """
    With sticky actions the emulator repeats an action that it does not put into its state. Saving therefore replaces
    it by the no-op, in the environment that is saved too, so that it and its copies go on alike.

    :param env: The innermost environment.
    :return: Game and version, the emulator's state with and without its generator, and the environment's attributes.
    """
    emulator = env.ale.cloneState(include_rng=True)
    if _stickiness(env.ale) > 0.0:
        _forget_action(env.ale)
        env.ale.restoreState(emulator)
    return _game(env), emulator, env.ale.cloneState(include_rng=False), plain.save(env, LEFT)


def restore(env: Any, payload: tuple[str, Any, Any, bytes]) -> None:
    """
    The emulator's screen is drawn at its next step, so that an observation must come from where the state was saved.

    :param env: An environment of the same game.
    :param payload: What :func:`save` returned.
    :raises ValueError: if the game or the version of ale-py is another one.
    """
    _restore(env, payload[0], payload[1], payload[3])


def restore_reseeded(env: Any, payload: tuple[str, Any, Any, bytes], seed: int) -> None:
    """
    The emulator keeps its own generator, which decides about sticky actions: it cannot be seeded without loading the
    game anew. It is moved on by a number of frames that the seed decides, so that copies part that had the same one.

    :param env: An environment of the same game.
    :param payload: What :func:`save` returned.
    :param seed: Seed of the later noise.
    :raises ValueError: if the game or the version of ale-py is another one.
    """
    for _ in range(seed % PLACES):
        env.ale.act(NOOP)
    _restore(env, payload[0], payload[2], payload[3])
    plain.reseed(env, seed)


def _restore(env: Any, game: str, emulator: Any, attributes: bytes) -> None:
    if game != _game(env):
        raise ValueError(f"The state is one of {game}, but the environment plays {_game(env)}")
    _forget_action(env.ale)
    env.ale.restoreState(emulator)
    plain.restore(env, attributes, LEFT)


def _stickiness(ale: Any) -> float:
    return float(ale.getFloat("repeat_action_probability"))


def _forget_action(ale: Any) -> None:
    """
    Let the emulator act until its last action is surely the no-op, and once in any case: in an emulator that has never
    acted, some games go on from a restored state with wrong memory.
    """
    stickiness = _stickiness(ale)
    repeats = 1 if stickiness <= 0.0 else math.ceil(math.log(NEGLIGIBLE) / math.log(min(stickiness, 0.9)))
    for _ in range(repeats):
        ale.act(NOOP)


def _game(env: Any) -> str:
    version = importlib.metadata.version("ale-py")
    return f"{env._game} in mode {env._game_mode}, difficulty {env._game_difficulty}, ale-py {version}"
