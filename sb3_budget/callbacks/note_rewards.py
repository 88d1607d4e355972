"""Tells a buffer of groups what rewards were before the critic completed them."""

from __future__ import annotations

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback

from sb3_budget.buffers.group_rollout_buffer import GroupBufferMixin

#: Ends that are the environment's own. Every other one cuts an episode short, and the critic speaks for the rest of it.
OWN_ENDS = ("terminated", "time_limit")


class NoteRewards(BaseCallback):
    """
    Stable-Baselines3 adds the critic's value of the last state to the reward of a truncated episode. To compare the
    returns of episodes, the environment's time limit is an end like others: its value would be the critic's opinion in
    what is to be the environment's. Whether returns are alike is a question for those that were not normalised, which are
    noted too. :class:`~sb3_budget.GRPO` adds this callback itself.
    """

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
        return True
