"""Single transitions of an on-policy algorithm, as the environment gave them and as the policy sees them."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.utils import obs_as_tensor
from stable_baselines3.common.vec_env import VecEnvWrapper

from sb3_budget.callbacks.original_rewards import original_rewards
from sb3_budget.core.transition_fields import columns_of, field, part_of
from sb3_budget.core.transition_pool import Fields
from sb3_budget.policies.critic_regression import Transitions
from sb3_budget.vec_env.observations import write_observation


class TransitionReader:
    """
    Reads steps while they are collected. What it keeps is raw, before ``VecNormalize``, whose statistics move: a state that
    comes again looks the same. What it hands to the policy is normalised as the present statistics say.

    :param model: The algorithm.
    :param before: What read the training before, if any. A callback that ends a training leaves Stable-Baselines3 with the
        observations of before its last step.
    :raises ValueError: if a wrapper above ``VecNormalize`` changes observations: raw ones would not be the policy's.
    """

    def __init__(self, model: OnPolicyAlgorithm, before: TransitionReader | None = None):
        self._model = model
        self._normalize = model.get_vec_normalize_env()
        layer: Any = model.get_env()
        while self._normalize is not None and layer is not self._normalize:
            assert isinstance(layer, VecEnvWrapper)
            if layer.observation_space != layer.venv.observation_space:
                raise ValueError(
                    f"{type(layer).__name__} changes observations after VecNormalize: write "
                    f"VecNormalize({type(layer).__name__}(venv)) instead"
                )
            layer = layer.venv
        #: Raw observations after the latest step, and what the algorithm held to be the latest ones before it.
        self._last: Any = None if before is None else before._last
        self._began_in: Any = None if before is None else before._began_in
        #: Columns of what :meth:`read` returns.
        self.fields = _fields(model.observation_space, model.action_space)

    def start(self) -> None:
        """To be called before the first step of a training."""
        if self._began_in is None or self._model._last_obs is not self._began_in:
            self._last = self._raw(self._model._last_obs)

    def read(self, found: dict[str, Any]) -> tuple[dict[str, NDArray[Any]], list[bool]]:
        """
        :param found: Local variables of ``collect_rollouts`` after a step, when callbacks hear of it.
        :return: Columns of the step, one row per slot; and whether each slot's episode was cut at it.
        """
        infos, dones = found["infos"], found["dones"]
        last, self._last = self._last, self._raw(found["new_obs"])
        self._began_in = self._model._last_obs
        following = deepcopy(self._last) if np.any(dones) else self._last
        cut = [bool(done) and _was_cut(info) for done, info in zip(dones, infos, strict=True)]
        for slot in np.flatnonzero(dones).tolist():
            end = infos[slot].get("terminal_observation")
            if end is not None:
                write_observation(following, slot, end if self._normalize is None else self._normalize.unnormalize_obs(end))
        rewards = original_rewards(found["rewards"], self._normalize)
        columns = {
            "actions": found.get("clipped_actions", found["actions"]),
            "policy_actions": found["actions"],
            "rewards": rewards,
            "dones": [done and not was_cut for done, was_cut in zip(dones, cut, strict=True)],
            **columns_of("observations", last),
            **columns_of("next_observations", following),
        }
        n = len(dones)
        # A copy: collect_rollouts adds the value of what was cut to the rewards in place.
        return {
            name: np.array(columns[name], dtype=dtype).reshape(n, *shape) for name, (shape, dtype) in self.fields.items()
        }, cut

    def batch(self, columns: dict[str, NDArray[Any]]) -> Transitions:
        """
        :param columns: Columns of n transitions.
        :return: The same as the policy sees them, on its device.
        """
        rewards = columns["rewards"]
        if self._normalize is not None:
            rewards = self._normalize.normalize_reward(rewards)
        actions = self._tensor(columns["policy_actions"])
        if isinstance(self._model.action_space, spaces.MultiBinary):
            actions = actions.float()
        return Transitions(
            self.observations(columns, "observations"),
            actions.flatten() if isinstance(self._model.action_space, spaces.Discrete) else actions,
            self._tensor(rewards.astype(np.float32)),
            self._tensor(columns["dones"]),
            self.observations(columns, "next_observations"),
        )

    def observations(self, columns: dict[str, NDArray[Any]], part: str) -> Any:
        """
        :param columns: Columns of n transitions.
        :param part: ``"observations"`` or ``"next_observations"``.
        :return: Those observations as the policy sees them.
        """
        raw = part_of(columns, part)
        return obs_as_tensor(raw if self._normalize is None else self._normalize.normalize_obs(raw), self._model.device)

    def _raw(self, observations: Any) -> Any:
        return observations if self._normalize is None else self._normalize.get_original_obs()

    def _tensor(self, array: NDArray[Any]) -> th.Tensor:
        return th.as_tensor(array, device=self._model.device)


def _fields(space: spaces.Space, actions: spaces.Space) -> Fields:
    parts = space.spaces if isinstance(space, spaces.Dict) else {"": space}
    width = spaces.flatdim(actions) if isinstance(actions, spaces.Box) else int(np.prod(actions.shape or (1,)))
    kind = np.float32 if isinstance(actions, spaces.Box) else np.int64
    columns: dict[str, Any] = {name: ((width,), kind) for name in ("actions", "policy_actions")}
    columns |= {"rewards": ((), np.float32), "dones": ((), np.float32)}
    observations = {entry: (part.shape or (), part.dtype) for entry, part in parts.items()}
    return columns | {
        field(name, entry): shape for name in ("observations", "next_observations") for entry, shape in observations.items()
    }


def _was_cut(info: dict[str, Any]) -> bool:
    """By whatever ended the episode; a callback may have hidden the truncation from the bootstrap."""
    if "sb3_budget" in info:
        return bool(info["sb3_budget"]["reason"] != "terminated")
    return bool(info.get("TimeLimit.truncated", False))
