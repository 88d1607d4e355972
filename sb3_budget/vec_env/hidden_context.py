"""Environments in which every episode has parameters that no observation shows."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.classic_control.pendulum import PendulumEnv

#: Attributes of Pendulum, by what is varied.
ATTRIBUTES = {"gravity": "g", "mass": "m", "length": "l"}
Range = tuple[float, float]


class HiddenContextWrapper(gym.Wrapper):
    """
    Draws parameters of the dynamics and of the reward anew at every reset, from the environment's own generator: the
    seed of a start decides them, and nothing that the policy sees tells them. Domain randomisation, in other words.

    Factors multiply what the environment was made with. In MuJoCo ``mass`` scales masses and inertias of all bodies,
    ``friction`` that of all geoms, ``gravity`` the gravity; for Pendulum there are ``gravity``, ``mass`` and ``length``.

    :param env: The environment.
    :param reward_offset: Range of a number that is added to every reward.
    :param reward_scale: Range of a factor of every reward.
    :param gravity: Range of a factor.
    :param mass: Range of a factor.
    :param friction: Range of a factor, MuJoCo only.
    :param length: Range of a factor, Pendulum only.
    :raises ValueError: if a range is upside down, or the environment has no such parameter.
    """

    def __init__(
        self,
        env: gym.Env,
        reward_offset: Range | None = None,
        reward_scale: Range | None = None,
        gravity: Range | None = None,
        mass: Range | None = None,
        friction: Range | None = None,
        length: Range | None = None,
    ):
        super().__init__(env)
        given = {"gravity": gravity, "mass": mass, "friction": friction, "length": length}
        self._factors = {name: bounds for name, bounds in given.items() if bounds is not None}
        self._reward_offset = reward_offset or (0.0, 0.0)
        self._reward_scale = reward_scale or (1.0, 1.0)
        for name, (low, high) in {**self._factors, "offset": self._reward_offset, "scale": self._reward_scale}.items():
            if not low <= high:
                raise ValueError(f"The range of {name} ({low}, {high}) is upside down")
        self._defaults = {name: self._parameters(name) for name in self._factors}
        self.offset, self.scale = 0.0, 1.0

    def _parameters(self, name: str) -> dict[str, Any]:
        """Copies of the parameters that a factor multiplies, by their place."""
        unwrapped: Any = self.env.unwrapped
        model = getattr(unwrapped, "model", None)
        if model is not None:
            places = {
                "gravity": {"gravity": model.opt.gravity},
                "mass": {"body_mass": model.body_mass, "body_inertia": model.body_inertia},
                "friction": {"geom_friction": model.geom_friction},
            }
            found: dict[str, Any] = {place: np.array(values) for place, values in places.get(name, {}).items()}
        else:
            place = ATTRIBUTES.get(name, "")
            found = {place: getattr(unwrapped, place)} if isinstance(unwrapped, PendulumEnv) and place else {}
        if not found:
            raise ValueError(f"{type(unwrapped).__name__} has no {name} that could be varied")
        return found

    def _set(self, name: str, factor: float) -> None:
        unwrapped: Any = self.env.unwrapped
        model = getattr(unwrapped, "model", None)
        for place, default in self._defaults[name].items():
            if model is None:
                setattr(unwrapped, place, factor * default)
            else:
                target = model.opt.gravity if place == "gravity" else getattr(model, place)
                target[:] = factor * default

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        # Some observations read the model: the first of an episode must not tell of the last one's.
        for name in self._factors:
            self._set(name, 1.0)
        observation, info = self.env.reset(seed=seed, options=options)
        rng = self.env.unwrapped.np_random
        self.offset, self.scale = rng.uniform(*self._reward_offset), rng.uniform(*self._reward_scale)
        for name, bounds in self._factors.items():
            self._set(name, rng.uniform(*bounds))
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, self.scale * float(reward) + self.offset, terminated, truncated, info
