"""Replay buffers that repeat what always has the same outcome."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch as th
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.type_aliases import DictReplayBufferSamples, ReplayBufferSamples
from stable_baselines3.common.utils import FloatSchedule, LinearSchedule
from stable_baselines3.common.vec_env import VecNormalize

from sb3_budget.buffers.pooled_targets import PooledTargets
from sb3_budget.buffers.replay_checks import require_no_stops, require_replay_parent
from sb3_budget.buffers.replay_rows import Samples, join
from sb3_budget.core.cells import Cells, parse_cells
from sb3_budget.core.determinism import DeterminismDetector
from sb3_budget.core.transition_fields import columns_of, entries, part_of
from sb3_budget.core.transition_graph import successors
from sb3_budget.core.transition_keys import TransitionKeys
from sb3_budget.core.transition_pool import Eviction, TransitionPool
from sb3_budget.core.transition_watch import TransitionWatch

#: Largest default capacity of the pool.
MOST_POOLED = 50_000


class ReplayPoolStatistics(NamedTuple):
    """
    :param size: Transitions in the pool.
    :param hit_rate: Share of all transitions whose state and action had been seen before.
    :param promoted: Keys whose outcomes have no variance so far.
    :param stochastic: Keys whose outcomes contradicted each other.
    :param share: Share of the latest batch that came from the pool.
    """

    size: int
    hit_rate: float
    promoted: int
    stochastic: int
    share: float


class ZeroVarianceBufferMixin:
    """
    A pool beside any of Stable-Baselines3's replay buffers. It comes before the buffer's class.

    :meth:`add` counts outcomes per state and action. A pair whose outcome has no variance is copied into the pool once, and
    leaves it for good when an outcome contradicts. :meth:`sample` fills ``mix_ratio`` of a batch from the pool, uniformly, and
    the rest as the parent does. With an empty pool or a ratio of 0 it is the parent's own, bit for bit.

    :param mix_ratio: Share of a batch that the pool gives, in ``[0, 1]``, or a function of the number of transitions that
        were added. The pool never gives more rows than it has.
    :param min_count: Equal outcomes that make a pair deterministic, at least 1.
    :param epsilon: Variance up to which outcomes are equal, in squared units of rewards and observations. A single outcome
        further than its square root from the mean contradicts. Whole numbers must repeat exactly.
    :param capacity: Largest number of transitions in the pool. By default a tenth of the buffer, and 50,000 at most.
    :param eviction: What leaves a full pool: ``"fifo"`` the first that came, ``"lru"`` what the environment has not shown for
        longest, ``"priority"`` the least by ``pool.set_priorities``.
    :param max_age: Transitions after which a pooled one leaves that did not happen again. ``None`` keeps it.
    :param start_after: Transitions before which batches are the parent's. With ``cells``, their statistics are gathered until
        then and nothing is counted.
    :param cells: State abstraction that makes neighbours one state, such as :class:`~sb3_budget.QuantisedCells`; with
        continuous actions it sees them too, behind the observation. ``None`` for exact bytes. Those that are not frozen yet
        are copied.
    :param whitelist: ``whitelist(observations, actions)`` returns a mask of transitions known to be deterministic, shape
        (n_envs,). They need no count; a contradiction still counts.
    :param seed: Seed of the draws from the pool. By default it follows the model's, and draws nothing from its generator.
    """

    buffer_size: int
    n_envs: int
    pos: int
    device: th.device
    optimize_memory_usage: bool
    handle_timeout_termination: bool
    observations: Any
    next_observations: Any
    actions: NDArray[Any]
    rewards: NDArray[np.float32]
    dones: NDArray[np.float32]
    _keeps_arrays = False

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        *args: Any,
        mix_ratio: float | Callable[[int], float] = 0.25,
        min_count: int = 5,
        epsilon: float = 1e-6,
        capacity: int | None = None,
        eviction: str = "fifo",
        max_age: int | None = None,
        start_after: int = 1_000,
        cells: Cells | Callable[[Any], list[Any]] | None = None,
        whitelist: Callable[[Any, NDArray[Any]], NDArray[np.bool_]] | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ):
        require_replay_parent(self, observation_space, kwargs)
        if isinstance(mix_ratio, (FloatSchedule, LinearSchedule)):
            raise ValueError(
                f"mix_ratio={mix_ratio} is a function of the progress remaining, which a buffer does not know: give one "
                "of the number of transitions that were added"
            )
        first_ratio = mix_ratio(0) if callable(mix_ratio) else mix_ratio
        _require_share(first_ratio)
        if max_age is not None and max_age < 1:
            raise ValueError(f"max_age={max_age} must be at least 1 transition")
        if start_after < (0 if cells is None else 1):
            raise ValueError(f"start_after={start_after} must not be negative, and with cells it must be positive")
        if eviction not in {kind.value for kind in Eviction}:
            raise ValueError(f"eviction={eviction!r} is none of {[kind.value for kind in Eviction]}")
        super().__init__(buffer_size, observation_space, action_space, *args, **kwargs)  # type: ignore[call-arg]  # the parent is a replay buffer
        self.mix_ratio, self.start_after, self.max_age = mix_ratio, start_after, max_age
        fields = {name: (column.shape[2:], column.dtype) for name, column in self._columns().items()}
        most = max(1, min(buffer_size // 10, MOST_POOLED)) if capacity is None else capacity
        #: What counts transitions, and keeps them in its pool.
        self.watch = TransitionWatch(
            type(self).__name__,
            DeterminismDetector(min_count, epsilon, max_keys=buffer_size),
            TransitionPool(most, fields, Eviction(eviction)),
            TransitionKeys(parse_cells(cells), continuous_actions=isinstance(action_space, spaces.Box)),
            whitelist,
        )
        self._pool_rng = np.random.default_rng(_seed_of_the_run() if seed is None else seed)
        self.n_added = self.n_batches = self._n_purged_at = 0
        self._latest_share = 0.0
        self._targets: tuple[int, PooledTargets] | None = None

    @property
    def detector(self) -> DeterminismDetector:
        """What counts outcomes."""
        return self.watch.detector

    @property
    def pool(self) -> TransitionPool:
        """Deterministic transitions."""
        return self.watch.pool

    @property
    def enabled(self) -> bool:
        """Whether transitions are still counted and the pool is used."""
        return self.watch.enabled

    @property
    def targets(self) -> PooledTargets | None:
        """
        Targets of pooled rows, found by a callback. One contradiction drops them, also of what has left the pool, and so does
        another training. They are not saved.
        """
        if self._targets is None or self._targets[0] != self.detector.n_withdrawn or not self._targets[1].is_current():
            return None
        return self._targets[1]

    @targets.setter
    def targets(self, targets: PooledTargets | None) -> None:
        self._targets = None if targets is None else (self.detector.n_withdrawn, targets)

    # ------------------------------------------------------------------ in

    def add(
        self,
        obs: Any,
        next_obs: Any,
        action: NDArray[Any],
        reward: NDArray[Any],
        done: NDArray[Any],
        infos: list[dict[str, Any]],
    ) -> None:
        if not self.handle_timeout_termination:
            require_no_stops(type(self).__name__, infos)
        row, n_before = self.pos, self.n_added
        super().add(obs, next_obs, action, reward, done, infos)  # type: ignore[misc]  # the parent is a replay buffer
        self.n_added += self.n_envs
        if self.enabled:
            transitions = {name: column[row] for name, column in self._columns().items()}
            cut = [info.get("TimeLimit.truncated", False) for info in infos]
            self.watch.add(transitions, cut, self.n_added, self.n_batches, gather=n_before < self.start_after)

    # ------------------------------------------------------------------ out

    def sample(self, batch_size: int, env: VecNormalize | None = None) -> Any:
        self.n_batches += 1
        self._purge()
        n_pooled = min(round(self.current_mix_ratio * batch_size), len(self.pool)) if self.enabled else 0
        self._latest_share = n_pooled / batch_size
        if not n_pooled:
            return super().sample(batch_size, env=env)  # type: ignore[misc]  # the parent is a replay buffer
        self._keeps_arrays = True
        try:
            stock = super().sample(batch_size - n_pooled, env=env)  # type: ignore[misc]  # the parent is a replay buffer
        finally:
            self._keeps_arrays = False
        if self.targets is not None and stock.discounts is None:
            stock = stock._replace(discounts=np.full_like(stock.rewards, self.targets.gamma))
        return self._tensors(join(stock, self._draw(n_pooled, env)))

    def to_torch(self, array: NDArray[Any], copy: bool = True) -> Any:
        """As in SB3, but rows that are to be joined with others stay an array, so that there is one tensor to make of both."""
        return array if self._keeps_arrays else super().to_torch(array, copy)  # type: ignore[misc]  # as above

    def sample_pool(self, n: int, env: VecNormalize | None = None) -> Samples:
        """
        :param n: Number of rows.
        :param env: What normalises observations and rewards, as in SB3.
        :return: Transitions of the pool, drawn uniformly with replacement. With :attr:`targets`, untried actions are among
            them, and what has a target has it as its reward, with a discount of 0 and as if it terminated.
        :raises ValueError: if the pool is empty.
        """
        if not len(self.pool):
            raise ValueError("The pool is empty: nothing has had the same outcome often enough")
        return self._tensors(self._draw(n, env))

    def _draw(self, n: int, env: VecNormalize | None) -> Samples:
        targets = self.targets
        if targets is None:
            return self._arrays(self._pool_rng.integers(len(self.pool), size=n), env)
        drawn = targets.draw(self.pool, n, self._pool_rng)
        samples, is_unknown = self._arrays(drawn.rows, env), np.isnan(drawn.values)
        samples.actions[drawn.replaced] = drawn.actions  # type: ignore[assignment]  # arrays so far
        return samples._replace(
            rewards=np.where(is_unknown, samples.rewards, drawn.values),  # type: ignore[arg-type]  # as above
            # Twice the same, for a train() of one's own that takes the model's discount factor.
            dones=np.where(is_unknown, samples.dones, np.float32(1.0)),  # type: ignore[arg-type]  # as above
            discounts=(targets.gamma * is_unknown).astype(np.float32),  # type: ignore[arg-type]  # as above
        )

    def read_pool(self, rows: NDArray[np.int64], env: VecNormalize | None = None) -> Samples:
        """
        :param rows: Rows of the pool, shape (n,).
        :param env: What normalises observations and rewards, as in SB3.
        :return: Their transitions.
        """
        return self._tensors(self._arrays(rows, env))

    def _arrays(self, rows: NDArray[np.int64], env: VecNormalize | None) -> Samples:
        """A batch of pooled rows whose columns are arrays still."""
        taken = self.pool.take(rows)
        states, next_states = (
            self._normalize_obs(part_of(taken, name), env)  # type: ignore[attr-defined]  # the parent is a replay buffer
            for name in ("observations", "next_observations")
        )
        rewards = self._normalize_reward(taken["rewards"].reshape(-1, 1), env)  # type: ignore[attr-defined]  # as above
        gamma = getattr(self, "gamma", None)  # of n-step buffers, whose rows have discounts: those of the pool are one step
        kind: Any = DictReplayBufferSamples if isinstance(states, dict) else ReplayBufferSamples
        samples: Samples = kind(
            observations=states,
            actions=taken["actions"],
            next_observations=next_states,
            dones=taken["dones"].reshape(-1, 1),
            rewards=rewards,
            discounts=None if gamma is None else np.full((len(rows), 1), gamma, dtype=np.float32),
        )
        return samples

    def _tensors(self, samples: Samples) -> Samples:
        def tensor(array: Any) -> Any:
            if isinstance(array, dict):
                return {name: tensor(entry) for name, entry in array.items()}
            return None if array is None else self.to_torch(array, copy=False)

        return type(samples)(*map(tensor, samples))

    def _purge(self) -> None:
        if self.max_age is not None and self.n_added - self._n_purged_at >= max(1, self.max_age // 10):
            self.pool.purge(self.n_added, self.max_age)
            self._n_purged_at = self.n_added

    # ------------------------------------------------------------------ the pool as a whole

    @property
    def current_mix_ratio(self) -> float:
        """Share of a batch that the pool is asked for now: 0 before ``start_after``. A function's must lie in [0, 1]."""
        if self.n_added <= self.start_after:
            return 0.0
        if not callable(self.mix_ratio):
            return self.mix_ratio
        ratio = self.mix_ratio(self.n_added)
        _require_share(ratio)
        return ratio

    @property
    def statistics(self) -> ReplayPoolStatistics:
        """What is known so far, and of the latest batch."""
        known = self.detector
        return ReplayPoolStatistics(len(self.pool), known.hit_rate, known.n_promoted, known.n_stochastic, self._latest_share)

    def graph(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """
        :return: A number for the state in which each pooled transition begins, shape (n,); and for the state it leads to, -1
            where no pooled transition begins or the episode terminates, shape (n,).
        """
        states: dict[str, list[Hashable]] = {"observations": [], "next_observations": []}
        for rows in np.array_split(np.arange(len(self.pool)), 1 + len(self.pool) // 1_024):
            taken = self.pool.take(rows)
            for part, keys in states.items():
                keys += self.watch.transition_keys.states(entries(part_of(taken, part)))
        sources, targets = successors(*states.values())
        ended = self.pool.take(np.arange(len(self.pool)), ["dones"])["dones"] > 0
        return sources, np.where(ended, -1, targets)

    def export(self) -> Iterator[dict[str, NDArray[Any]]]:
        """
        :return: A copy of each pooled transition by name of its columns, not normalised: data for a model of the environment.
        """
        return (transition for _, transition in self.pool.items())

    def merge_pool(self, other: ZeroVarianceBufferMixin) -> None:
        """
        Learn what a buffer of another process knows of the same environment. What the two contradict each other in leaves
        the pool.

        :param other: A buffer with the same arguments. Cells, if any, must be one frozen object's copies. Its transitions keep
            their ages.
        :raises ValueError: if it holds other transitions, or finds them by another ``min_count`` or ``epsilon``.
        """
        self.watch.merge(other.watch, self.n_added - other.n_added, self.n_batches - other.n_batches)
        self.targets = None

    def forget(self) -> None:
        """Empty the pool and all counts, as when the environment changed."""
        self.watch.forget()
        self.targets = None

    def __getstate__(self) -> dict[str, Any]:
        # Whoever loads it may train without the callback that renews targets.
        return {**self.__dict__, "_targets": None}

    def reset(self) -> None:
        super().reset()  # type: ignore[misc]  # the parent is a replay buffer
        self.forget()

    def _columns(self) -> dict[str, NDArray[Any]]:
        """The ring's arrays, shapes (buffer_size, n_envs, ...), under the names of the pool's fields."""
        columns = {"actions": self.actions, "rewards": self.rewards, "dones": self.dones}
        return (
            columns | columns_of("observations", self.observations) | columns_of("next_observations", self.next_observations)
        )


class ZeroVarianceReplayBuffer(ZeroVarianceBufferMixin, ReplayBuffer):
    """
    ``ReplayBuffer`` with a pool of transitions whose outcome never varies, for ``replay_buffer_class`` of DQN, SAC, TD3, DDPG,
    QR-DQN, TQC and CrossQ.

    ``Dict`` observations need :class:`ZeroVarianceDictReplayBuffer`, n-step returns :class:`ZeroVarianceNStepReplayBuffer`.

    :param buffer_size: Number of transitions.
    :param observation_space: Observation space, not a ``Dict``.
    :param action_space: Action space.
    :param device: PyTorch device of the samples.
    :param n_envs: Number of slots.
    :param optimize_memory_usage: Not supported.
    :param handle_timeout_termination: As in SB3. The pool never holds a transition at which the episode was cut.
    :param mix_ratio: See :class:`ZeroVarianceBufferMixin`, also for all that follow.
    :raises ValueError: if an argument is out of range, or asks for what the class cannot do.
    """


class ZeroVarianceDictReplayBuffer(ZeroVarianceBufferMixin, DictReplayBuffer):
    """
    ``DictReplayBuffer`` with such a pool; otherwise as :class:`ZeroVarianceReplayBuffer`.

    :raises ValueError: if an argument is out of range or the observation space is not a ``Dict``.
    """


class ZeroVarianceNStepReplayBuffer(ZeroVarianceBufferMixin, NStepReplayBuffer):
    """
    ``NStepReplayBuffer`` with such a pool, whose rows are single steps; otherwise as :class:`ZeroVarianceReplayBuffer`.

    :param n_steps: Number of steps, for ``replay_buffer_kwargs``: SB3's argument of the same name does not reach it.
    :param gamma: Discount factor, the model's. It must be given: SB3's default here would be 0.99, whatever the model has.
    :raises ValueError: if an argument is out of range or the observation space is a ``Dict``.
    """


def _require_share(ratio: Any) -> None:
    if not isinstance(ratio, (int, float, np.number)) or not 0.0 <= ratio <= 1.0:
        raise ValueError(f"mix_ratio={ratio!r} must lie in [0, 1]; a function of it is given the number of transitions added")


def _seed_of_the_run() -> list[int]:
    """
    :return: A seed made of the state of NumPy's global generator, which SB3 seeds and draws its batches from. It stays as it
        is, so that a buffer without a pool gives the same batches as SB3's.
    """
    _, words, place, *_ = np.random.get_state(legacy=True)  # noqa: NPY002  # read, not drawn from
    return [*map(int, words), int(place)]
