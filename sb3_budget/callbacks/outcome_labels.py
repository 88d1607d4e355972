"""What became of the episodes in which observations were seen."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from sb3_budget.callbacks.note_rows import OWN_ENDS

SuccessRule = Callable[[dict[str, Any]], bool]

#: Returns that the median is taken of, and how many there must be before anything is called a success.
RETURNS, LEAST_RETURNS = 200, 20
#: Observations of one episode that are kept as examples.
EXAMPLES = 256


def features(space: spaces.Space, observations: Any) -> NDArray[np.float32]:
    """
    :param space: Observation space of one slot.
    :param observations: A batch of observations.
    :return: The same as vectors, shape (n_envs, n_features); discrete observations one-hot.
    """
    if isinstance(space, spaces.Box):
        return np.asarray(observations, dtype=np.float32).reshape(len(observations), -1)
    if isinstance(space, spaces.Discrete):
        one_hot = np.zeros((len(observations), int(space.n)), dtype=np.float32)
        one_hot[np.arange(len(observations)), np.asarray(observations, dtype=np.int64) - int(space.start)] = 1.0
        return one_hot
    if isinstance(observations, dict):
        assert isinstance(space, spaces.Dict)
        return np.concatenate([features(part, observations[key]) for key, part in space.spaces.items()], axis=1)
    return np.stack([np.asarray(spaces.flatten(space, each), dtype=np.float32) for each in observations])


class Ended(NamedTuple):
    """
    :param examples: Observations of episodes that have ended, as vectors, shape (n, n_features).
    :param succeeded: Whether the episode of each succeeded, shape (n,).
    :param outcomes: Whether each episode succeeded, in order.
    """

    examples: NDArray[np.float32]
    succeeded: NDArray[np.bool_]
    outcomes: list[bool]


class OutcomeLabels:
    """
    Follows the episodes of all slots and says, when one ends, whether it succeeded.

    :param success: ``(info) -> bool``, or ``None`` for ``info["is_success"]`` and, without it, a return above the median
        of the latest, or the best of them, in an episode that was not cut short.
    """

    def __init__(self, success: SuccessRule | None):
        self.success = success
        self._returns: deque[float] = deque(maxlen=RETURNS)
        self.start(0)

    def start(self, n_envs: int) -> None:
        """
        :param n_envs: Number of slots, all of which are at the beginning of what is followed.
        """
        self._seen: list[list[NDArray[np.float32]]] = [[] for _ in range(n_envs)]
        self._strides = [1] * n_envs
        self._ages = [0] * n_envs

    def add(self, seen: NDArray[np.float32], dones: NDArray[np.bool_], infos: Any) -> Ended | None:
        """
        Add a step of all slots.

        :param seen: Observations before the step, as vectors, shape (n_envs, n_features).
        :param dones: Slots whose episode ended with it.
        :param infos: The slots' ``info``.
        :return: The episodes that ended, ``None`` where none did.
        """
        for slot, own in enumerate(self._seen):
            if self._ages[slot] % self._strides[slot] == 0:
                own.append(seen[slot])
                if len(own) > EXAMPLES:
                    # Every second one goes, and so does every second one that would come.
                    del own[1::2]
                    self._strides[slot] *= 2
            self._ages[slot] += 1
        ended = np.flatnonzero(dones).tolist()
        if not ended:
            return None
        outcomes = [self._succeeded(infos[slot]) for slot in ended]
        examples = np.stack([each for slot in ended for each in self._seen[slot]])
        lengths = [len(self._seen[slot]) for slot in ended]
        for slot in ended:
            self._seen[slot], self._strides[slot], self._ages[slot] = [], 1, 0
        return Ended(examples, np.repeat(outcomes, lengths), outcomes)

    def _succeeded(self, info: dict[str, Any]) -> bool:
        end = info["sb3_budget"]
        if self.success is None and "is_success" not in info and end["reason"] not in OWN_ENDS:
            # An episode that was cut short has a larger return than whole ones where rewards are negative.
            return False
        total = end["return"]
        known = len(self._returns) >= LEAST_RETURNS
        # Where most episodes reach the best return there is, that is the median too.
        best = known and min(self._returns) < max(self._returns) <= total
        above = best or (known and total > float(np.median(self._returns)))
        self._returns.append(total)
        if self.success is not None:
            return bool(self.success(info))
        return bool(info["is_success"]) if "is_success" in info else above
