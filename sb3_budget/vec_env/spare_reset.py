"""An environment whose next episode is prepared while the present one runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import gymnasium as gym
import numpy as np
from stable_baselines3.common.env_util import is_wrapped
from stable_baselines3.common.monitor import Monitor


class SpareResetEnv(gym.Wrapper):
    """
    Hides the time of slow resets: a spare copy of the environment is reset in a background thread while the present
    copy is stepped, and takes its place when the episode ends.

    Stopped and shifted episodes reset more often, so that a reset which takes as long as hundreds of steps eats what
    they gain. It works under ``DummyVecEnv`` and ``SubprocVecEnv`` alike, and without the rest of this package::

        venv = make_vec_env(lambda: SpareResetEnv(lambda: gym.make("MyEnv-v0")), n_envs=8)

    Threads share Python's interpreter lock: what is hidden is the part of a reset that releases it, such as a
    simulator's own code, files and sockets, and, in a worker of ``SubprocVecEnv``, any wait for the next action.
    A reset that is Python throughout gains nothing.

    A reset with ``seed`` or ``options`` is made at once by the present copy. If the very first reset has a seed, as
    after ``venv.seed()``, it also seeds the spares, each by its own child of it, and runs repeat that make the same
    calls from there on. Any later seed is for the present copy alone: it repeats the episode that it starts, whereas the
    spares go on with theirs, so that slots which a :class:`~sb3_budget.Start` gives the same seed do not go on alike.
    To repeat the episodes after it too, begin with a new environment. Spares that the first reset gave no seed never
    have one.

    The copies must share nothing that changes.

    :param make_env: Makes one copy. ``Monitor`` must not be among its wrappers, since each copy would count its own
        episodes only; ``make_vec_env`` puts one around the whole.
    :param n_spare: Number of spares. More than one helps where episodes can be shorter than a reset.
    :raises ValueError: if ``n_spare`` is not positive, ``make_env`` is no function, or its copies differ in their
        spaces.
    """

    def __init__(self, make_env: Callable[[], gym.Env], n_spare: int = 1):
        if not callable(make_env):
            raise ValueError(f"SpareResetEnv needs a function that makes an environment, not {type(make_env).__name__}")
        if n_spare < 1:
            raise ValueError(f"n_spare={n_spare} must be at least 1")
        first, *spares = (make_env() for _ in range(1 + n_spare))
        if is_wrapped(first, Monitor):
            raise ValueError("Monitor must not be inside SpareResetEnv: each copy would count its own episodes only")
        for spare in spares:
            if spare is first:
                raise ValueError("make_env returned the same environment twice: it must make a new one each time")
            if spare.observation_space != first.observation_space or spare.action_space != first.action_space:
                raise ValueError("make_env made environments with different spaces")
        super().__init__(first)
        self._unused = True
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spare-reset")
        self._spares: deque[tuple[gym.Env, Future | None]] = deque((spare, None) for spare in spares)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if self._unused and seed is not None:
            self._seed_spares(seed)
        self._unused = False
        if seed is not None or options is not None:
            return self.env.reset(seed=seed, options=options)
        spare, prepared = self._spares[0]
        obs, info = spare.reset() if prepared is None else prepared.result()
        self._spares.popleft()
        self._spares.append((self.env, self._executor.submit(self.env.reset)))
        self.env = spare
        return obs, info

    def _seed_spares(self, seed: int) -> None:
        children = np.random.SeedSequence(seed).generate_state(len(self._spares)).tolist()
        spares = [spare for spare, _ in self._spares]
        self._spares = deque(
            (spare, self._executor.submit(spare.reset, seed=child)) for spare, child in zip(spares, children, strict=True)
        )

    def close(self) -> None:
        self._executor.shutdown(wait=True)
        for spare, _ in self._spares:
            spare.close()
        super().close()
