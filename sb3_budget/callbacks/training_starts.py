"""A start sampler that decides the starts of one training, and of nothing else."""

from __future__ import annotations

import numpy as np
from stable_baselines3.common.base_class import BaseAlgorithm

from sb3_budget.callbacks.progress import present_training
from sb3_budget.vec_env.episode_control_vec_env import EpisodeControlVecEnv
from sb3_budget.vec_env.group_starts import GroupStarts
from sb3_budget.vec_env.start import Start, StartSampler


class TrainingStarts:
    """
    Puts a start sampler in place when a training begins, and lets it speak only there.

    A training that is broken off, as by Ctrl-C, does not tell its callbacks. Their sampler stays in the environment, which
    asks it in whatever comes next: an evaluation, or a training without them. Those begin where the environment does.

    :param model: The algorithm, about to train.
    :param control: Its environment.
    :param sampler: Chooses starts; of a group of :class:`~sb3_budget.GRPO` it is asked once, with the number of the group.
    :param owner: Name of who does.
    :raises ValueError: if starts of this training are chosen already.
    """

    def __init__(self, model: BaseAlgorithm, control: EpisodeControlVecEnv, sampler: StartSampler, owner: str):
        self.model, self._control, self._sampler, self._owner = model, control, sampler, owner
        self._is_present = present_training(model)
        self.step()
        starts = control.start_sampler
        rule = starts.first_rule if isinstance(starts, GroupStarts) else starts
        other = getattr(rule, "__self__", rule)
        if isinstance(other, TrainingStarts) and other.model is model and other.is_present:
            raise ValueError(f"A second {owner} would undo the first one's choice of starts: pass one to learn()")
        if isinstance(starts, GroupStarts):
            # All members of a group go where one draw sends them.
            starts.first_rule = self.draw_for_group
        else:
            control.set_start_sampler(self, owner)

    @property
    def is_present(self) -> bool:
        """Whether no other training of the model has begun since."""
        return self._is_present()

    def step(self) -> None:
        """Note a step of the training, once the algorithm has counted it."""
        self._goes_on, self._apart = True, self._control.ledger.learning_steps - self.model.num_timesteps

    def __call__(self, slot: int) -> Start | None:
        """
        :param slot: A slot that is reset.
        :return: Where it begins, ``None`` for the environment's own start.
        """
        # When a step of the training ends an episode, the environment has counted it, and the algorithm has not yet.
        apart = self._control.ledger.learning_steps - self.model.num_timesteps
        self._goes_on &= self.is_present and apart == self._apart + self._control.num_envs
        return self._sampler(slot) if self._goes_on else None

    def draw_for_group(self, group: int, _episode: int, _rng: np.random.Generator) -> Start | None:
        """
        :param group: A group whose next episodes begin.
        :return: Where they do, ``None`` for where they would without this.
        """
        return self(group)

    def remove(self) -> None:
        """Starts are the environment's own again, or those of groups."""
        starts = self._control.start_sampler
        if isinstance(starts, GroupStarts):
            starts.first_rule = None
        else:
            self._control.set_start_sampler(None, self._owner)
