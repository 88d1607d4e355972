"""The callback that repeats actions from saved states, to find out sooner what is deterministic."""

from __future__ import annotations

import math
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.type_aliases import Schedule
from stable_baselines3.common.utils import FloatSchedule
from stable_baselines3.common.vec_env import VecEnv

from sb3_budget.buffers.zero_variance_replay_buffer import ZeroVarianceBufferMixin
from sb3_budget.callbacks.critic_recycling_callback import CriticRecyclingCallback
from sb3_budget.callbacks.progress import present_training, progress_remaining
from sb3_budget.callbacks.requirements import require_bare, require_state_access, require_top_level
from sb3_budget.callbacks.state_files import read_state, write_state
from sb3_budget.core.determinism import Verdict
from sb3_budget.core.evidence import Outcome
from sb3_budget.core.ranges import require_share
from sb3_budget.core.transition_fields import columns_of, entries, part_of
from sb3_budget.core.transition_watch import TransitionWatch, Watched
from sb3_budget.states.state import State
from sb3_budget.vec_env.observations import write_observation
from sb3_budget.vec_env.start import Start

#: Slots whose states are looked at in a step, at least, and actions of a state that are gone through, at most.
LEAST_LOOKS, MOST_ACTIONS = 8, 64
#: What is saved.
STATE = ("_credit", "_rng", "n_steps", "n_promoted", "n_contradicted")


