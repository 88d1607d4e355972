"""A small network that predicts whether an episode will succeed."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch as th
from numpy.typing import NDArray
from torch import nn

from sb3_budget.core.cells import usable_scale

#: Standardised observations are clipped here.
FARTHEST = np.float32(10.0)
#: Larger than usual: there is one minibatch for 64 steps, and the policy whose successes it follows changes quickly.
LEARNING_RATE = 3e-3


class SuccessPredictor:
    """
    The chance that an episode which is at an observation succeeds, by logistic regression on what became of earlier ones.

    Observations are flat vectors. Before it predicts, :meth:`observe` shows it their scale, and :meth:`freeze` ends that.
    They are standardised, and clipped far out: of a one-hot observation the rare ones count for more, and what has not
    varied yet is no outlier when it does.

    :param n_features: Length of an observation.
    :param memory: Number of examples that are kept, the latest ones: what succeeded under an older policy says little.
    :param batch_size: Size of a minibatch.
    :param seed: Seed of the weights and of the minibatches.
    :param device: Device of the network.
    """

    def __init__(
        self,
        n_features: int,
        memory: int = 5_000,
        batch_size: int = 256,
        seed: int | None = None,
        device: th.device | str = "cpu",
    ):
        self.batch_size = batch_size
        self._device = th.device(device)
        self._rng = np.random.default_rng(seed)
        generator = th.Generator().manual_seed(int(self._rng.integers(2**31)))
        # Weights come from a generator of our own: the global one is the algorithm's.
        layers = [nn.utils.skip_init(nn.Linear, n_features, 64), nn.utils.skip_init(nn.Linear, 64, 1)]
        for layer in layers:
            nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu", generator=generator)
            nn.init.zeros_(layer.bias)
        self._network = nn.Sequential(layers[0], nn.ReLU(), layers[1]).to(self._device)
        self._optimizer = th.optim.Adam(self._network.parameters(), lr=LEARNING_RATE)
        self._observations = np.zeros((memory, n_features), dtype=np.float32)
        self._labels = np.zeros(memory, dtype=np.float32)
        self._next, self._size = 0, 0
        self._count, self._mean, self._squares = 0, np.zeros(n_features), np.zeros(n_features)
        self._scale: tuple[NDArray[np.float32], NDArray[np.float32]] | None = None
        #: Mean squared difference of prediction and outcome of what was added last, before it was trained on (Brier).
        self.brier_score = np.nan

    def __len__(self) -> int:
        return self._size

    def observe(self, observations: NDArray[Any]) -> None:
        """
        :param observations: Observations, shape (n, n_features), for their scale.
        """
        given = np.asarray(observations, dtype=np.float64)
        total = self._count + len(given)
        shift = given.mean(axis=0) - self._mean
        self._squares += given.var(axis=0) * len(given) + shift**2 * self._count * len(given) / total
        self._mean += shift * len(given) / total
        self._count = total

    def freeze(self) -> None:
        """Keep the scale that was observed."""
        stds = usable_scale(np.sqrt(self._squares / max(1, self._count)))
        self._scale = self._mean.astype(np.float32), stds.astype(np.float32)

    def add(self, observations: NDArray[Any], succeeded: NDArray[np.bool_]) -> None:
        """
        :param observations: Observations of episodes that have ended, shape (n, n_features).
        :param succeeded: Whether their episode succeeded, shape (n,).
        """
        given = np.asarray(observations, dtype=np.float32)
        if self._scale is not None:
            self.brier_score = float(np.mean((self.predict(given) - succeeded) ** 2))
        places = (self._next + np.arange(len(given))) % len(self._labels)
        self._observations[places], self._labels[places] = given, succeeded
        self._next = int((places[-1] + 1) % len(self._labels))
        self._size = min(len(self._labels), self._size + len(given))

    def train(self, n_minibatches: int) -> None:
        """
        :param n_minibatches: Number of steps of the optimizer.
        """
        for _ in range(n_minibatches if self._size and self._scale is not None else 0):
            rows = self._rng.integers(self._size, size=self.batch_size)
            logits = self._network(self._to_tensor(self._observations[rows])).flatten()
            labels = th.as_tensor(self._labels[rows], device=self._device)
            loss = nn.functional.binary_cross_entropy_with_logits(logits, labels)
            self._optimizer.zero_grad()
            loss.backward()
            self._optimizer.step()

    def predict(self, observations: NDArray[Any]) -> NDArray[np.float64]:
        """
        :param observations: Observations, shape (n, n_features).
        :return: Predicted chance of success, shape (n,); 0.5 before the scale is frozen.
        """
        if self._scale is None:
            return np.full(len(observations), 0.5)
        with th.no_grad():
            logits = self._network(self._to_tensor(np.asarray(observations, dtype=np.float32))).flatten()
        return th.sigmoid(logits).numpy(force=True).astype(np.float64)

    def _to_tensor(self, observations: NDArray[np.float32]) -> th.Tensor:
        assert self._scale is not None
        mean, std = self._scale
        return th.as_tensor(np.clip((observations - mean) / std, -FARTHEST, FARTHEST), device=self._device)
