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
    what is to be the environment's. :class:`~sb3_budget.GRPO` adds this callback itself.
    """

    def _on_step(self) -> bool:
        buffer = self.locals["rollout_buffer"]
        assert isinstance(buffer, GroupBufferMixin)
        rewards, infos = self.locals["rewards"].astype(np.float32), self.locals["infos"]
        for slot in np.flatnonzero(self.locals["dones"]).tolist():
            if infos[slot]["sb3_budget"]["reason"] not in OWN_ENDS:
                rewards[slot] = np.nan
        buffer.note_rewards(rewards)
        return True