class ActiveVerificationCallback(BaseCallback):
    """
    Spends a share of the budget on knowing which transitions are deterministic, without waiting until they happen again.

    The state of a slot is saved before a step. If the step's pair of state and action is neither promoted nor stochastic after
    it, the state is restored in an environment of its own, with noise of its own, and the action is repeated until one or the
    other is known. Outcomes count in the :class:`~sb3_budget.ZeroVarianceReplayBuffer` of the model, or in a
    :class:`~sb3_budget.CriticRecyclingCallback`, as evidence; nothing is trained on them. A pair that is promoted enters the
    pool with the transition that training has seen. The steps are in the ledger as ``verification_steps``.

    It repeats from one and the same state of the simulator, which is less than a visit shows: what observations hide does not
    vary. Such a pair is contradicted by later visits only. With ``cells`` all of a cell is credited with what one point of it
    showed: leave verification out where that is not alike.

    :param verify_env: An environment of the same kind, ``EpisodeControlVecEnv(make_vec_env(...))`` without further wrappers.
        All its slots repeat one action at once, so that ``min_count - 1`` of them verify a pair in one step.
    :param recycling: The :class:`~sb3_budget.CriticRecyclingCallback` that is verified for, passed to ``learn`` as well.
        ``None`` (default) for the model's replay buffer.
    :param verify_share: Steps of ``verify_env`` per step of the training, in ``[0, 1]`` (float, or schedule of the progress
        remaining). 0 switches it off.
    :param seed: Seed of the choice of slots and of the noise. The model's by default.
    :param verbose: Verbosity level.
    :raises ValueError: if an argument is out of range, or, when training starts, there is nothing to verify for or states of
        the environment cannot be saved exactly.
    """

    def __init__(
        self,
        verify_env: VecEnv,
        recycling: CriticRecyclingCallback | None = None,
        verify_share: float | Schedule = 0.05,
        seed: int | None = None,
        verbose: int = 0,
    ):
        super().__init__(verbose)
        self.verify_env = require_bare("verify_env", verify_env)
        require_share("verify_share", verify_share(1.0) if callable(verify_share) else verify_share)
        self.recycling, self.verify_share = recycling, FloatSchedule(verify_share)
        self._rng = np.random.default_rng(seed)
        self._seeded = seed is not None
        self._credit = 0.0
        #: Steps that verification has taken.
        self.n_steps = 0
        #: Pairs that it promoted, and that it found to be stochastic.
        self.n_promoted = self.n_contradicted = 0

    # ------------------------------------------------------------------ set-up

    def _init_callback(self) -> None:
        buffer = getattr(self.model, "replay_buffer", None)
        if self.recycling is None and not isinstance(buffer, ZeroVarianceBufferMixin):
            raise ValueError(
                f"ActiveVerificationCallback has nothing to verify for in this {type(self.model).__name__}: pass "
                "replay_buffer_class=ZeroVarianceReplayBuffer to an off-policy algorithm, or recycling= the "
                "CriticRecyclingCallback of an on-policy one"
            )
        self._control = require_state_access(self, "verify_env", self.verify_env)
        if self._control.action_space != self.verify_env.action_space:
            raise ValueError(
                f"verify_env has the actions {self.verify_env.action_space}, the training environment "
                f"{self._control.action_space}"
            )
        if not self._seeded and self.model.seed is not None:
            self._rng.bit_generator.state = np.random.default_rng(self.model.seed).bit_generator.state
        self._seeded = True

    def _on_training_start(self) -> None:
        require_top_level(self)
        self._is_present = present_training(self.model)
        if self.recycling is None:
            self._watch: TransitionWatch = self.model.replay_buffer.watch  # type: ignore[attr-defined]  # _init_callback has looked
        elif getattr(self.recycling, "model", None) is self.model and self.recycling.watch is not None:
            self._watch = self.recycling.watch
        else:
            raise ValueError("recycling= must be passed to learn() as well: learn(callback=[recycling, verification])")
        if self._watch.detector.min_count < 2:
            raise ValueError("ActiveVerificationCallback has nothing to do with min_count=1, where one outcome is enough")
        other = getattr(self._watch.listener, "__self__", None)
        if isinstance(other, ActiveVerificationCallback) and other is not self and other._is_present():
            raise ValueError("Two ActiveVerificationCallback verify for one pool: pass one of them to learn()")
        self._held: dict[int, State] = {}
        try:
            self._control.get_states([0])
        except ValueError as error:
            raise ValueError(
                f"ActiveVerificationCallback cannot do its work here: {error}. Without it, pairs are counted as they come; "
                "whitelist= names those that you know"
            ) from error
        self.verify_env.seed_noise(int(self._rng.integers(2**31)))
        self._watch.listener = self._watched

    def _on_training_end(self) -> None:
        self._watch.listener = None

    def _on_step(self) -> bool:
        return True

    # ------------------------------------------------------------------ verification

    def _watched(self, found: Watched) -> None:
        """The watch has counted a step of all slots, whose states before it were held; those after it are present now."""
        if not self._is_present():
            # One that was broken off, as by Ctrl-C, has left its listener to the next.
            self._watch.listener = None
            return
        for slot, state in self._held.items():
            if self._is_candidate(found, slot):
                self._verify(found, slot, state)
        self._credit += self.verify_share(progress_remaining(self.model)) * len(found.keys)
        self._held = self._hold()

    def _is_candidate(self, found: Watched, slot: int) -> bool:
        detector, key = self._watch.detector, found.keys[slot]
        unknown = detector.verdict(key) == Verdict.UNKNOWN and detector.evidence(key) is not None
        return unknown and not found.cut[slot]

    def _hold(self) -> dict[int, State]:
        """Save as many states as there is credit for their verification, of slots where there is something to find out."""
        slots, n_envs = self.verify_env.num_envs, self._control.num_envs
        price = math.ceil((self._watch.detector.min_count - 1) / slots) * slots
        n = min(n_envs, int(self._credit // price)) if price else 0
        if n < 1:
            return {}
        looked = self._rng.permutation(n_envs)[: max(n, LEAST_LOOKS)]
        chosen = looked[self._is_open(looked)][:n].tolist()
        return dict(zip(chosen, self._control.get_states(chosen), strict=True)) if chosen else {}

    def _is_open(self, slots: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether an action in the present state of each slot is neither promoted nor stochastic, as far as can be told."""
        space, watch = self.model.action_space, self._watch
        if not isinstance(space, spaces.Discrete) or space.n > MOST_ACTIONS:
            return np.ones(len(slots), dtype=bool)
        n = int(space.n)
        columns = self._shaped(columns_of("observations", self._control.last_obs))
        states = {
            name: np.repeat(column[slots], n, axis=0) for name, column in entries(part_of(columns, "observations")).items()
        }
        actions = np.tile(space.start + np.arange(n), len(slots)).reshape(-1, 1).astype(watch.pool.fields["actions"][1])
        unknown = [watch.detector.verdict(key) == Verdict.UNKNOWN for key in watch.transition_keys.keys(states, actions)]
        return np.array(unknown, dtype=bool).reshape(-1, n).max(axis=1)

    def _shaped(self, columns: dict[str, Any]) -> dict[str, NDArray[Any]]:
        """As the watch keeps them."""
        fields = self._watch.pool.fields
        return {name: np.asarray(column, fields[name][1]).reshape(-1, *fields[name][0]) for name, column in columns.items()}

    def _verify(self, found: Watched, slot: int, state: State) -> None:
        """Repeat a step until its pair is promoted or stochastic, or as often as promotion takes."""
        watch, key = self._watch, found.keys[slot]
        known = watch.detector.evidence(key)
        assert known is not None
        action, before = self._action(found.transitions["actions"][slot]), self.verify_env.ledger.total_steps
        verdict = Verdict.UNKNOWN
        for _ in range(math.ceil((watch.detector.min_count - known.count) / self.verify_env.num_envs)):
            for outcome in self._repeat(state, action):
                verdict = watch.detector.observe(key, outcome, is_visit=False)
            if verdict != Verdict.UNKNOWN:
                break
        if verdict != Verdict.UNKNOWN:
            watch.file(key, verdict, found.transitions, slot, found.step, found.version)
        self.n_promoted += verdict == Verdict.DETERMINISTIC
        self.n_contradicted += verdict == Verdict.STOCHASTIC
        spent = self.verify_env.ledger.total_steps - before
        self._control.ledger.verification_steps += spent
        self.n_steps += spent
        self._credit -= spent

    def _repeat(self, state: State, action: Any) -> list[Outcome]:
        """Outcomes of one action from one state, one for each slot."""
        env, owner = self.verify_env, type(self).__name__
        env.set_start_sampler(lambda slot: Start("verification", snapshot=state), owner=owner)
        env.reset()
        # What ends here needs no second restore.
        env.set_start_sampler(None, owner=owner)
        observations, rewards, dones, infos = env.step(np.stack([action] * env.num_envs))
        following = deepcopy(observations)
        cut = [bool(info.get("TimeLimit.truncated", False)) for info in infos]
        for slot in np.flatnonzero(dones).tolist():
            write_observation(following, slot, infos[slot]["terminal_observation"])
        columns = {"rewards": rewards, "dones": dones, **columns_of("next_observations", following)}
        return self._watch.outcomes(self._shaped(columns), cut)

    def _action(self, action: NDArray[Any]) -> NDArray[Any]:
        """What the environment was given, from what was kept of it."""
        space = self.model.action_space
        action = action.reshape(space.shape or ())
        if isinstance(space, spaces.Box) and isinstance(self.model, OffPolicyAlgorithm):
            return self.model.policy.unscale_action(action)
        return action

    # ------------------------------------------------------------------ logs and persistence

    def _on_rollout_end(self) -> None:
        self.logger.record("budget/verify_steps", self.n_steps)
        self.logger.record("budget/verify_promoted", self.n_promoted)
        self.logger.record("budget/verify_contradicted", self.n_contradicted)

    def save(self, path: str | Path) -> None:
        """
        Save counters and generator. What is known is in the replay buffer, or saved by the other callback.

        :param path: File to write.
        """
        write_state(path, ActiveVerificationCallback, {name: self.__dict__[name] for name in STATE})

    def load(self, path: str | Path) -> None:
        """
        Take over what :meth:`save` wrote, before ``learn`` is called.

        :param path: File to read.
        :raises ValueError: if it is damaged or not such a callback's.
        """
        self.__dict__.update(read_state(path, ActiveVerificationCallback))
        self._seeded = True
