"""The entropy of a policy in many states."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch as th
from numpy.typing import NDArray
from stable_baselines3.common.policies import ActorCriticPolicy

#: Rows that go through the policy at once.
BATCH = 4096


def entropies(policy: ActorCriticPolicy, observations: Any) -> NDArray[np.float32]:
    """
    :param policy: A policy whose distribution's entropy has a closed form.
    :param observations: Observations of n rows, an array or a dict of them.
    :return: Entropy in each of them, shape (n,).
    """
    parts = []
    first = next(iter(observations.values())) if isinstance(observations, dict) else observations
    for begin in range(0, len(first), BATCH):
        rows = slice(begin, begin + BATCH)
        part = (
            {key: value[rows] for key, value in observations.items()} if isinstance(observations, dict) else observations[rows]
        )
        tensors, _ = policy.obs_to_tensor(part)
        with th.no_grad():
            entropy = policy.get_distribution(tensors).entropy()
        assert entropy is not None
        parts.append(entropy.numpy(force=True))
    return np.concatenate(parts)
