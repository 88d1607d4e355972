"""A ``VecEnv`` wrapper that decides where the episodes of each slot start and end."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Hashable, Iterable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import cloudpickle  # type: ignore[import-untyped]  # it ships no types
import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.atari_wrappers import EpisodicLifeEnv
from stable_baselines3.common.utils import check_shape_equal
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn

from sb3_budget.core.ledger import Ledger
from sb3_budget.core.slots import check_slots
from sb3_budget.states.state import State
from sb3_budget.vec_env import slot_states
from sb3_budget.vec_env.base_checks import require_base, require_early_resets
from sb3_budget.vec_env.group_starts import GroupStarts
from sb3_budget.vec_env.observations import slot_observation, write_observation
from sb3_budget.vec_env.start import StartSampler, check_start

#: An episode limit that is never reached.
NO_LIMIT = np.iinfo(np.int64).max


class EpisodeControlVecEnv(VecEnvWrapper):
    """
    Ends the episodes of chosen slots early, as truncations, and chooses where episodes start.

    Stable-Baselines3 bootstraps a truncated episode with its own critic when
    ``info["TimeLimit.truncated"]`` and ``info["terminal_observation"]`` are set; a slot that this wrapper ends
    carries both, so every on- and off-policy algorithm treats the end as a time limit (Pardo et al., 2018,
    https://arxiv.org/abs/1712.00378). The freed slot begins its next episode in the same step.

    It belongs directly on the base ``VecEnv``, below ``VecNormalize``, ``VecFrameStack`` and the like, which then
    see ordinary episode ends::

        venv = VecNormalize(EpisodeControlVecEnv(make_vec_env("HalfCheetah-v5", n_envs=64)))

    On the last step of every episode ``info["sb3_budget"]`` holds ``reason`` (``terminated``, ``time_limit``,
    ``horizon`` or ``stopped``), ``length`` [steps], ``return`` (undiscounted, un-normalised), ``start_id`` and
    ``audited``. There is no ``episode`` entry of ``Monitor`` for an episode that was ended here or began in a snapshot,
    so ``ep_rew_mean`` stays a mean over whole episodes.

    :param venv: The base vectorised environment, e.g. ``DummyVecEnv`` or ``SubprocVecEnv``.
    :param enabled: ``False`` passes everything through untouched, for evaluation environments.
    :param seed: Seed of the generator that re-seeds slots after a :class:`~sb3_budget.Start` with a seed.
        A later call of :meth:`seed` overrides it.
    :raises ValueError: if ``venv`` contains another wrapper, or a ``Monitor`` that forbids early resets.
    """

    def __init__(self, venv: VecEnv, enabled: bool = True, seed: int | None = None):
        require_base(type(self).__name__, venv)
        super().__init__(venv)
        self.enabled = enabled
        if enabled:
            self._prepare_resets(venv)
        self.ledger = Ledger()
        self._budget_rng = np.random.default_rng(seed)
        self._start_sampler: StartSampler | None = None
        self._sampler_owner: str | None = None
        #: What the slots showed last.
        self.last_obs: VecEnvObs | None = None
        self._allocate()

    def _allocate(self) -> None:
        """Per-slot state, as before the first reset."""
        self.ages: NDArray[np.int64] = np.zeros(self.num_envs, dtype=np.int64)
        self._origins: NDArray[np.int64] = np.zeros(self.num_envs, dtype=np.int64)
        self._episode_returns = np.zeros(self.num_envs, dtype=np.float64)
        self._limits = np.full(self.num_envs, NO_LIMIT, dtype=np.int64)
        self._limit_reasons = ["horizon"] * self.num_envs
        self._stop_requested = np.zeros(self.num_envs, dtype=bool)
        self._audited = np.zeros(self.num_envs, dtype=bool)
        self._start_ids: list[Hashable | None] = [None] * self.num_envs
        self._from_snapshot = np.zeros(self.num_envs, dtype=bool)
        self._borrowed_noise = np.zeros(self.num_envs, dtype=bool)

    def _prepare_resets(self, venv: VecEnv) -> None:
        # What env_is_wrapped says decides how a slot is reset, so it is asked once and not at each stop.
        self._episodic_lives = any(venv.env_is_wrapped(EpisodicLifeEnv))
        require_early_resets(type(self).__name__, venv)

    # ------------------------------------------------------------------ control

    def enable(self) -> None:
        """
        Switch a wrapper that was built with ``enabled=False`` on, right after a reset of its environments.

        :raises ValueError: as at construction.
        """
        if self.enabled:
            return
        self._prepare_resets(self.venv)
        self.enabled = True
        self._allocate()
        self._set_limits(list(range(self.num_envs)))

    def request_stop(self, indices: int | Iterable[int]) -> None:
        """
        End the episodes of these slots at the next step, as truncations.

        A slot whose episode ends by itself at that step keeps its natural end, and the request is forgotten.

        :param indices: Slots, each in ``[0, num_envs)``.
        :raises ValueError: if a slot does not exist, or the wrapper is disabled.
        """
        if not self.enabled:
            raise ValueError(f"request_stop() on a {type(self).__name__} with enabled=False: it never ends an episode")
        self._stop_requested[check_slots(indices, self.num_envs)] = True

    def mark_audited(self, indices: int | Iterable[int]) -> None:
        """
        Note that the present episodes of these slots are under audit: ``info["sb3_budget"]["audited"]`` is set
        at their end.

        :param indices: Slots, each in ``[0, num_envs)``.
        :raises ValueError: if a slot does not exist.
        """
        self._audited[check_slots(indices, self.num_envs)] = True

    def set_start_sampler(self, sampler: StartSampler | None, owner: str = "user") -> None:
        """
        Choose where episodes start. The sampler is asked at every reset of a slot.

        :param sampler: ``sampler(slot)`` returns a :class:`~sb3_budget.Start`, or ``None`` for the environment's
            own reset. ``None`` instead of a sampler removes it, whose ever it is if it is the user who asks.
        :param owner: Name of who sets it. Two owners would undo each other's choice, so only one is allowed.
        :raises ValueError: if another owner's sampler is in place, or the wrapper is disabled.
        """
        if not self.enabled:
            raise ValueError(f"set_start_sampler() on a {type(self).__name__} with enabled=False: it never starts an episode")
        taken_away = sampler is None and owner == "user"
        if self._start_sampler is not None and self._sampler_owner != owner and not taken_away:
            raise ValueError(f"The start sampler belongs to {self._sampler_owner!r}; {owner!r} cannot replace it")
        self._start_sampler = sampler
        self._sampler_owner = owner if sampler is not None else None

    @property
    def start_sampler(self) -> StartSampler | None:
        """What decides where episodes start."""
        return self._start_sampler

    def get_states(self, indices: int | Iterable[int]) -> list[State]:
        """
        Save the present states of slots, each to begin an episode of any slot in: ``Start(id, snapshot=state)``.

        Steps of the self-check, the first time, are in ``ledger.verification_steps``.

        :param indices: Slots, each in ``[0, num_envs)``.
        :return: Their states.
        :raises ValueError: if a slot does not exist, the wrapper is disabled or not reset, or states of this
            environment cannot be saved exactly.
        """
        if not self.enabled or self.last_obs is None:
            raise ValueError(f"get_states() needs a {type(self).__name__} that is enabled and has been reset")
        states = []
        for slot in check_slots(indices, self.num_envs).tolist():
            try:
                state = slot_states.get_state(self.venv, slot, slot_observation(self.last_obs, slot))
            except ValueError as error:
                raise ValueError(f"{error}. Slot {slot} may have been moved by the check: call reset()") from error
            self.ledger.verification_steps += state.steps
            states.append(state)
        return states

    # ------------------------------------------------------------------ VecEnv

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        if seed is not None:
            self._budget_rng = np.random.default_rng(seed)
        return self.venv.seed(seed)

    def reset(self) -> VecEnvObs:
        obs = self.venv.reset()
        self.reset_infos = list(self.venv.reset_infos)
        if not self.enabled:
            self.last_obs = obs
            return obs
        self.ledger.resets += self.num_envs
        obs = deepcopy(obs)
        if isinstance(self._start_sampler, GroupStarts):
            self._start_sampler.align()
        everyone = list(range(self.num_envs))
        self._begin_episodes(obs, everyone)
        self.last_obs = obs
        return obs

    def step_wait(self) -> VecEnvStepReturn:
        obs, rewards, dones, infos = self.venv.step_wait()
        if not self.enabled:
            self.reset_infos, self.last_obs = list(self.venv.reset_infos), obs
            return obs, rewards, dones, infos
        rewards = np.asarray(rewards, dtype=np.float32)
        dones = np.asarray(dones, dtype=bool)
        self.ages += 1
        self._episode_returns += rewards
        self.ledger.learning_steps += self.num_envs
        cuts = (self._stop_requested | (self.ages >= self._limits)) & ~dones
        if cuts.any() or dones.any():
            obs, infos = deepcopy(obs), list(infos)
            self._end_episodes(obs, dones, infos, cuts)
            dones = dones | cuts
        self.last_obs = obs
        return obs, rewards, dones, infos

    # ------------------------------------------------------------------ ends

    def _end_episodes(
        self, obs: VecEnvObs, dones: NDArray[np.bool_], infos: list[dict[str, Any]], cuts: NDArray[np.bool_]
    ) -> None:
        """Report the episodes that ended with this step, cut those that must, and begin the next ones, all in place."""
        natural = np.flatnonzero(dones).tolist()
        cut_slots = np.flatnonzero(cuts).tolist()
        for slot in natural:
            # Only these: SubprocVecEnv does not notice our own resets and keeps what was before them.
            self.reset_infos[slot] = self.venv.reset_infos[slot]
            reason = "time_limit" if infos[slot].get("TimeLimit.truncated", False) else "terminated"
            self._report(infos[slot], slot, reason)
        for slot in cut_slots:
            reason = self._limit_reasons[slot] if self.ages[slot] >= self._limits[slot] else "stopped"
            infos[slot]["terminal_observation"] = slot_observation(obs, slot)
            infos[slot]["TimeLimit.truncated"] = True
            self._report(infos[slot], slot, reason)
        self.ledger.resets += len(natural) + len(cut_slots)
        self._reset_slots(obs, cut_slots)
        self._begin_episodes(obs, natural + cut_slots)

    def _report(self, info: dict[str, Any], slot: int, reason: str) -> None:
        if self._from_snapshot[slot]:
            # Monitor has seen its second part only.
            info.pop("episode", None)
        info["sb3_budget"] = {
            "reason": reason,
            "length": int(self.ages[slot]),
            "return": float(self._episode_returns[slot]),
            "start_id": self._start_ids[slot],
            "audited": bool(self._audited[slot]),
        }

    def _reset_slots(self, obs: VecEnvObs, slots: list[int], **reset_kwargs: Any) -> None:
        """Reset these slots alone and write their first observations into ``obs``."""
        if not slots:
            return
        if self._episodic_lives:
            # Otherwise the reset after a lost life goes on with the same game.
            self.venv.env_method("set_wrapper_attr", "was_real_done", True, indices=slots)
        for slot, (first_obs, info) in zip(slots, self.venv.env_method("reset", indices=slots, **reset_kwargs), strict=True):
            write_observation(obs, slot, first_obs)
            self.reset_infos[slot] = info

    # ------------------------------------------------------------------ starts

    def _begin_episodes(self, obs: VecEnvObs, slots: list[int]) -> None:
        """Start the next episodes of slots that have just been reset."""
        self.ages[slots] = 0
        self._episode_returns[slots] = 0.0
        self._stop_requested[slots] = False
        self._audited[slots] = False
        self._limits[slots] = NO_LIMIT
        self._from_snapshot[slots] = False
        for slot in slots:
            self._start_ids[slot] = None
            if self._borrowed_noise[slot]:
                self._renew_noise(slot)
        self._set_limits(slots)
        if self._start_sampler is not None:
            for slot in slots:
                self._place(obs, slot)
        self.venv.reset_infos = list(self.reset_infos)

    def _set_limits(self, slots: list[int]) -> None:
        """Hook: how long the episodes that begin now may run. Lower ``_limits`` by :meth:`_limit`."""

    def _limit(self, slot: int, length: int, reason: str) -> None:
        """Of several limits of one episode the smallest wins and names the reason."""
        if length < self._limits[slot]:
            self._limits[slot] = length
            self._limit_reasons[slot] = reason

    def _place(self, obs: VecEnvObs, slot: int) -> None:
        assert self._start_sampler is not None
        start = self._start_sampler(slot)
        if start is None:
            return
        check_start(start)
        self._start_ids[slot] = start.id
        if start.horizon is not None:
            self._limit(slot, start.horizon, "horizon")
        given = {"seed": start.seed, "options": start.options}
        given = {name: value for name, value in given.items() if value is not None}
        if given:
            self._reset_slots(obs, [slot], **given)
            if start.seed is not None:
                self._renew_noise(slot)
        elif start.snapshot is not None:
            seed = int(self._budget_rng.integers(2**31)) if start.reseed else None
            restored = slot_states.set_state(self.venv, slot, start.snapshot, start.keep_time, seed)
            write_observation(obs, slot, restored.observation)
            self._from_snapshot[slot] = True
            self._borrowed_noise[slot] = not start.reseed
            self.ledger.verification_steps += restored.steps
        else:
            return
        self.ledger.resets += 1

    def seed_noise(self, seed: int) -> None:
        """
        Seed what slots draw after a start with a seed, and nothing of the environments.

        :param seed: The seed.
        """
        self._budget_rng = np.random.default_rng(seed)

    def began_in_state(self, slot: int) -> bool:
        """
        :param slot: A slot.
        :return: Whether its present episode began in a saved state.
        """
        return bool(self._from_snapshot[slot])

    @property
    def episodic_lives(self) -> bool:
        """Whether an episode is one life of a game."""
        return self._episodic_lives

    def _renew_noise(self, slot: int) -> None:
        """Later noise and resets are the slot's own. Gymnasium's wrappers hand ``np_random`` down to the environment."""
        fresh = np.random.default_rng(self._budget_rng.integers(2**63))
        self.venv.set_attr("np_random", fresh, indices=[slot])
        self._borrowed_noise[slot] = False

    # ------------------------------------------------------------------ persistence

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        # A VecEnv and a class's members cannot be pickled; a sampler belongs to whoever set it.
        for key in ("venv", "class_attributes", "_start_sampler", "_sampler_owner", "last_obs"):
            state.pop(key, None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """:meth:`set_venv` must be called before the restored wrapper is used."""
        self.__dict__.update(state)
        self.__dict__.update(venv=None, class_attributes={}, _start_sampler=None, _sampler_owner=None, last_obs=None)

    def set_venv(self, venv: VecEnv) -> None:
        """
        Give a restored wrapper its environments. Episodes start anew at the next :meth:`reset`.

        :param venv: The base vectorised environment.
        :raises ValueError: if there is one already, the number of slots or the actions differ, or as at construction.
        """
        if self.venv is not None:
            raise ValueError("Trying to set venv of already initialized wrapper")
        if venv.num_envs != self.num_envs:
            raise ValueError(f"The wrapper was saved with {self.num_envs} slots, the given VecEnv has {venv.num_envs}")
        require_base(type(self).__name__, venv)
        check_shape_equal(self.observation_space, venv.observation_space)
        if self.action_space != venv.action_space:
            raise ValueError(
                f"The wrapper was saved with the actions {self.action_space}, the given VecEnv has {venv.action_space}"
            )
        if self.enabled:
            self._prepare_resets(venv)
        self.venv = venv
        self.class_attributes = dict(inspect.getmembers(self.__class__))
        self.render_mode = venv.render_mode
        self._allocate()

    def save(self, path: str | Path) -> None:
        """
        Save the wrapper without its environments. Functions among its arguments are saved too.

        :param path: File to write. What cannot be saved leaves an earlier file as it is.
        """
        Path(path).write_bytes(cloudpickle.dumps(self))

    @classmethod
    def load(cls, path: str | Path, venv: VecEnv) -> EpisodeControlVecEnv:
        """
        Load what :meth:`save` wrote and put it on ``venv``.

        :param path: File to read.
        :param venv: The base vectorised environment.
        :return: The wrapper, which must be reset before use.
        :raises ValueError: if the file holds something else.
        """
        wrapper = pickle.loads(Path(path).read_bytes())
        if not isinstance(wrapper, cls):
            raise ValueError(f"{path} holds a {type(wrapper).__name__}, not a {cls.__name__}")
        wrapper.set_venv(venv)
        return wrapper
