"""The callback that decides where episodes begin."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.type_aliases import Schedule
from stable_baselines3.common.vec_env import unwrap_vec_wrapper

from sb3_budget.callbacks.density_hint import DensityHint
from sb3_budget.callbacks.outcome_labels import OutcomeLabels, SuccessRule, features
from sb3_budget.callbacks.progress import progress_remaining
from sb3_budget.callbacks.requirements import as_steps, require_steps_or_fraction, require_top_level
from sb3_budget.callbacks.rollout_notes import CellStart, Measured, RolloutNotes
from sb3_budget.callbacks.start_plan import StartPlan
from sb3_budget.callbacks.start_strength import StartStrength
from sb3_budget.callbacks.state_files import read_state, write_state
from sb3_budget.callbacks.training_starts import TrainingStarts
from sb3_budget.core.anchor_horizons import AnchorHorizon
from sb3_budget.core.anchor_record import AnchorRecord
from sb3_budget.core.anchors import Anchors, Priority, Weight, contrast_priority
from sb3_budget.core.cells import Cells, FunctionCells, default_cells, parse_cells
from sb3_budget.core.region_roi import RegionRoi
from sb3_budget.core.start_log import StartLog, save_table
from sb3_budget.policies.success_predictor import SuccessPredictor
from sb3_budget.vec_env.episode_control_vec_env import EpisodeControlVecEnv
from sb3_budget.vec_env.start import Start
from sb3_budget.vec_env.start_archive import StartArchive

#: Priorities are computed anew after so many steps.
UPDATE_STEPS = 256
#: The predictor sees one minibatch for so many steps, and speaks once so many of the last episodes have succeeded.
STEPS_PER_MINIBATCH, LEAST_SUCCESSES, RECENT = 64, 5, 200
#: What is saved.
STATE = (
    "archive", "_cells", "_predictor", "_labels", "_recent", "_record", "_rng", "_frozen", "_joins_parts", "_n_own",
    "_n_archived",
)  # fmt: skip
#: A predictor of longer observations would cost more than it is worth.
MOST_FEATURES = 4096


class BudgetAllocatorCallback(BaseCallback):
    """
    Begins episodes in archived states from which they teach most.

    While the algorithm trains, one state of each visited cell of the state space is saved. An episode begins in one of
    them, drawn by priority, or with probability ``floor`` where the environment itself begins. It is made for sparse
    rewards that are far from the start; with dense rewards expect no gain. Evaluate on the environment's own starts.

    The environment must contain an :class:`~sb3_budget.EpisodeControlVecEnv`, and its simulator must be one whose states
    can be saved exactly (:doc:`../modules/states`). It serves every algorithm of Stable-Baselines3, on-policy and
    off-policy: it decides starts and nothing else.

    :param priority: ``"contrast"`` (default): where outcomes are predicted to be mixed, and until episodes succeed, where
        visits are rare. ``"novelty"``: where visits are rare. ``"advantage"``, ``"td"``: where absolute advantages, or
        one-step errors of the critic, are large (on-policy). ``"critic_spread"``: where the critics of an
        :class:`~sb3_budget.EnsembleActorCriticPolicy` disagree. ``"learning_progress"``: where returns change.
        ``"uniform"``: the control. Or a function of :class:`~sb3_budget.Anchors`; or weights by signal (float or
        schedule), for the sum of the signals' ranks; or a :class:`~sb3_budget.SignalBandit`, which learns which to follow.
    :param cells: State abstraction: an object like :class:`~sb3_budget.QuantisedCells`, or a function of a batch of
        observations that returns one hashable key for each. By default exact for discrete observations, quantised for
        short vectors, and a quantised random projection for others.
    :param floor: Share of the episodes that begin in the environment's own starts (float or schedule of the progress
        remaining, clipped to [0, 1]). 1 switches the allocator off.
    :param warmup: All episodes begin in own starts for so long: a share of the training (float) or steps (int). The scale
        of observations, in which cells are measured, is what was seen meanwhile: in a single step if it is 0.
    :param temperature: Of the ranks of the priorities: :math:`(1/\\text{rank})^{1/T}`.
    :param archive_size: Largest number of saved states.
    :param refresh: Chance that a visit to a known cell replaces its state.
    :param horizon: Longest length of an episode that begins in an archived state [steps]. ``None`` leaves the environment's
        own limit, which counts from 0 there. Or a function of :class:`~sb3_budget.Anchors` that returns the length for
        each, or ``"adaptive"``, a :class:`~sb3_budget.DoublingHorizon`.
    :param ramp: The share of archived starts grows from 0 to ``1 - floor`` for so long after the warm-up: a share of the
        training (float) or steps (int).
    :param max_kl: Where the latest update's ``approx_kl`` is larger, the share of archived starts is smaller, in proportion: a
        policy that changes fast is not also moved to other states. ``None`` (default) for no guard.
    :param min_entropy: Where the policy's entropy [nats] is smaller, so is that share, by the ratio of the numbers of
        actions that are still tried. ``None`` (default) for no guard.
    :param record_starts: File (``.npz``) for the starts of each update, written when training ends: ``sb3-budget plot`` draws
        it.
    :param roi: A :class:`~sb3_budget.RegionRoi`, to begin more episodes in the regions where steps have brought more. ``None``
        (default) for priorities alone.
    :param success: ``(info) -> bool`` at the end of an episode, for ``"contrast"``. By default ``info["is_success"]`` where
        there is one, and otherwise whether the return is above the median of the last 200 episodes, or their best.
    :param seed: Seed of the draws. The model's seed by default.
    :param verbose: Verbosity level.
    :raises ValueError: if an argument is out of range, or, when training starts, the environment or algorithm cannot do what
        is asked.
    """

    def __init__(
        self,
        priority: str | Priority | Mapping[str | Priority, Weight] = "contrast",
        cells: Cells | Callable[[Any], list[Any]] | None = None,
        floor: float | Schedule = 0.2,
        warmup: int | float = 0.1,
        temperature: float = 1.0,
        archive_size: int = 2000,
        refresh: float = 0.02,
        horizon: int | str | AnchorHorizon | None = None,
        success: SuccessRule | None = None,
        ramp: int | float = 0,
        max_kl: float | None = None,
        min_entropy: float | None = None,
        record_starts: str | Path | None = None,
        roi: RegionRoi | None = None,
        seed: int | None = None,
        verbose: int = 0,
    ):
        super().__init__(verbose)
        self._plan = StartPlan(priority, horizon, temperature, roi)
        self._strength = StartStrength(floor, ramp, max_kl, min_entropy)
        require_steps_or_fraction("warmup", warmup)
        self.warmup = warmup
        self.record_starts = record_starts
        self._cells: Any = parse_cells(cells)
        self._rng = np.random.default_rng(seed)
        self._seeded = seed is not None
        self.archive = StartArchive(archive_size, refresh, self._rng)
        self._labels = OutcomeLabels(success)
        self._predictor: SuccessPredictor | None = None
        self._record = AnchorRecord(archive_size)
        self._recent: deque[bool] = deque(maxlen=RECENT)
        self._n_own, self._n_archived = 0, 0
        self._frozen, self._joins_parts = False, False
        self._starts: StartLog | None = None
        #: Seconds that it took since training began, besides those of restoring states.
        self.seconds = 0.0

    # ------------------------------------------------------------------ set-up

    def _init_callback(self) -> None:
        venv = unwrap_vec_wrapper(self.training_env, EpisodeControlVecEnv)
        if venv is None:
            raise ValueError(
                "BudgetAllocatorCallback decides where episodes begin: put EpisodeControlVecEnv around the base VecEnv, "
                "VecNormalize(EpisodeControlVecEnv(make_vec_env(...)))"
            )
        if not venv.enabled:
            raise ValueError(f"The training environment's {type(venv).__name__} has enabled=False: it cannot choose starts")
        self._venv = venv
        space = venv.observation_space
        # A function of a user sees observations as they are; every other abstraction sees vectors.
        self._joins_parts = isinstance(space, (spaces.Dict, spaces.Tuple)) and not isinstance(self._cells, FunctionCells)
        if self._cells is None:
            # What has parts is put into one vector before it is put into a cell.
            shape = (spaces.flatdim(space),) if self._joins_parts else space.shape or ()
            dtype = np.float32 if self._joins_parts else space.dtype or np.float32
            self._cells = default_cells(shape, dtype, isinstance(space, spaces.Discrete))
        self._n_features = spaces.flatdim(space)
        self._predicts = contrast_priority in self._plan.signals
        if self._predicts and self._n_features > MOST_FEATURES:
            raise ValueError(
                f"priority='contrast' predicts success from observations, and {self._n_features} numbers are too many: "
                "use 'novelty' or 'advantage'"
            )
        if self._predicts and self._frozen and self._predictor is None:
            raise ValueError("What was loaded is of an allocator without priority='contrast': it has nothing to predict by")
        self._measured = Measured.of(self._plan, self.model)
        if not self._predicts:
            # One that was loaded would not see what is archived from here on.
            self._predictor = None
        elif self._predictor is None:
            self._predictor = SuccessPredictor(self._n_features, seed=self.model.seed)
        if not self._seeded and self.model.seed is not None:
            self._rng.bit_generator.state = np.random.default_rng(self.model.seed).bit_generator.state
            self._seeded = True
        self._plan.follow_seed(self.model.seed)

    def _on_training_start(self) -> None:
        require_top_level(self)
        # What has never warmed up does so from here on, also where the count of steps goes on.
        begin = 0 if self._frozen else self.model.num_timesteps
        n_steps = self.model._total_timesteps - begin
        self._warmup_steps = begin + as_steps(self.warmup, n_steps)
        if not self._strength.off:
            # Refused now rather than after the warm-up.
            self._venv.get_states([0])
        self._features = features(self._venv.observation_space, self._venv.last_obs)
        first = self._features if self._joins_parts else self._venv.last_obs
        self._labels.start(self._venv.num_envs)
        self._present = self.archive.rows(self._cells.keys(first)) if self._frozen else np.full(self._venv.num_envs, -1)
        self._notes = RolloutNotes(self._record, self._measured, running=self._venv.ages > 0)
        self._strength.start(self.model, self._warmup_steps, n_steps)
        if self.record_starts is not None and (self._starts is None or self.model.num_timesteps == 0):
            self._starts = StartLog()
        self._hint = DensityHint(self._venv.num_envs)
        self._plan.outdate()
        self._next_update = self.num_timesteps
        self._minibatches_due = 0.0
        self.seconds, self._began = 0.0, perf_counter()
        # Last of all: what is refused above leaves the environment as it was.
        self._training = TrainingStarts(self.model, self._venv, self._draw, type(self).__name__)

    @property
    def active(self) -> bool:
        """Whether episodes begin in archived states: the warm-up is over, and there are some."""
        return self._training.is_present and self.num_timesteps >= self._warmup_steps and len(self.archive) > 0

    @property
    def archive_starts(self) -> float:
        """Share of all episodes so far that began in archived states."""
        n_episodes = self._n_own + self._n_archived
        return self._n_archived / n_episodes if n_episodes else 0.0

    # ------------------------------------------------------------------ starts

    def _draw(self, slot: int) -> Start | None:
        """The start sampler."""
        if not self.active or self._rng.random() < self._strength.own_share(
            self.num_timesteps, progress_remaining(self.model)
        ):
            self._n_own += 1
            if self._starts is not None:
                self._starts.add_own()
            return None
        began = perf_counter()
        row, horizon = self._plan.draw(len(self.archive), self.anchors, self._rng)
        self.seconds += perf_counter() - began
        self._n_archived += 1
        state = self.archive.choose(row)
        start_id = CellStart("cell", row, int(self.archive.versions[row]))
        if self._starts is not None:
            self._starts.add(start_id, state.observation)
        return Start(start_id, snapshot=state, keep_time=False, horizon=horizon)

    def anchors(self) -> Anchors:
        """
        :return: What is known of the archived states, for a priority.
        """
        success = np.full(len(self.archive), np.nan)
        if self._predictor is not None and sum(self._recent) >= LEAST_SUCCESSES:
            success = self._predictor.predict(np.stack(self.archive.observations))
        n = len(self.archive)
        self._record.follow(self.archive.versions)
        return Anchors(
            visits=self.archive.visits,
            chosen=self.archive.chosen,
            advantages=self._record.advantages.values[:n].copy(),
            success=success,
            td_errors=self._record.td_errors.values[:n].copy(),
            progress=self._record.progress.values[:n],
            spread=self._record.spread.values[:n].copy(),
            cuts=self._record.cuts[:n].copy(),
            observations=[state.observation for state in self.archive.states],
            progress_remaining=progress_remaining(self.model),
        )

    # ------------------------------------------------------------------ steps

    def _on_step(self) -> bool:
        self._training.step()
        if self._strength.off:
            return True
        began = perf_counter()
        # What the environment showed, before wrappers above normalised or stacked it.
        observations = self._venv.last_obs
        versions = self.archive.versions[self._present] if len(self.archive) else self._present
        self._notes.step(self._present, versions, self.model.policy, self.locals["dones"], self.locals["infos"])
        if self._predicts:
            self._label()
        if self._predicts or self._joins_parts:
            self._features = features(self._venv.observation_space, observations)
        if self._joins_parts:
            observations = self._features
        warming_up = self.num_timesteps < self._warmup_steps
        if warming_up and not self._frozen:
            self._observe(observations)
        elif warming_up:
            self._present = self.archive.rows(self._cells.keys(observations))
        else:
            self._present = self._archive(observations)
        if self.num_timesteps >= self._next_update:
            self._next_update = self.num_timesteps + UPDATE_STEPS
            self._plan.outdate()
        self._hint.look(self.model, self.locals, warming_up)
        self.seconds += perf_counter() - began
        return True

    def _observe(self, observations: Any) -> None:
        """Measure the scale of observations."""
        self._cells.observe(observations)
        if self._predictor is not None:
            self._predictor.observe(self._features)

    def _archive(self, observations: Any) -> NDArray[np.int64]:
        """Count visits, and save a state of every cell that is new. Returns the cells' rows."""
        if not self._frozen:
            self._observe(observations)
            self._cells.freeze()
            if self._predictor is not None:
                self._predictor.freeze()
            self._frozen = True
        keys = self._cells.keys(observations)
        wanted = self.archive.visit(keys)
        if wanted:
            features_of = self._features if self._predicts else np.zeros((len(keys), 0), dtype=np.float32)
            for slot, state in zip(wanted, self._venv.get_states(wanted), strict=True):
                self.archive.keep(keys[slot], state, features_of[slot])
        return self.archive.rows(keys)

    def _label(self) -> None:
        """Tell the predictor what became of the episodes that ended with this step."""
        assert self._predictor is not None
        ended = self._labels.add(self._features, self.locals["dones"], self.locals["infos"])
        if ended is not None:
            self._recent.extend(ended.outcomes)
            self._predictor.add(ended.examples, ended.succeeded)
        self._minibatches_due += self._venv.num_envs / STEPS_PER_MINIBATCH
        if self._minibatches_due >= 1.0:
            self._predictor.train(int(self._minibatches_due))
            self._minibatches_due %= 1.0

    # ------------------------------------------------------------------ rollouts

    def _on_rollout_start(self) -> None:
        self._strength.follow(self.logger.name_to_value)

    def _on_rollout_end(self) -> None:
        began = perf_counter()
        buffer = getattr(self.model, "rollout_buffer", None)
        self._record.follow(self.archive.versions)
        if self._plan.learns and self.active:
            self._plan.learn(self._notes.brought(buffer, self._venv.num_envs))
        self._notes.close(buffer)
        if self._starts is not None:
            # An off-policy rollout may be a single step.
            self._starts.close_update(self.num_timesteps, UPDATE_STEPS if buffer is None else 1)
        self._log()
        self.seconds += perf_counter() - began

    def _log(self) -> None:
        self.logger.record("budget/archive_size", len(self.archive))
        self.logger.record("budget/archive_starts", self.archive_starts)
        self.logger.record("budget/allocator_time", self.seconds / max(perf_counter() - self._began, 1e-9))
        self.logger.record("budget/start_strength", self._strength.strength(self.num_timesteps))
        if self._recent:
            self.logger.record("budget/success_rate", float(np.mean(self._recent)))
        if self._predictor is not None and not np.isnan(self._predictor.brier_score):
            self.logger.record("budget/success_brier", self._predictor.brier_score)
        for key, value in self._plan.log_values(progress_remaining(self.model)).items():
            self.logger.record(key, value)

    def _on_training_end(self) -> None:
        """Starts are the environment's own again."""
        self._training.remove()
        if self._starts is not None and self.record_starts is not None:
            self._starts.close_update(self.num_timesteps)
            save_table(self._starts.table(), self.record_starts)

    # ------------------------------------------------------------------ persistence

    def save(self, path: str | Path) -> None:
        """
        Save what has been learnt: archive, cells, predictor, averages, bandit, regions, counters and generator.

        :param path: File to write.
        """
        learnt = {"plan": self._plan.state(), **{name: self.__dict__[name] for name in STATE}}
        write_state(path, BudgetAllocatorCallback, learnt)

    def load(self, path: str | Path) -> None:
        """
        Take over what :meth:`save` wrote, before ``learn`` is called. Cells, the archive's size and ``refresh`` and the draws
        are then those of what was saved, whatever this callback was given; so is ``success``, unless it was given one.

        :param path: File to read.
        :raises ValueError: if it is damaged or not such a callback's.
        """
        saved = read_state(path, BudgetAllocatorCallback)
        self._plan.load_state(saved.pop("plan"))
        own_rule = self._labels.success
        self.__dict__.update(saved)
        self._labels.success = own_rule or self._labels.success
        self._seeded = True
