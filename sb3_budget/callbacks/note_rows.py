"""Tells a buffer of groups what Stable-Baselines3 does not say of a row."""

from __future__ import annotations

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import unwrap_vec_wrapper

from sb3_budget.buffers.group_rollout_buffer import GroupBufferMixin
from sb3_budget.vec_env.episode_control_vec_env import EpisodeControlVecEnv
from sb3_budget.vec_env.group_starts import GroupStarts

#: Ends that are the environment's own. Every other one cuts an episode short, and the critic speaks for the rest of it.
OWN_ENDS = ("terminated", "time_limit")


class NoteRows(BaseCallback):
    """
    Stable-Baselines3 adds the critic's value of the last state to the reward of a truncated episode. To compare the
    returns of episodes, the environment's time limit is an end like others: its value would be the critic's opinion in
    what is to be the environment's. Whether returns are alike is a question for those that were not normalised, which are
    noted too. So are the start that the row's episode began in, and the member that plays it.
    :class:`~sb3_budget.GRPO` adds this callback itself.
    """

    def _on_training_start(self) -> None:
        control = unwrap_vec_wrapper(self.training_env, EpisodeControlVecEnv)
        assert control is not None and isinstance(control.start_sampler, GroupStarts)
        self._starts = control.start_sampler

    def _on_step(self) -> bool:
        buffer = self.locals["rollout_buffer"]
        assert isinstance(buffer, GroupBufferMixin)
        rewards, infos = self.locals["rewards"].astype(np.float32), self.locals["infos"]
        raw_returns = np.full(len(rewards), np.nan)
        for slot in np.flatnonzero(self.locals["dones"]).tolist():
            end = infos[slot]["sb3_budget"]
            if end["reason"] in OWN_ENDS:
                raw_returns[slot] = end["return"]
            else:
                rewards[slot] = np.nan
        buffer.note_rewards(rewards, raw_returns)
        buffer.note_episodes(*self._starts.before(self.locals["dones"]))
        return True
