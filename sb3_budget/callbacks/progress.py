"""How far the training is, whether it is still the same, and whether something is due again."""

from __future__ import annotations

from collections.abc import Callable

from stable_baselines3.common.base_class import BaseAlgorithm


def progress_remaining(model: BaseAlgorithm) -> float:
    """
    Stable-Baselines3's own is that of before the last rollout while a rollout is collected, and in the first one that of the
    end of the training before. This is its formula at the present step.

    :param model: The algorithm.
    :return: Its progress remaining, in [0, 1].
    """
    return min(1.0, max(0.0, 1.0 - model.num_timesteps / max(1, model._total_timesteps)))


class Every:
    """
    Says when something is due that happens every so many steps, also where a training is one of many short ones.

    :param n_steps: Steps between two times.
    """

    def __init__(self, n_steps: int):
        self.n_steps = n_steps
        self._next = n_steps
        self._latest: int | None = None

    def begin(self, num_timesteps: int, at_once: bool = False) -> None:
        """
        To be called when a training starts. One that counts on from the last keeps what is due.

        :param num_timesteps: The model's steps so far.
        :param at_once: Whether it is due as soon as a training counts on from the last.
        """
        if self._latest is None or num_timesteps < self._latest:
            self._next = num_timesteps + self.n_steps
        elif at_once:
            self._next = num_timesteps
        self._latest = num_timesteps

    def is_due(self, num_timesteps: int) -> bool:
        """
        :param num_timesteps: The model's steps so far.
        :return: Whether it is due. It is then due again after as many steps.
        """
        self._latest = num_timesteps
        if num_timesteps < self._next:
            return False
        self._next = num_timesteps + self.n_steps
        return True


def present_training(model: BaseAlgorithm) -> Callable[[], bool]:
    """
    Stable-Baselines3 does not tell callbacks of a training that is broken off, as by Ctrl-C. What they have left in place must
    find out by itself that another one has begun, which may have other callbacks or none.

    :param model: The algorithm, in a training or about to begin one.
    :return: Whether no other training of the model has begun since.
    """
    training = model.start_time
    return lambda: model.start_time == training
