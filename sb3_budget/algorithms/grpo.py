"""PPO whose advantages are relative to a group of slots with the same starts."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.policies import ActorCriticPolicy, BasePolicy
from stable_baselines3.common.type_aliases import GymEnv, MaybeCallback
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecEnvWrapper, unwrap_vec_wrapper

from sb3_budget.buffers.group_rollout_buffer import GroupBufferMixin, GroupDictRolloutBuffer, GroupRolloutBuffer
from sb3_budget.core.groups import require_groups
from sb3_budget.policies.ensemble_actor_critic import (
    EnsembleActorCriticCnnPolicy,
    EnsembleActorCriticPolicy,
    EnsembleMultiInputActorCriticPolicy,
)
from sb3_budget.vec_env.episode_control_vec_env import EpisodeControlVecEnv
from sb3_budget.vec_env.group_starts import GroupStarts, StartRule, seeded_start
from sb3_budget.vec_env.staggered_reset_vec_env import StaggeredResetVecEnv


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
        other members at the same step of the same episode. ``"gae"``: normalised within each group.
    :param start_rule: ``(group, episode, rng) -> Start``, for starts other than by seed: options, snapshots, levels. It is
        saved with the model, and so must not hold what cannot be pickled.
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
        start_rule: StartRule | None = None,
        rollout_buffer_class: type[RolloutBuffer] | None = None,
        rollout_buffer_kwargs: dict[str, Any] | None = None,
        _init_setup_model: bool = True,
        **kwargs: Any,
    ):
        given = {"group_size", "advantage"}.intersection(rollout_buffer_kwargs or {})
        if given:
            raise ValueError(f"{' and '.join(sorted(given))} of the buffer are arguments of GRPO itself")
        if rollout_buffer_class is not None and not issubclass(rollout_buffer_class, GroupBufferMixin):
            raise ValueError(
                f"rollout_buffer_class={rollout_buffer_class.__name__} knows no groups: use GroupRolloutBuffer or a subclass"
            )
        self.group_size = group_size
        self.advantage = advantage
        self.start_rule = start_rule
        self._starts: GroupStarts | None = None
        super().__init__(policy, env, *args, **{**kwargs, "_init_setup_model": False})
        self.rollout_buffer_class = rollout_buffer_class
        self.rollout_buffer_kwargs = rollout_buffer_kwargs or {}
        if _init_setup_model:
            require_groups(self.n_envs, self.group_size)
            self._setup_model()

    @staticmethod
    def _wrap_env(env: GymEnv, verbose: int = 0, monitor_wrapper: bool = True) -> VecEnv:
        if not isinstance(env, VecEnv):
            base = PPO._wrap_env(env, verbose, monitor_wrapper).unwrapped
            assert isinstance(base, DummyVecEnv)
            env = base
        control = unwrap_vec_wrapper(env, EpisodeControlVecEnv)
        if control is None and isinstance(env, VecEnvWrapper):
            raise ValueError(
                "GRPO decides where episodes start, which EpisodeControlVecEnv does directly on the base VecEnv: write "
                f"{type(env).__name__}(EpisodeControlVecEnv(venv))"
            )
        if isinstance(control, StaggeredResetVecEnv):
            raise ValueError(
                "Members of a group begin together, and StaggeredResetVecEnv shifts slots: use EpisodeControlVecEnv"
            )
        if control is not None and not control.enabled:
            raise ValueError("GRPO decides where episodes start, but its EpisodeControlVecEnv has enabled=False")
        return PPO._wrap_env(env if control is not None else EpisodeControlVecEnv(env), verbose, monitor_wrapper)

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
        if self.rollout_buffer_class is None:
            is_dict = isinstance(self.observation_space, spaces.Dict)
            self.rollout_buffer_class = GroupDictRolloutBuffer if is_dict else GroupRolloutBuffer
        # A model that is loaded with one env, to watch it, trains no groups.
        group_size = 1 if self.n_envs % self.group_size else self.group_size
        self.rollout_buffer_kwargs = {
            **self.rollout_buffer_kwargs,
            "group_size": group_size,
            "advantage": self.advantage,
        }
        super()._setup_model()
        self.rollout_buffer.seed(self.seed)

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
        starts = self._prepare_starts()
        resets = reset_num_timesteps or self._last_obs is None
        if resets:
            starts.align()
        prepared = super()._setup_learn(total_timesteps, callback, reset_num_timesteps, tb_log_name, progress_bar)
        if resets:
            self._require_equal_starts()
        # From the source: a callback that ends a training leaves an end that the buffer has not seen.
        begin = np.asarray(self._last_episode_starts, dtype=np.int64)
        self.rollout_buffer.continue_from(starts.episodes - 1 - begin, self._control.ages - 1)
        return prepared

    def _prepare_starts(self) -> GroupStarts:
        """The sampler of this training: the last one, or one that goes on from it where groups or rule are others now."""
        old, rule = self._starts, self.start_rule or seeded_start
        if old is None or (len(old.episodes), old.group_size, old.rule) != (self.n_envs, self.group_size, rule):
            seed = int(np.random.default_rng().integers(2**31)) if self.seed is None else self.seed
            first = 0 if old is None else int(old.episodes.max())
            self._starts = GroupStarts(self.n_envs, self.group_size, seed if old is None else old.seed, rule, first)
            if old is not None:
                # Slots that are in the middle of an episode meet again at the next reset.
                self._last_obs = None
        assert self._starts is not None
        self._control.set_start_sampler(self._starts, owner="GRPO")
        return self._starts

    def _require_equal_starts(self) -> None:
        """Once, at the first observations: an environment that does not honour seeds makes groups of strangers."""
        observations = self._last_obs if isinstance(self._last_obs, dict) else {"": self._last_obs}
        for first in observations.values():
            values = np.asarray(first)
            members = values.reshape(-1, self.group_size, *values.shape[1:])
            if not (members == members[:, :1]).all():
                self._last_obs = None
                raise ValueError(
                    "Members of a group do not begin in the same observation: the environment does not honour "
                    "reset(seed=...), or the start_rule's options. Seed everything that reset() draws from "
                    "self.np_random, or give starts by snapshot"
                )

    def collect_rollouts(
        self, env: VecEnv, callback: BaseCallback, rollout_buffer: RolloutBuffer, n_rollout_steps: int
    ) -> bool:
        goes_on = super().collect_rollouts(env, callback, rollout_buffer, n_rollout_steps)
        if goes_on:
            statistics = self.rollout_buffer.statistics
            self.logger.record("budget/group_peers", statistics.mean_peers)
            if self.advantage == "residual":
                self.logger.record("budget/group_coefficient", statistics.coefficient)
        return goes_on
