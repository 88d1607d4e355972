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
from sb3_budget.policies.ensemble_actor_critic import (
    EnsembleActorCriticCnnPolicy,
    EnsembleActorCriticPolicy,
    EnsembleMultiInputActorCriticPolicy,
)
from sb3_budget.vec_env.episode_control_vec_env import EpisodeControlVecEnv
from sb3_budget.vec_env.group_starts import GroupStarts, StartRule


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
    :param start_rule: ``(group, episode, rng) -> Start``, for starts other than by seed: options, snapshots, levels.
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
        self.rollout_buffer_kwargs = {
            **(rollout_buffer_kwargs or {}),
            "group_size": group_size,
            "advantage": advantage,
        }
        if _init_setup_model:
            self._setup_model()

    @staticmethod
    def _wrap_env(env: GymEnv, verbose: int = 0, monitor_wrapper: bool = True) -> VecEnv:
        if isinstance(env, VecEnv):
            if unwrap_vec_wrapper(env, EpisodeControlVecEnv) is None:
                if isinstance(env, VecEnvWrapper):
                    raise ValueError(
                        "GRPO decides where episodes start, which EpisodeControlVecEnv does directly on the base VecEnv: "
                        f"write {type(env).__name__}(EpisodeControlVecEnv(venv))"
                    )
                env = EpisodeControlVecEnv(env)
            return PPO._wrap_env(env, verbose, monitor_wrapper)
        wrapped = PPO._wrap_env(env, verbose, monitor_wrapper)
        base = wrapped.unwrapped
        assert isinstance(base, DummyVecEnv)
        return PPO._wrap_env(EpisodeControlVecEnv(base), verbose, monitor_wrapper)

    def _setup_model(self) -> None:
        if self.rollout_buffer_class is None:
            is_dict = isinstance(self.observation_space, spaces.Dict)
            self.rollout_buffer_class = GroupDictRolloutBuffer if is_dict else GroupRolloutBuffer
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
        control = unwrap_vec_wrapper(self.env, EpisodeControlVecEnv)  # type: ignore[arg-type]  # there is an env
        assert control is not None
        if self._starts is None:
            seed = int(np.random.default_rng().integers(2**31)) if self.seed is None else self.seed
            self._starts = GroupStarts(self.n_envs, self.group_size, seed, self.start_rule)
        control.set_start_sampler(self._starts, owner="GRPO")
        resets = reset_num_timesteps or self._last_obs is None
        if resets:
            self._starts.align()
            self.rollout_buffer.align()
        prepared = super()._setup_learn(total_timesteps, callback, reset_num_timesteps, tb_log_name, progress_bar)
        if resets:
            self._require_equal_starts()
        return prepared

    def _require_equal_starts(self) -> None:
        """Once, at the first observations: an environment that does not honour seeds makes groups of strangers."""
        observations = self._last_obs if isinstance(self._last_obs, dict) else {"": self._last_obs}
        for first in observations.values():
            values = np.asarray(first)
            members = values.reshape(-1, self.group_size, *values.shape[1:])
            if not (members == members[:, :1]).all():
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
