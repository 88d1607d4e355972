"""Rollout buffers whose rows carry a weight."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.buffers import DictRolloutBuffer, RolloutBuffer

from sb3_budget.core import weights as row_weights
from sb3_budget.core.slots import check_slots


class SelectiveBufferMixin:
    """
    Weights for the rows of any of Stable-Baselines3's rollout buffers. It comes before the buffer's class.

    ``train()`` of the algorithms has no weight argument. :meth:`get` therefore realises weights by thinning: row
    ``i`` is kept with probability ``w_i / max(w)``, by a fresh draw each epoch, and kept rows count once. Policy,
    value and entropy loss are weighted alike, and the loss is normalised by the number of kept rows. Where all
    weights are equal, :meth:`get` is the parent's own, bit for bit.

    :param early_weight: Weight in ``[0, 1]`` of what a stopped episode contributes through its bootstrap. 1
        (default) trusts it like any other row.
    :param weighting: ``"tail"`` (default): a row ``k`` steps before the stop weighs
        :math:`1 - (1 - w)(\\gamma\\lambda)^k`, since that is the share of its target which leans on the
        bootstrap. ``"trajectory"``: all rows of the episode within the rollout weigh ``early_weight``.
    :param seed: Seed of the thinning.
    """

    buffer_size: int
    n_envs: int
    pos: int
    generator_ready: bool
    gamma: float
    gae_lambda: float
    episode_starts: NDArray[np.float32]

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        *args: Any,
        early_weight: float = 1.0,
        weighting: str = "tail",
        seed: int | None = None,
        **kwargs: Any,
    ):
        name = type(self).__name__
        if isinstance(observation_space, spaces.Dict) and not isinstance(self, DictRolloutBuffer):
            other = name.replace("RolloutBuffer", "DictRolloutBuffer")
            raise ValueError(f"{name} cannot hold Dict observations: use {other}")
        if isinstance(self, DictRolloutBuffer) and not isinstance(observation_space, spaces.Dict):
            other = name.replace("DictRolloutBuffer", "RolloutBuffer")
            raise ValueError(f"{name} holds Dict observations only: use {other}")
        if not 0.0 <= early_weight <= 1.0:
            raise ValueError(f"early_weight={early_weight} must lie in [0, 1]")
        if weighting not in ("tail", "trajectory"):
            raise ValueError(f"weighting={weighting!r} is neither 'tail' nor 'trajectory'")
        self.early_weight = early_weight
        self.weighting = weighting
        self._thinning_rng = np.random.default_rng(seed)
        self._seeded = seed is not None
        self._next_size: int | None = None
        self._resized = False
        super().__init__(buffer_size, observation_space, action_space, *args, **kwargs)  # type: ignore[call-arg]  # the parent is a rollout buffer

    def seed(self, seed: int | None) -> None:
        """
        Seed the thinning, unless a seed was given at construction.

        :param seed: The model's seed.
        """
        if not self._seeded and seed is not None:
            self._thinning_rng = np.random.default_rng(seed)
            self._seeded = True

    def resize_at_reset(self, buffer_size: int) -> None:
        """
        Change the number of rows at the next :meth:`reset`. Until then the present rollout stays readable.

        :param buffer_size: New number of rows per slot.
        :raises ValueError: if it is not positive.
        """
        if buffer_size < 1:
            raise ValueError(f"buffer_size={buffer_size} must be at least 1")
        self._next_size = buffer_size

    def reset(self) -> None:
        if self._next_size is not None and self._next_size != self.buffer_size:
            self.buffer_size = self._next_size
            self._resized = True
        self._next_size = None
        shape = (self.buffer_size, self.n_envs)
        self.stops: NDArray[np.bool_] = np.zeros(shape, dtype=bool)
        self.factors: NDArray[np.float32] = np.ones(shape, dtype=np.float32)
        self.weights: NDArray[np.float32] = np.ones(shape, dtype=np.float32)
        super().reset()  # type: ignore[misc]  # the parent is a rollout buffer

    # ------------------------------------------------------------------ marks

    def mark_stopped(self, slots: int | Iterable[int]) -> None:
        """
        Mark the row that :meth:`add` will write next as the last one of a stopped episode.

        :param slots: Slots whose episode was stopped at this step.
        """
        self.stops[self.pos, check_slots(slots, self.n_envs)] = True

    def scale_slots(self, slots: int | Iterable[int], factors: Any) -> None:
        """
        Multiply the weight of the row that :meth:`add` will write next, e.g. by the survivor weight of an episode
        that was spared by a coin flip.

        :param slots: The slots.
        :param factors: One non-negative factor per slot, or one for all.
        :raises ValueError: if a factor is negative or not finite.
        """
        factors = np.asarray(factors, dtype=np.float32)
        if not np.isfinite(factors).all() or (factors < 0).any():
            raise ValueError(f"Row weights must be finite and non-negative, got {factors.tolist()}")
        self.factors[self.pos, check_slots(slots, self.n_envs)] *= factors

    # ------------------------------------------------------------------ the parent's contract

    def compute_returns_and_advantage(self, last_values: th.Tensor, dones: np.ndarray) -> None:
        super().compute_returns_and_advantage(last_values, dones)  # type: ignore[misc]  # the parent is a rollout buffer
        self.weights = self.factors
        if self.early_weight < 1.0 and self.stops.any():
            tail = self.weighting == "tail"
            stopped = row_weights.stop_weights(
                self.stops, self.episode_starts, self.gamma, self.gae_lambda, self.early_weight, tail
            )
            self.weights = self.factors * stopped
        self._probabilities = row_weights.inclusion_probabilities(self.weights.T.ravel())

    @property
    def uniform(self) -> bool:
        """Whether all rows weigh the same."""
        return bool((self.weights == self.weights.flat[0]).all())

    @property
    def effective_samples(self) -> float:
        """Kish's effective number of samples of the rollout, :math:`(\\sum w)^2 / \\sum w^2`."""
        return row_weights.effective_sample_size(self.weights)

    def get(self, batch_size: int | None = None) -> Generator[Any, None, None]:
        if self._takes_stock_batches(batch_size):
            yield from super().get(batch_size)  # type: ignore[misc]  # the parent is a rollout buffer
            return
        self._flatten_once()
        kept = self._draw_kept()
        for rows in row_weights.chunks(kept, batch_size or len(kept)):
            yield self._get_samples(rows)  # type: ignore[attr-defined]  # the parent is a rollout buffer

    def _takes_stock_batches(self, batch_size: int | None) -> bool:
        """
        :param batch_size: Size of a minibatch.
        :return: Whether the parent deals the rows. Not where a resize has left it a last minibatch of one row: the algorithm
            has warned of those of its own ``n_steps`` only, and some divide by the standard deviation of one advantage.
        """
        leaves_one = batch_size is not None and self._resized and (self.buffer_size * self.n_envs) % batch_size == 1
        return self.uniform and not leaves_one

    def _draw_kept(self) -> NDArray[np.int64]:
        """
        Draw the rows of an epoch. Advantages of one row cannot be normalised, so that at least two rows stay.

        :return: Flat rows, slot by slot as in SB3's ``swap_and_flatten``, in random order.
        """
        kept = row_weights.thin(self._probabilities, self._thinning_rng)
        return kept if len(kept) > 1 else np.argsort(self._probabilities)[-2:]

    def _flatten_once(self) -> None:
        """Let the parent flatten its arrays: it does so when its generator is first asked."""
        if not self.generator_ready:
            state = np.random.get_state()  # noqa: NPY002  # SB3 draws from the global generator
            next(super().get(1))  # type: ignore[misc]  # the parent is a rollout buffer
            np.random.set_state(state)  # noqa: NPY002  # as if nothing had been drawn


