"""How the simulator of an environment is saved: one pair of functions per family, chosen by the environment's class."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import gymnasium as gym

from sb3_budget.states import ale, box2d, mujoco, plain
from sb3_budget.states.layers import keeper


class Adapter(NamedTuple):
    """
    Saves and restores the innermost environment, without its wrappers.

    :param name: Name of the family.
    :param save: ``save(env) -> payload``; the payload must be picklable and must not change when the environment does.
    :param restore: ``restore(env, payload)``; leaves the environment as it was saved.
    :param restore_reseeded: ``restore_reseeded(env, payload, seed)``: the same with later noise that is not that of the
        saved environment. By default ``restore``, and then a new ``env.np_random``.
    :param before_reset: ``before_reset(env)``, called by a ``StateWrapper`` before each reset.
    """

    name: str
    save: Callable[[Any], Any]
    restore: Callable[[Any, Any], None]
    restore_reseeded: Callable[[Any, Any, int], None] | None = None
    before_reset: Callable[[Any], None] | None = None

    @property
    def replays(self) -> bool:
        """Whether episodes are played again, from what a ``StateWrapper`` has recorded."""
        return self.save is _replayed


def _replayed(_: Any, payload: Any = None) -> Any:
    raise ValueError("The state of this environment is its past: only a StateWrapper, which knows it, can save it")


#: For simulators whose state cannot be read, but which are decided by their seed and actions: episodes are played again
#: up to the saved step.
REPLAY = Adapter("replay", _replayed, _replayed)
MUJOCO = Adapter("mujoco", mujoco.save, mujoco.restore)
ALE = Adapter("ale", ale.save, ale.restore, ale.restore_reseeded)
PLAIN = Adapter("plain", plain.save, plain.restore)

#: The same in a world of its own for each episode.
REPLAY_BOX2D = REPLAY._replace(before_reset=box2d.renew_world)

#: Classes by their full name, so that none is imported for it.
FAMILIES: dict[str, Adapter] = {
    "gymnasium.envs.mujoco.mujoco_env.MujocoEnv": MUJOCO,
    "gymnasium_robotics.envs.robot_env.MujocoRobotEnv": MUJOCO,
    "ale_py.env.AtariEnv": ALE,
    "gymnasium.envs.box2d.bipedal_walker.BipedalWalker": REPLAY_BOX2D,
    "gymnasium.envs.box2d.car_racing.CarRacing": REPLAY_BOX2D,
    "gymnasium.envs.box2d.lunar_lander.LunarLander": REPLAY,
}


def full_name(cls: type) -> str:
    """
    :param cls: A class.
    :return: Its module and name, the same object every time.
    """
    return sys.intern(f"{cls.__module__}.{cls.__qualname__}")


def register_adapter(cls: type[gym.Env], adapter: Adapter) -> None:
    """
    Say how the states of a class of environments, and of its subclasses, are saved, in this process. Workers of a
    ``SubprocVecEnv`` are told by ``wrapper_kwargs={"adapter": ...}`` of a ``StateWrapper``.

    :param cls: Class of the innermost environment, ``env.unwrapped``.
    :param adapter: Its functions, or :data:`REPLAY`.
    :raises ValueError: if ``cls`` is no class of environments.
    """
    if not (isinstance(cls, type) and issubclass(cls, gym.Env)):
        raise ValueError(f"register_adapter needs a class of environments, not {cls!r}")
    FAMILIES[full_name(cls)] = adapter


def plain_adapter(left: Iterable[str]) -> Adapter:
    """
    For environments written in Python some of whose attributes are not state: which slot it is, a level of difficulty
    that a callback sets, the weights of an opponent. A restore leaves those of the target alone.

    :param left: Names of the attributes.
    :return: An adapter for :func:`register_adapter`.
    """
    names = frozenset(left)
    return Adapter(
        f"plain without {', '.join(sorted(names))}", partial(plain.save, left=names), partial(plain.restore, left=names)
    )


def find_adapter(env: gym.Env) -> Adapter:
    """
    :param env: An environment.
    :return: That of its ``StateWrapper``, if it was given one; otherwise that of the most special class that has one, and
        without any :data:`PLAIN`.
    """
    known = keeper(env)
    if known is not None and known.adapter is not None:
        given: Adapter = known.adapter
        return given
    for cls in type(env.unwrapped).__mro__:
        if full_name(cls) in FAMILIES:
            return FAMILIES[full_name(cls)]
    return PLAIN
