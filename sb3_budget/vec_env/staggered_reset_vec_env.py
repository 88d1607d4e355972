"""A ``VecEnv`` wrapper that spreads the slots over the phases of an episode."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn

from sb3_budget.core import staggering
from sb3_budget.vec_env.diagnosis import StaggerDiagnosis, measured_advice, static_advice
from sb3_budget.vec_env.episode_control_vec_env import EpisodeControlVecEnv
from sb3_budget.vec_env.episode_lengths import EpisodeLengths, LengthRule
from sb3_budget.vec_env.horizon import find_horizon
from sb3_budget.vec_env.observations import write_observation
from sb3_budget.vec_env.offsets import OffsetRule, check_offsets, draw_offsets
from sb3_budget.vec_env.phase_archive import PhaseArchive
from sb3_budget.vec_env.stagger_checks import check_fractions, check_mode, count_blocks
from sb3_budget.vec_env.start import Start
from sb3_budget.vec_env.warmup import WarmupActions, parse_warmup_actions, warm_up

#: Number of steps that coverage and entropy look back at most.
PHASE_STEPS = 2048


class StaggeredResetVecEnv(EpisodeControlVecEnv):
    """
    De-synchronises parallel episodes, so that a short rollout covers the whole horizon.

    With ``n_envs`` slots reset together and rollouts much shorter than an episode, every batch shows one narrow
    window of time and the windows repeat in cycles. Shifting the slots against each other removes the cycle
    (Bharthulwar, Tao and Su, 2025, https://arxiv.org/abs/2511.21011). Slot ``i`` with offset ``o_i`` has its *first*
    episode cut, as a truncation with bootstrap, after ``horizon - o_i`` steps; from then on its episodes have full
    length and stay shifted. No extra simulator step is taken.

    ``horizon_budget`` decides, without looking at any score, how long later episodes run. ``"discount"`` draws
    lengths so that the number of episodes that reach step ``t`` is proportional to :math:`\\sqrt{c_t}`, which gives
    the narrowest confidence interval for a discounted return at a given number of steps (Poiani, Metelli and
    Restelli, 2023, https://arxiv.org/abs/2305.04361).

    :param venv: The base vectorised environment.
    :param horizon: Length of a full episode [steps]. Found from the ``TimeLimit`` or the spec when not given.
    :param mode: ``"first_episode"`` (free), ``"warmup"`` (each slot is stepped by its offset at every
        :meth:`reset`: immediate, its steps are counted in ``ledger.warmup_steps``), or ``"jitter"``
        (as ``first_episode``, and every later episode is cut at a random length, which keeps slots apart where
        they could fall into step again), or ``"snapshot"`` (as ``first_episode``, and later episodes begin at the
        beginning of a block that is drawn by ``block_weights``, in a state saved when a slot came by; the only mode in
        which a block can get more steps than the others). Needs an environment whose states can be saved, see
        :mod:`sb3_budget.states`.
    :param offsets: ``"even"`` (``floor(i * horizon / n_envs)``), ``"blocks"``, ``"random"`` or a callable
        ``(n_envs, horizon, rng) -> offsets``.
    :param n_steps: Rollout length, for ``"blocks"`` (there are ``ceil(horizon / n_steps)`` of them) and to warn when
        a rollout covers the horizon anyway.
    :param n_blocks: Number of blocks, instead of the number that follows from ``n_steps``.
    :param block_multiplier: Blocks per rollout length.
    :param block_weights: Relative number of slots per block of ``offsets="blocks"``, e.g. more at the beginning, or of
        starts per block in ``"snapshot"``, where block 0 is the environment's own reset. Even by default.
    :param random_fraction: Share of slots that get a random offset instead.
    :param reassign_every: Redraw a slot's offset every so many of its episodes. Never by default.
    :param jitter_fraction: ``"jitter"`` draws lengths from ``[(1 - jitter_fraction) * horizon, horizon]``.
    :param warmup_actions: ``"random"``, ``"noop"`` (zeros) or a callable that maps a batch of raw observations of
        ``n_envs`` slots to their actions, for ``mode="warmup"``.
    :param group_reset: When an episode ends by itself, end those of its block too, at the next step. Keeps the slots of a
        block within one step of each other where episodes can end early; off by default since it throws episodes away.
    :param horizon_budget: ``"full"``, ``"discount"`` or a callable ``(n, rng) -> lengths``.
    :param gamma: Discount factor of ``"discount"``; use the model's.
    :param full_fraction: Share of episodes that a horizon budget leaves at full length, so that late states and
        ``Monitor``'s statistics do not vanish.
    :param rank: Index of this process among ``world_size`` ones that share the offsets.
    :param world_size: Number of processes.
    :param snapshots_per_block: Number of states kept per block, for ``mode="snapshot"``.
    :param enabled: ``False`` passes everything through untouched, for evaluation environments.
    :param seed: Seed of everything drawn here. A later call of :meth:`seed` overrides it, and draws the offsets anew.
    :raises ValueError: if an argument is out of range, arguments contradict each other, the horizon cannot be
        found, or ``venv`` is not a base ``VecEnv``.
    """

    def __init__(
        self,
        venv: VecEnv,
        horizon: int | None = None,
        mode: str = "first_episode",
        offsets: str | OffsetRule = "even",
        n_steps: int | None = None,
        n_blocks: int | None = None,
        block_multiplier: int = 1,
        block_weights: ArrayLike | None = None,
        random_fraction: float = 0.0,
        reassign_every: int | None = None,
        jitter_fraction: float = 0.25,
        warmup_actions: str | WarmupActions = "random",
        group_reset: bool = False,
        horizon_budget: str | LengthRule = "full",
        gamma: float = 0.99,
        full_fraction: float = 0.1,
        rank: int = 0,
        world_size: int = 1,
        snapshots_per_block: int = 16,
        enabled: bool = True,
        seed: int | None = None,
    ):
        check_fractions(random_fraction, full_fraction, jitter_fraction)
        check_mode(mode, offsets, block_weights is not None, reassign_every, group_reset or horizon_budget != "full")
        super().__init__(venv, enabled=enabled, seed=seed)
        self._horizon_given = horizon is not None
        self.horizon = find_horizon(venv, horizon) if enabled or horizon is not None else None
        self.mode = mode
        self.n_steps = n_steps
        self.random_fraction = random_fraction
        self.reassign_every = reassign_every
        self.jitter_fraction = jitter_fraction
        self.group_reset = group_reset
        self.full_fraction = full_fraction
        self.rank, self.world_size = rank, world_size
        self.snapshots_per_block = snapshots_per_block
        self._block_weights = block_weights
        self._n_blocks, self._block_multiplier = n_blocks, block_multiplier
        self._offset_rule = offsets
        self.horizon_budget = horizon_budget
        self.gamma = gamma
        self._warmup_rule = warmup_actions
        self._warmup_actions = parse_warmup_actions(warmup_actions, self.action_space, seed)
        self._warned = False
        self._archive: PhaseArchive | None = None
        if enabled:
            self._plan()

    def enable(self) -> None:
        if self.enabled:
            return
        if self.mode == "warmup" and self.last_obs is not None:
            raise ValueError(
                "mode='warmup' steps the slots at a reset, and these environments have been reset: build the wrapper with "
                "enabled=True, or take mode='first_episode', which can begin later"
            )
        if self.horizon is None:
            self.horizon = find_horizon(self.venv, None)
        self._plan()
        super().enable()
        if self.last_obs is not None:
            self._check_snapshots()

    def _check_snapshots(self) -> None:
        """What cannot be saved shows before training, and not when a slot first comes to a block."""
        if self._archive is not None and not self._archive.counts.any():
            self.get_states(0)

    # ------------------------------------------------------------------ plan

    def _plan(self) -> None:
        """Everything that follows from the arguments once the horizon is known; errors show here."""
        assert self.horizon is not None
        self._lengths = EpisodeLengths(self.horizon_budget, self.horizon, self.gamma, self.full_fraction)
        self._phase_bins = count_blocks(self.mode, self.horizon, self._n_blocks, self.n_steps, self._block_multiplier)
        self.offsets = self.draw_offsets()
        self._pending_offsets = self.offsets.copy()
        self._episodes_begun = np.zeros(self.num_envs, dtype=np.int64)
        self._first_end_early = np.zeros(self.num_envs, dtype=bool)
        self._archive = self._make_archive()
        self._phase_ages: deque[NDArray[np.int64]] = deque(maxlen=PHASE_STEPS)
        self._phase_counts = np.zeros(self._phase_bins, dtype=np.int64)
        self.warn_once(self._static_advice())

    def _make_archive(self) -> PhaseArchive | None:
        if self.mode != "snapshot":
            return None
        assert self.horizon is not None
        archive = PhaseArchive(self.horizon, self._phase_bins, self.snapshots_per_block, self._block_weights)
        self._own_starts()
        return archive

    @property
    def snapshot_blocks(self) -> int | None:
        """Number of blocks that ``mode="snapshot"`` begins episodes in, ``None`` in other modes."""
        return None if self._archive is None else self._archive.n_blocks

    def _own_starts(self) -> None:
        # Not through set_start_sampler: a wrapper that is about to be enabled is not enabled yet.
        self._start_sampler, self._sampler_owner = self._draw_start, f"{type(self).__name__}(mode='snapshot')"

    def _draw_start(self, slot: int) -> Start | None:
        assert self._archive is not None
        assert self.horizon is not None
        self._origins[slot], start = self._archive.draw(self._budget_rng)
        # Where the horizon is shorter than the environment's own limit, the episode still ends with it.
        return None if start is None else start._replace(horizon=self.horizon - int(self._origins[slot]))

    @property
    def phases(self) -> NDArray[np.int64]:
        """Steps since the start of a full episode, per slot: where a slot begins in a snapshot, more than its age."""
        return self.ages + self._origins

    @property
    def discounts_lengths(self) -> bool:
        """Whether episode lengths follow the discount factor."""
        return self.horizon_budget == "discount"

    def draw_offsets(self) -> NDArray[np.int64]:
        """
        Draw offsets by the rule given at construction.

        :return: One offset [steps] per slot of this process.
        :raises ValueError: if the rule's arguments or its result are out of range.
        """
        assert self.horizon is not None
        n_global, first = staggering.rank_slice(self.num_envs, self.rank, self.world_size)
        n_blocks = None if self._n_blocks is None and self.n_steps is None else self._phase_bins
        offsets = draw_offsets(self._offset_rule, n_global, self.horizon, n_blocks, self._block_weights, self._budget_rng)
        mixed = staggering.mix_random(offsets, self.horizon, self.random_fraction, self._budget_rng)
        return mixed[first :: self.world_size]

    def reassign(self, offsets: ArrayLike | None = None) -> None:
        """
        Give the slots new offsets, each at the beginning of its next episode.

        :param offsets: One offset [steps] per slot, each in ``[0, horizon)``. Drawn anew by default.
        :raises ValueError: if they are out of range, or the wrapper is disabled.
        """
        if not self.enabled:
            raise ValueError("reassign() on a StaggeredResetVecEnv with enabled=False: it never shifts a slot")
        assert self.horizon is not None
        self.offsets = self.draw_offsets() if offsets is None else check_offsets(offsets, self.num_envs, self.horizon)
        self._pending_offsets = self.offsets.copy()

    def reassign_blocks(self, n_blocks: int, weights: ArrayLike | None = None) -> None:
        """
        Deal the slots of all processes to blocks, each at the beginning of its next episode. With
        ``mode="snapshot"``: weigh the blocks that episodes begin in.

        :param n_blocks: Number of blocks.
        :param weights: Relative number of slots per block, even by default.
        :raises ValueError: if they are out of range, or the wrapper is disabled.
        """
        assert self.horizon is not None
        if self.enabled and self._archive is not None:
            if n_blocks != self._archive.n_blocks:
                raise ValueError(f"n_blocks={n_blocks} cannot replace the {self._archive.n_blocks} blocks of the snapshots")
            self._archive.set_weights(np.ones(n_blocks) if weights is None else weights)
            return
        n_global, first = staggering.rank_slice(self.num_envs, self.rank, self.world_size)
        self.reassign(staggering.block_offsets(n_global, self.horizon, n_blocks, weights)[first :: self.world_size])

    # ------------------------------------------------------------------ VecEnv

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        seeds = super().seed(seed)
        if seed is not None:
            self._warmup_actions = parse_warmup_actions(self._warmup_rule, self.action_space, seed)
            if self.enabled:
                self.offsets = self.draw_offsets()
        return seeds

    def reset(self) -> VecEnvObs:
        if self.enabled:
            self._pending_offsets = self.offsets.copy()
            self._episodes_begun[:] = 0
            self._first_end_early[:] = False
            if self.mode == "warmup" or (self._archive is not None and self._archive.counts.any()):
                self._pending_offsets[:] = 0
        obs = super().reset()
        self._check_snapshots()
        if self.enabled and self.mode == "warmup" and self.num_envs > 1:
            warm_up(obs, self.offsets, self._warmup_actions, self._advance)
        return obs

    def _advance(self, obs: VecEnvObs, slot: int, action: Any) -> None:
        """Step one slot alone. VecEnv.step() would move all; the slot's own step() leaves the reset to us."""
        slot_obs, reward, terminated, truncated, _ = self.venv.env_method("step", action, indices=[slot])[0]
        write_observation(obs, slot, slot_obs)
        self.ages[slot] += 1
        self._episode_returns[slot] += reward
        self.ledger.warmup_steps += 1
        if terminated or truncated or self.ages[slot] >= self._limits[slot]:
            self.ledger.resets += 1
            self._reset_slots(obs, [slot])
            self._begin_episodes(obs, [slot])

    def step_wait(self) -> VecEnvStepReturn:
        obs, rewards, dones, infos = super().step_wait()
        if self.enabled:
            self._phase_ages.append(self.phases)
            if self._archive is not None:
                self._keep_snapshots()
        return obs, rewards, dones, infos

    def _keep_snapshots(self) -> None:
        assert self._archive is not None
        phases = self.phases
        # A slot that has just begun in a snapshot stands where one was taken already.
        slots = self._archive.wanted(np.where(self.ages > 0, phases, 0), self._budget_rng)
        for slot, state in zip(slots.tolist(), self.get_states(slots), strict=True):
            self._archive.keep(int(phases[slot]), state, self._budget_rng)

    def _end_episodes(
        self, obs: VecEnvObs, dones: NDArray[np.bool_], infos: list[dict[str, Any]], cuts: NDArray[np.bool_]
    ) -> None:
        assert self.horizon is not None
        was_settled = self._settled
        own = dones & (self._episodes_begun == 1) & (self._origins == 0)
        first = own & (self.offsets > 0) & (self.ages < self.horizon - self.offsets)
        self._first_end_early |= first
        super()._end_episodes(obs, dones, infos, cuts)
        if self.group_reset and dones.any():
            same_block = np.isin(self.offsets, self.offsets[dones]) & ~dones & ~cuts
            for slot in np.flatnonzero(same_block).tolist():
                self._limit(slot, int(self.ages[slot]) + 1, "stagger")
        if self._settled and not was_settled:
            self.warn_once(self._measured_advice())

    def _set_limits(self, slots: list[int]) -> None:
        assert self.horizon is not None
        self._origins[slots] = 0
        lengths = self._lengths.draw(len(slots), self._budget_rng)
        for slot, length in zip(slots, lengths, strict=True):
            begun = int(self._episodes_begun[slot])
            if self.reassign_every is not None and begun > 0 and begun % self.reassign_every == 0:
                self._pending_offsets[slot] = self._budget_rng.choice(self.offsets)
            if self.num_envs > 1 and self._pending_offsets[slot] > 0:
                self._limit(slot, self.horizon - int(self._pending_offsets[slot]), "stagger")
            elif self.num_envs > 1 and self.mode == "jitter" and begun > 0:
                shortest = max(1, int((1.0 - self.jitter_fraction) * self.horizon))
                self._limit(slot, int(self._budget_rng.integers(shortest, self.horizon + 1)), "jitter")
            # A phase of a snapshot lies within the horizon, also where the environment's own limit is longer.
            if length < self.horizon or self._archive is not None:
                self._limit(slot, int(length), "horizon")
            self._pending_offsets[slot] = 0
            self._episodes_begun[slot] += 1

    def set_venv(self, venv: VecEnv) -> None:
        found = self.horizon if self.horizon is None or self._horizon_given else find_horizon(venv, None)
        if found != self.horizon:
            raise ValueError(
                f"The wrapper was saved with the horizon of {self.horizon} steps that its environments had, the given ones "
                f"have {found}: make a new wrapper, whose offsets fit"
            )
        super().set_venv(venv)
        if self._archive is not None:
            self._own_starts()

    # ------------------------------------------------------------------ diagnosis

    def diagnose(self, n_steps: int | None = None) -> StaggerDiagnosis:
        """
        Measure the spread of the slots since the last call and say when staggering cannot help. Where no step was taken
        since, coverage and entropy are those of the last call.

        :param n_steps: Rollout length of the algorithm, if it was not given at construction.
        :return: The measurement.
        :raises ValueError: if the wrapper is disabled.
        """
        if not self.enabled:
            raise ValueError("diagnose() on a StaggeredResetVecEnv with enabled=False: it measures nothing")
        assert self.horizon is not None
        if self._phase_ages:
            self._phase_counts = staggering.phase_histogram(np.array(self._phase_ages), self.horizon, self._phase_bins)
            self._phase_ages.clear()
        return StaggerDiagnosis(
            phase_coverage=staggering.phase_coverage(self._phase_counts),
            phase_entropy=staggering.phase_entropy(self._phase_counts),
            dispersion=staggering.circular_dispersion(self.phases, self.horizon),
            early_end_ratio=self._early_end_ratio(),
            advice=(*self._static_advice(n_steps), *self._measured_advice()),
        )

    @property
    def _settled(self) -> bool:
        """Whether every slot is past its first episode, so that what is known of those is final."""
        return bool((self._episodes_begun > 1).all())

    def _early_end_ratio(self) -> float:
        shifted = self.offsets > 0
        return float(self._first_end_early[shifted].mean()) if shifted.any() else 0.0

    def _static_advice(self, n_steps: int | None = None) -> list[str]:
        assert self.horizon is not None
        lone = self.num_envs == 1 and self.horizon_budget == "full" and self.mode != "snapshot"
        return static_advice(lone, n_steps or self.n_steps, self.horizon)

    def _measured_advice(self) -> list[str]:
        return measured_advice(self._early_end_ratio()) if self._settled else []

    def warn_once(self, reasons: Sequence[str]) -> None:
        """
        Warn that staggering cannot help, the first time that there is a reason.

        :param reasons: The ``advice`` of a diagnosis.
        """
        if reasons and not self._warned:
            self._warned = True
            warnings.warn(f"Staggered resets cannot help here: {'; '.join(reasons)}.", UserWarning, stacklevel=2)