class SelectiveRolloutBuffer(SelectiveBufferMixin, RolloutBuffer):
    """
    ``RolloutBuffer`` with weights, for ``rollout_buffer_class`` of PPO, A2C and TRPO.

    :class:`~sb3_budget.SelectiveRolloutCallback` tells it which episodes were stopped. Dict observations need
    :class:`SelectiveDictRolloutBuffer`.

    :param buffer_size: Number of rows per slot.
    :param observation_space: Observation space, not a ``Dict``.
    :param action_space: Action space.
    :param device: PyTorch device of the samples.
    :param gae_lambda: Factor of the generalised advantage estimator.
    :param gamma: Discount factor.
    :param n_envs: Number of slots.
    :param early_weight: See :class:`SelectiveBufferMixin`.
    :param weighting: See :class:`SelectiveBufferMixin`.
    :param seed: See :class:`SelectiveBufferMixin`.
    :raises ValueError: if an argument is out of range or the observation space is a ``Dict``.
    """


class SelectiveDictRolloutBuffer(SelectiveBufferMixin, DictRolloutBuffer):
    """
    ``DictRolloutBuffer`` with weights; otherwise as :class:`SelectiveRolloutBuffer`.

    :raises ValueError: if an argument is out of range or the observation space is not a ``Dict``.
    """
