"""PPO whose advantages are relative to a group of slots with the same starts."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback, CallbackList
from stable_baselines3.common.policies import ActorCriticPolicy, BasePolicy
from stable_baselines3.common.type_aliases import GymEnv, MaybeCallback, Schedule
from stable_baselines3.common.utils import FloatSchedule
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, unwrap_vec_wrapper

from sb3_budget.algorithms import group_update
from sb3_budget.algorithms.group_checks import (
    WHOLE_EPISODES,
    InertGroups,
    UntoldGroups,
    controlled,
    require_entropy_of_states,
    require_equal_starts,
    require_no_memory,
    require_sense,
)
from sb3_budget.algorithms.reference_policy import ReferencePolicy
from sb3_budget.buffers.finished_group_buffer import (
    FinishedGroupBufferMixin,
    FinishedGroupDictRolloutBuffer,
    FinishedGroupRolloutBuffer,
)
from sb3_budget.buffers.group_rollout_buffer import GroupBufferMixin, GroupDictRolloutBuffer, GroupRolloutBuffer
from sb3_budget.callbacks.note_rows import NoteRows
from sb3_budget.core.groups import require_groups
from sb3_budget.policies.ensemble_actor_critic import (
    EnsembleActorCriticCnnPolicy,
    EnsembleActorCriticPolicy,
    EnsembleMultiInputActorCriticPolicy,
)
from sb3_budget.policies.entropy import entropies
from sb3_budget.vec_env.episode_control_vec_env import EpisodeControlVecEnv
from sb3_budget.vec_env.group_starts import GroupStarts, StartRule, seeded_start
from sb3_budget.vec_env.start_pool import StartPool

#: By whether advantages are of whole episodes, and observations a Dict.
BUFFERS: dict[tuple[bool, bool], type[RolloutBuffer]] = {
    (False, False): GroupRolloutBuffer,
    (False, True): GroupDictRolloutBuffer,
    (True, False): FinishedGroupRolloutBuffer,
    (True, True): FinishedGroupDictRolloutBuffer,
}


class GRPO(PPO):
    """
    Group Relative Policy Optimization (Shao et al., 2024, https://arxiv.org/abs/2402.03300) for control.

    ``group_size`` neighbouring slots are a group: the ``j``-th episodes of all its members begin in the same start, each
    with noise of its own. Members need not be in step, and no slot waits for another. What the members have in common
    beyond what the critic sees, such as hidden parameters that the start decides, is taken off the advantages.

    With the default ``advantage="residual"`` everything else is PPO, critic and bootstrap included, and a coefficient
    that is fitted in every rollout makes it PPO where groups explain nothing. It is made for environments whose starts
    decide something that observations do not show; on fully observed ones expect no gain.

    The environment is wrapped in :class:`~sb3_budget.EpisodeControlVecEnv` where it is not. In a chain of wrappers
    (``VecNormalize``) put it there yourself::

        GRPO("MlpPolicy", VecNormalize(EpisodeControlVecEnv(make_vec_env("Pendulum-v1", n_envs=64))), group_size=4)

    :param policy: As for PPO, and ``"EnsembleMlpPolicy"``, ``"EnsembleCnnPolicy"``, ``"EnsembleMultiInputPolicy"``.
    :param env: The environment; its number of slots is a multiple of ``group_size``.
    :param args: Further arguments of PPO.
    :param group_size: Slots per group. 1 is PPO.
    :param advantage: ``"residual"`` (default): the generalised advantage, less a fitted share of its mean over the
        other members at the same step of the same episode. ``"gae"``: less the mean of the group. ``"outcome"``: one
        number per episode, its return less the group's mean. ``"return_to_go"``: the discounted return from a step on,
        less its mean over the other members at the same step. The last two use no critic and train on whole episodes:
        those of a group are carried on from rollout to rollout until its last member has ended.
    :param scale: What advantages are divided by, see :class:`GroupBufferMixin
        <sb3_budget.buffers.group_rollout_buffer.GroupBufferMixin>`: the standard deviation of the ``"group"`` (default of
        ``"gae"`` and ``"outcome"``), of the ``"batch"`` (default of ``"return_to_go"``), or ``"none"``. ``"residual"``
        leaves it to PPO's ``normalize_advantage`` by default; every other setting replaces that.
    :param std_floor: Least divisor for ``scale="group"``, in units of the deviation of all groups together.
    :param zero_tolerance: Returns of a group, as the environment gave them, count as alike if they differ by no more, in
        units of the standard deviation of all returns. Advantages of such a group are exactly 0 with ``"outcome"`` and
        ``"return_to_go"``.
    :param remember_peers: With ``"residual"``: rows of so many earlier rollouts are peers too, for episodes of unequal
        lengths, whose members drift apart. 0 by default.
    :param loss_aggregation: With ``"outcome"`` and ``"return_to_go"``. ``"step"`` (default): the policy loss is a mean over
        steps. ``"episode"``: over episodes of the mean of each, which favours short good and long bad ones.
        ``"constant"``: the sum over steps by the number of steps of a rollout.
    :param clip_range_high: Upper clip range of the ratio (float or schedule); ``clip_range`` is the lower one then.
    :param importance_sampling_level: ``"step"`` (default), or ``"episode"``: one ratio per episode, for ``"outcome"``.
    :param beta: Coefficient of the divergence from a reference policy, which is the policy that the first training with it
        began with: a fresh one, or one that was loaded. It is saved with the model.
    :param reference_interval: The reference becomes the present policy after so many updates. Never by default.
    :param zero_variance_shaping: Strength of an advantage for groups whose returns are alike, by the policy's entropy,
        with ``"outcome"`` or ``"return_to_go"``. 0 by default. It needs an entropy that depends on the state: discrete
        actions or gSDE.
    :param good_return: With ``zero_variance_shaping``: a group did well if its mean return is at least so high, as the
        environment gives it.
    :param start_rule: ``(group, episode, rng) -> Start``, for starts other than by seed: options, snapshots, levels. It is
        saved with the model, and so must not hold what cannot be pickled. A :class:`~sb3_budget.StartPool` learns from
        the groups, and says which of them the update uses.
    :param rollout_buffer_kwargs: Keyword arguments of :class:`~sb3_budget.SelectiveRolloutBuffer`, e.g. ``early_weight``.
    :param kwargs: Further keyword arguments of PPO.
    :raises ValueError: if the number of slots does not fit, the environment cannot be wrapped where it must, or, when
        training starts, members of a group do not begin in the same observation.
    """

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {
        **PPO.policy_aliases,
        "EnsembleMlpPolicy": EnsembleActorCriticPolicy,
        "EnsembleCnnPolicy": EnsembleActorCriticCnnPolicy,
        "EnsembleMultiInputPolicy": EnsembleMultiInputActorCriticPolicy,
    }

    rollout_buffer: GroupRolloutBuffer

    def __init__(
        self,
        policy: str | type[ActorCriticPolicy],
        env: GymEnv | str,
        *args: Any,
        group_size: int = 4,
        advantage: str = "residual",
        scale: str | None = None,
        std_floor: float = 0.1,
        zero_tolerance: float = 0.0,
        remember_peers: int = 0,
        loss_aggregation: str = "step",
        clip_range_high: float | Schedule | None = None,
        importance_sampling_level: str = "step",
        beta: float = 0.0,
        reference_interval: int | None = None,
        zero_variance_shaping: float = 0.0,
        good_return: float | None = None,
        start_rule: StartRule | None = None,
        rollout_buffer_class: type[RolloutBuffer] | None = None,
        rollout_buffer_kwargs: dict[str, Any] | None = None,
        _init_setup_model: bool = True,
        **kwargs: Any,
    ):
        self.group_size = group_size
        self.advantage = advantage
        self.scale = scale
        self.std_floor = std_floor
        self.zero_tolerance = zero_tolerance
        self.remember_peers = remember_peers
        self.loss_aggregation = loss_aggregation
        self.clip_range_high: Any = clip_range_high
        self.importance_sampling_level = importance_sampling_level
        self.beta = beta
        self.reference_interval = reference_interval
        self.zero_variance_shaping = zero_variance_shaping
        self.good_return = good_return
        self.start_rule = start_rule
        self.reference_policy: ReferencePolicy | None = None
        self._starts: GroupStarts | None = None
        self._n_trainings = 0
        self._inert, self._untold = InertGroups(), UntoldGroups()
        given = set(self._buffer_arguments).intersection(rollout_buffer_kwargs or {})
        if given:
            raise ValueError(f"{' and '.join(sorted(given))} of the buffer are arguments of GRPO itself")
        require_sense(self, kwargs.get("normalize_advantage", False))
        super().__init__(policy, env, *args, **{**kwargs, "_init_setup_model": False})
        self.rollout_buffer_class = rollout_buffer_class
        self.rollout_buffer_kwargs = rollout_buffer_kwargs or {}
        if _init_setup_model:
            require_groups(self.n_envs, self.group_size)
            self._setup_model()

    @property
    def leaves_scale_to_ppo(self) -> bool:
        """Whether advantages are scaled by PPO's ``normalize_advantage``."""
        return self.advantage == "residual" and self.scale is None

    @property
    def _buffer_arguments(self) -> dict[str, Any]:
        names = ["group_size", "advantage", "scale", "std_floor", "zero_tolerance", "remember_peers"]
        if self.advantage in WHOLE_EPISODES:
            names.append("loss_aggregation")
        return {name: getattr(self, name) for name in names}

    @staticmethod
    def _wrap_env(env: GymEnv, verbose: int = 0, monitor_wrapper: bool = True) -> VecEnv:
        if not isinstance(env, VecEnv):
            base = PPO._wrap_env(env, verbose, monitor_wrapper).unwrapped
            assert isinstance(base, DummyVecEnv)
            env = base
        return PPO._wrap_env(controlled(env), verbose, monitor_wrapper)

    def set_env(self, env: GymEnv, force_reset: bool = True) -> None:
        super().set_env(env, force_reset)
        if self.seed is not None:
            self._control.seed_noise(self.seed)

    @property
    def _control(self) -> EpisodeControlVecEnv:
        control = unwrap_vec_wrapper(self.env, EpisodeControlVecEnv)  # type: ignore[arg-type]  # there is an env
        assert control is not None
        return control

    def _setup_model(self) -> None:
        whole = self.advantage in WHOLE_EPISODES
        own_class, own_arguments = self.rollout_buffer_class, self.rollout_buffer_kwargs
        buffer_class = self.rollout_buffer_class
        if buffer_class is None or buffer_class in BUFFERS.values():
            buffer_class = BUFFERS[whole, isinstance(self.observation_space, spaces.Dict)]
        if not issubclass(buffer_class, FinishedGroupBufferMixin if whole else GroupBufferMixin):
            kind = "FinishedGroupRolloutBuffer" if whole else "GroupRolloutBuffer"
            raise ValueError(
                f"rollout_buffer_class={buffer_class.__name__} knows no groups with advantage={self.advantage!r}: use {kind} "
                "or a subclass"
            )
        arguments = self._buffer_arguments
        if self.n_envs % self.group_size:
            # A model that is loaded with one env, to watch it, trains no groups.
            arguments["group_size"] = 1
        require_sense(self, False)
        if isinstance(self.start_rule, StartPool) and self.seed is not None:
            self.start_rule.follow_seed(self.seed)
        if not self.leaves_scale_to_ppo:
            self.normalize_advantage = False
        self.rollout_buffer_class, self.rollout_buffer_kwargs = buffer_class, {**own_arguments, **arguments}
        super()._setup_model()
        # What is saved is what was asked for: PPO.load of it has no groups.
        self.rollout_buffer_class, self.rollout_buffer_kwargs = own_class, own_arguments
        require_no_memory(self.policy)
        self.rollout_buffer.seed(self.seed)
        if self.clip_range_high is not None:
            self.clip_range_high = FloatSchedule(self.clip_range_high)
        if self.zero_variance_shaping > 0.0:
            require_entropy_of_states(self.policy)
        if self.beta == 0.0:
            self.reference_policy = None
        if self.reference_policy is not None:
            self.reference_policy.restore(self)

    def _setup_learn(
        self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        reset_num_timesteps: bool = True,
        tb_log_name: str = "run",
        progress_bar: bool = False,
    ) -> tuple[int, BaseCallback]:
        require_groups(self.n_envs, self.group_size)
        if self._control.episodic_lives:
            raise ValueError(
                "A start begins a whole game, so that with EpisodicLifeEnv no second life is ever played: make the env with "
                "wrapper_kwargs={'terminal_on_life_loss': False}"
            )
        if self.beta > 0.0 and self.reference_policy is None:
            self.reference_policy = ReferencePolicy(self)
        self._prepare_starts()
        resets = reset_num_timesteps or self._last_obs is None
        prepared = super()._setup_learn(total_timesteps, callback, reset_num_timesteps, tb_log_name, progress_bar)
        if resets:
            try:
                require_equal_starts(self._last_obs, self.group_size)
            except ValueError:
                self._last_obs = None
                raise
        else:
            # A callback that ends a training leaves Stable-Baselines3 with the marks of the step before.
            self._last_episode_starts = np.asarray(self._last_episode_starts, dtype=bool) & (self._control.ages == 0)
        # From the source: it leaves an end that the buffer has not seen, too.
        self.rollout_buffer.continue_from(self._control.ages - 1)
        return prepared

    def _prepare_starts(self) -> None:
        """Set the sampler of this training: the last one, or one that goes on from it where groups or rule are others now."""
        old, rule = self._starts, self.start_rule or seeded_start
        fill = self.advantage in WHOLE_EPISODES
        wanted = (self.n_envs, self.group_size, rule, fill)
        if old is None or (len(old.episodes), old.group_size, old.rule, old.fill) != wanted:
            seed = int(np.random.default_rng().integers(2**31)) if self.seed is None else self.seed
            first = 0 if old is None else int(old.episodes.max()) + 1
            self._starts = GroupStarts(self.n_envs, self.group_size, seed if old is None else old.seed, rule, first, fill)
            if old is not None:
                # Slots that are in the middle of an episode meet again at the next reset.
                self._last_obs = None
        assert self._starts is not None
        # A callback that chose starts before us may not have heard of the end of its training.
        self._starts.first_rule = None
        self._control.set_start_sampler(self._starts, owner="GRPO")

    def _init_callback(self, callback: MaybeCallback, progress_bar: bool = False) -> BaseCallback:
        prepared = super()._init_callback(callback, progress_bar)
        # A list of our own: the user's callbacks are initialised already, and theirs to keep.
        joined = CallbackList([NoteRows()])
        joined.init_callback(self)
        joined.callbacks.insert(0, prepared)
        return joined

    # ------------------------------------------------------------------ rollouts and updates

    def collect_rollouts(
        self, env: VecEnv, callback: BaseCallback, rollout_buffer: RolloutBuffer, n_rollout_steps: int
    ) -> bool:
        goes_on = super().collect_rollouts(env, callback, rollout_buffer, n_rollout_steps)
        if goes_on:
            self._take_outcomes()
        return goes_on

    def _take_outcomes(self) -> None:
        """Log what the groups look like, and shape and choose the rows of those that are finished."""
        buffer, statistics = self.rollout_buffer, self.rollout_buffer.statistics
        self.logger.record("budget/group_peers", statistics.mean_peers)
        if self.advantage == "residual":
            self.logger.record("budget/group_coefficient", statistics.coefficient)
            if self.group_size > 1:
                self._inert.watch(statistics.coefficient, statistics.mean_peers)
        if isinstance(buffer, FinishedGroupBufferMixin):
            self.logger.record("budget/row_age", buffer.row_age)
        if buffer.finished:
            self.logger.record("budget/reward_std", statistics.outcomes.reward_std)
            self.logger.record("budget/frac_reward_zero_std", statistics.outcomes.zero_variance)
        if isinstance(self.start_rule, StartPool):
            self._tell_pool(self.start_rule)
        if isinstance(buffer, FinishedGroupBufferMixin) and self.zero_variance_shaping > 0.0:
            assert self.good_return is not None
            buffer.shape_alike(partial(entropies, self.policy), self.zero_variance_shaping, self.good_return)

    def _tell_pool(self, pool: StartPool) -> None:
        """Let the pool learn from finished groups, and leave those out of the update that it does not use."""
        # Returns as the environment gave them. Those of a group that we cut short are not all known.
        finished = [group for group in self.rollout_buffer.finished if np.isfinite(group.raw_returns).all()]
        self._untold.watch(len(self.rollout_buffer.finished), len(finished))
        finished = [group for group in finished if pool.gave(group.group, group.episode)]
        groups = [(group.group, group.episode) for group in finished]
        used = pool.record([(*key, group.raw_returns) for key, group in zip(groups, finished, strict=True)])
        pool.forget(self.rollout_buffer.outcomes.oldest)
        self.rollout_buffer.leave_out(key for key, is_used in zip(groups, used, strict=True) if not is_used)
        for key, value in pool.log_values().items():
            self.logger.record(key, value)

    def train(self) -> None:
        """Update the policy with the rollout buffer; a rollout that finished no group changes nothing."""
        if self.rollout_buffer.empty:
            return
        if self.clip_range_high is None and self.reference_policy is None and self.importance_sampling_level == "step":
            super().train()
            return
        group_update.update(self)
        if self.reference_interval is not None and self.reference_policy is not None:
            self._n_trainings += 1
            if self._n_trainings % self.reference_interval == 0:
                self.reference_policy.follow(self)
