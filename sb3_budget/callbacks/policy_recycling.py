"""Extra steps of the actor on pooled transitions that are young enough."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

from sb3_budget.callbacks.transition_reader import TransitionReader
from sb3_budget.core.transition_pool import Fields, TransitionPool
from sb3_budget.policies.policy_regression import PolicyRegression


class PolicyRecycling:
    """
    Keeps what the actor's objective needs beside each pooled transition: the log-probability of its action and its advantage,
    both of the rollout in which it happened last.

    :param model: The algorithm.
    :param reader: What makes tensors of columns.
    :param clip_range: Ratios count up to so far from 1.
    :param max_policy_age: Rollouts that a transition takes part for after it happened.
    :param max_grad_norm: Largest norm of a gradient.
    :raises ValueError: if actions are masked.
    """

    #: Columns of the pool that are added.
    FIELDS: ClassVar[Fields] = {"log_probs": ((), np.float32), "advantages": ((), np.float32)}

    def __init__(
        self,
        model: OnPolicyAlgorithm,
        reader: TransitionReader,
        clip_range: float,
        max_policy_age: int,
        max_grad_norm: float | None,
    ):
        if hasattr(model.rollout_buffer, "mask_dims"):
            raise ValueError(f"policy_recycling knows no masks of actions, which {type(model).__name__} has")
        self._reader, self.max_policy_age = reader, max_policy_age
        self._regression = PolicyRegression(model.policy, clip_range, max_grad_norm)
        #: Ratios of the latest extra steps, shape (n,).
        self.ratios: NDArray[np.float32] | None = None

    def columns(self, found: dict[str, Any]) -> dict[str, NDArray[np.float32]]:
        """
        :param found: Local variables of ``collect_rollouts`` after a step.
        :return: The columns of the step as far as they are known.
        """
        log_probs = found["log_probs"].numpy(force=True)
        return {"log_probs": log_probs, "advantages": np.full(len(log_probs), np.nan, dtype=np.float32)}

    def note(self, pool: TransitionPool, keys: list[list[Hashable]], buffer: RolloutBuffer) -> None:
        """
        :param pool: The pool.
        :param keys: Keys of the rollout's transitions, by step.
        :param buffer: The full rollout.
        """
        for step, of_step in enumerate(keys):
            # The action, too: a key knows it only as it was clipped.
            columns = {
                "log_probs": buffer.log_probs[step],
                "advantages": buffer.advantages[step],
                "policy_actions": buffer.actions[step].reshape(len(of_step), -1),
            }
            pool.write(of_step, columns)

    def train(
        self, pool: TransitionPool, version: int, n_updates: int, batch_size: int, rate: float, rng: np.random.Generator
    ) -> None:
        """
        :param pool: The pool.
        :param version: Version of the present policy.
        :param n_updates: Number of steps.
        :param batch_size: Rows of a step.
        :param rate: Learning rate.
        :param rng: What draws rows.
        """
        known = np.isfinite(pool.take(np.arange(len(pool)), ["advantages"])["advantages"])
        young = np.flatnonzero(known & (pool.version_ages(version) <= self.max_policy_age))
        self.ratios = None
        if len(young) < 2 or batch_size < 2:
            return
        ratios = []
        for _ in range(n_updates):
            columns = pool.take(rng.choice(young, size=batch_size))
            batch = self._reader.batch(columns)
            log_probs, advantages = (batch.rewards.new_tensor(columns[name]) for name in ("log_probs", "advantages"))
            found = self._regression.step(batch.observations, batch.actions, log_probs, advantages, rate)
            ratios.append(found.numpy(force=True))
        self.ratios = np.concatenate(ratios)

    def state_dict(self) -> dict[str, Any]:
        """:return: State of the optimizer."""
        return self._regression.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """
        :param state: What :meth:`state_dict` returned.
        """
        self._regression.load_state_dict(state)
