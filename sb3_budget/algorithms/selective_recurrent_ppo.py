"""RecurrentPPO with an argument for the rollout buffer."""

from __future__ import annotations

from typing import Any

from gymnasium import spaces
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.type_aliases import GymEnv

try:
    from sb3_contrib import RecurrentPPO
    from sb3_contrib.common.recurrent.buffers import RecurrentDictRolloutBuffer, RecurrentRolloutBuffer
    from sb3_contrib.common.recurrent.policies import RecurrentActorCriticPolicy
except ImportError as error:
    raise ImportError("SelectiveRecurrentPPO needs sb3-contrib: pip install 'sb3-budget[contrib]'") from error

from sb3_budget.buffers.selective_recurrent_buffer import (
    SelectiveRecurrentDictRolloutBuffer,
    SelectiveRecurrentRolloutBuffer,
)


class SelectiveRecurrentPPO(RecurrentPPO):
    """
    ``RecurrentPPO`` on a weighted rollout buffer, which the original has no argument for.

    With equal weights it is RecurrentPPO, bit for bit.

    :param policy: Policy, e.g. ``"MlpLstmPolicy"``.
    :param env: Environment.
    :param args: Further arguments of RecurrentPPO.
    :param rollout_buffer_class: Buffer class, a subclass of one of sb3-contrib's recurrent buffers. By default
        :class:`~sb3_budget.SelectiveRecurrentRolloutBuffer`, or its ``Dict`` sibling for ``Dict`` observations.
    :param rollout_buffer_kwargs: Keyword arguments of the buffer, e.g. ``dict(early_weight=0.5)``.
    :param kwargs: Further keyword arguments of RecurrentPPO.
    :raises ValueError: if the buffer class is not a recurrent one.
    """

    def __init__(
        self,
        policy: str | type[RecurrentActorCriticPolicy],
        env: GymEnv | str,
        *args: Any,
        rollout_buffer_class: type[RolloutBuffer] | None = None,
        rollout_buffer_kwargs: dict[str, Any] | None = None,
        _init_setup_model: bool = True,
        **kwargs: Any,
    ):
        recurrent = (RecurrentRolloutBuffer, RecurrentDictRolloutBuffer)
        if rollout_buffer_class is not None and not issubclass(rollout_buffer_class, recurrent):
            raise ValueError(
                f"rollout_buffer_class={rollout_buffer_class.__name__} does not hold hidden states: use a subclass of "
                "RecurrentRolloutBuffer or RecurrentDictRolloutBuffer, such as SelectiveRecurrentRolloutBuffer"
            )
        super().__init__(policy, env, *args, **{**kwargs, "_init_setup_model": False})
        self.rollout_buffer_class = rollout_buffer_class
        self.rollout_buffer_kwargs = rollout_buffer_kwargs or {}
        if _init_setup_model:
            self._setup_model()

    def _setup_model(self) -> None:
        super()._setup_model()
        buffer_class: Any = self.rollout_buffer_class
        if buffer_class is None:
            is_dict = isinstance(self.observation_space, spaces.Dict)
            buffer_class = SelectiveRecurrentDictRolloutBuffer if is_dict else SelectiveRecurrentRolloutBuffer
        stock: Any = self.rollout_buffer
        self.rollout_buffer = buffer_class(
            self.n_steps,
            self.observation_space,
            self.action_space,
            stock.hidden_state_shape,
            self.device,
            gamma=self.gamma,
            gae_lambda=self.gae_lambda,
            n_envs=self.n_envs,
            **self.rollout_buffer_kwargs,
        )
