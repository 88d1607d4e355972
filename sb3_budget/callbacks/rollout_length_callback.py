"""The callback that changes the rollout length while training goes on."""

from __future__ import annotations

from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

from sb3_budget.buffers.selective_rollout_buffer import SelectiveBufferMixin
from sb3_budget.callbacks.progress import progress_remaining
from sb3_budget.callbacks.requirements import require_on_policy, require_top_level
from sb3_budget.core.gates import Schedule


class RolloutLengthCallback(BaseCallback):
    """
    Sets ``n_steps`` of an on-policy algorithm by a schedule, e.g. short rollouts early and longer ones later.

    The length changes between two rollouts. It needs a selective buffer, whose arrays follow at its next reset. Where a
    length would leave a last minibatch of one row, whose advantage cannot be normalised, the buffer deals rows to
    minibatches of nearly equal size instead.

    :param n_steps: Rollout length [steps] as a function of the progress remaining, from 1 to 0. Values are rounded
        and at least 1.
    :param verbose: Verbosity level.
    :raises ValueError: when training starts, if the algorithm or its buffer cannot change the length.
    """

    model: OnPolicyAlgorithm

    def __init__(self, n_steps: Schedule, verbose: int = 0):
        super().__init__(verbose)
        if not callable(n_steps):
            raise ValueError(f"n_steps={n_steps!r} must be a function of the progress remaining")
        self.n_steps = n_steps

    def _init_callback(self) -> None:
        require_on_policy(self)
        if not isinstance(self.model.rollout_buffer, SelectiveBufferMixin):
            raise ValueError(
                "RolloutLengthCallback needs a buffer that can be resized: rollout_buffer_class=SelectiveRolloutBuffer"
            )

    def _on_training_start(self) -> None:
        require_top_level(self)
        # The first rollout resets the buffer and reads n_steps only now.
        self._follow_schedule()

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        # train() still reads the present buffer; learn() reads n_steps when it makes the next call.
        self._follow_schedule()
        self.logger.record("budget/n_steps", self.model.n_steps)

    def _follow_schedule(self) -> None:
        length = max(1, round(self.n_steps(progress_remaining(self.model))))
        self.model.n_steps = length
        self.model.rollout_buffer.resize_at_reset(length)  # type: ignore[attr-defined]  # checked in _init_callback
