"""Replay buffers that repeat what always has the same outcome."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch as th
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.type_aliases import DictReplayBufferSamples, ReplayBufferSamples
from stable_baselines3.common.vec_env import VecNormalize
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer

from sb3_budget.buffers.pooled_targets import PooledTargets
from sb3_budget.buffers.replay_rows import Samples, entries, field, join, part_of
from sb3_budget.core.cells import Cells
from sb3_budget.core.determinism import DeterminismDetector, Verdict
from sb3_budget.core.transition_graph import successors
from sb3_budget.core.transition_keys import TransitionKeys, outcomes
from sb3_budget.core.transition_pool import Eviction, TransitionPool

#: After this many transitions it is decided whether any repeat.
TRIAL = 5_000
#: Share of transitions of the trial that must repeat an earlier state and action.
LEAST_HIT_RATE = 0.01
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
    leaves it for ever when an outcome contradicts. :meth:`sample` fills ``mix_ratio`` of a batch from the pool, uniformly, and
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
        continuous actions it sees them too, behind the observation. ``None`` for exact bytes.
    :param whitelist: ``whitelist(observations, actions)`` returns a mask of transitions known to be deterministic, shape
        (n_envs,). They need no count; a contradiction still counts.
    :param seed: Seed of the draws from the pool. By default it follows the model's, and draws nothing from its generator.
    """

    buffer_size: int
    n_envs: int
    pos: int
    device: th.device
    optimize_memory_usage: bool
    observations: Any
    next_observations: Any
    actions: NDArray[Any]
    rewards: NDArray[np.float32]
    dones: NDArray[np.float32]

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
        cells: Cells | None = None,
        whitelist: Callable[[Any, NDArray[Any]], NDArray[np.bool_]] | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ):
        _require_parent(self, observation_space, kwargs)
        first_ratio = mix_ratio(0) if callable(mix_ratio) else mix_ratio
        if not 0.0 <= first_ratio <= 1.0:
            raise ValueError(f"mix_ratio={first_ratio} must lie in [0, 1]")
        if max_age is not None and max_age < 1:
            raise ValueError(f"max_age={max_age} must be at least 1 transition")
        if start_after < (0 if cells is None else 1):
            raise ValueError(f"start_after={start_after} must not be negative, and with cells it must be positive")
        if eviction not in {kind.value for kind in Eviction}:
            raise ValueError(f"eviction={eviction!r} is none of {[kind.value for kind in Eviction]}")
        super().__init__(buffer_size, observation_space, action_space, *args, **kwargs)  # type: ignore[call-arg]  # the parent is a replay buffer
        self.mix_ratio, self.start_after, self.max_age, self.whitelist = mix_ratio, start_after, max_age, whitelist
        self.detector = DeterminismDetector(min_count, epsilon, max_candidates=buffer_size)
        fields = {name: (column.shape[2:], column.dtype) for name, column in self._columns().items()}
        most = max(1, min(buffer_size // 10, MOST_POOLED)) if capacity is None else capacity
        self.pool = TransitionPool(most, fields, Eviction(eviction))
        self.transition_keys = TransitionKeys(cells, continuous_actions=isinstance(action_space, spaces.Box))
        self._pool_rng = np.random.default_rng(_seed_of_the_run() if seed is None else seed)
        #: Whether transitions are still counted and the pool is used.
        self.enabled = True
        self.n_added = self.n_batches = self._n_purged_at = 0
        self._latest_share = 0.0
        #: Targets of pooled rows, found by a callback. One contradiction drops them.
        self.targets: PooledTargets | None = None

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
        row, n_before = self.pos, self.n_added
        super().add(obs, next_obs, action, reward, done, infos)  # type: ignore[misc]  # the parent is a replay buffer
        self.n_added += self.n_envs
        if not self.enabled:
            return
        if self.transition_keys.cells is not None and n_before < self.start_after:
            self.transition_keys.observe(entries(self.observations, row), self.actions[row])
            return
        self.transition_keys.freeze()
        self._watch(row, [info.get("TimeLimit.truncated", False) for info in infos])
        if self.detector.n_observed >= TRIAL > self.detector.n_observed - self.n_envs:
            self._end_trial()

    def _watch(self, row: int, cut: list[bool]) -> None:
        """Count the outcomes of a row of the ring. What was cut counts, but cannot be pooled: its end is not known."""
        states, actions = entries(self.observations, row), self.actions[row]
        terminated = [None if was_cut else bool(done) for was_cut, done in zip(cut, self.dones[row], strict=True)]
        found = outcomes(entries(self.next_observations, row), self.rewards[row], terminated)
        trusted = [False] * self.n_envs
        if self.whitelist is not None:
            trusted = list(self.whitelist(states.get("", states), actions))
            if len(trusted) != self.n_envs:
                raise ValueError(f"whitelist must return one mark for each of {self.n_envs} slots, got {len(trusted)}")
        for slot, key in enumerate(self.transition_keys.keys(states, actions)):
            verdict = self.detector.observe(key, found[slot], bool(trusted[slot]))
            if verdict != Verdict.DETERMINISTIC:
                self._drop(key)
            elif key in self.pool:
                self.pool.renew(key, self.n_added, self.n_batches)
            elif not cut[slot]:
                transition = {name: column[row, slot] for name, column in self._columns().items()}
                self.pool.put(key, transition, self.n_added, self.n_batches)

    def _drop(self, key: Hashable) -> None:
        """Nor may a target rest on it."""
        if key in self.pool:
            self.pool.discard(key)
            self.targets = None

    def _end_trial(self) -> None:
        if self.detector.hit_rate < LEAST_HIT_RATE:
            warnings.warn(
                f"{type(self).__name__} switched itself off: of {self.detector.n_observed} transitions, "
                f"{self.detector.n_hits} repeated a state and an action. It is Stable-Baselines3's buffer now. Continuous "
                "observations need cells= to repeat",
                stacklevel=4,
            )
            self.enabled = False
            self.forget()

    # ------------------------------------------------------------------ out

    def sample(self, batch_size: int, env: VecNormalize | None = None) -> Any:
        self.n_batches += 1
        self._purge()
        n_pooled = min(round(self.current_mix_ratio * batch_size), len(self.pool)) if self.enabled else 0
        self._latest_share = n_pooled / batch_size
        if not n_pooled:
            return super().sample(batch_size, env=env)  # type: ignore[misc]  # the parent is a replay buffer
        stock = super().sample(batch_size - n_pooled, env=env)  # type: ignore[misc]  # the parent is a replay buffer
        pooled = self.sample_pool(n_pooled, env)
        if self.targets is not None and stock.discounts is None:
            stock = stock._replace(discounts=th.full_like(stock.rewards, self.targets.gamma))
        return join(stock, pooled)

    def sample_pool(self, n: int, env: VecNormalize | None = None) -> Samples:
        """
        :param n: Number of rows.
        :param env: What normalises observations and rewards, as in SB3.
        :return: Transitions of the pool, drawn uniformly with replacement. With :attr:`targets`, untried actions are among
            them, and what has a target has it as its reward, with a discount of 0.
        :raises ValueError: if the pool is empty.
        """
        if not len(self.pool):
            raise ValueError("The pool is empty: nothing has had the same outcome often enough")
        if self.targets is None:
            return self.read_pool(self._pool_rng.integers(len(self.pool), size=n), env)
        drawn = self.targets.draw(self.pool, n, self._pool_rng)
        samples, is_known = self.read_pool(drawn.rows, env), self._tensor(~np.isnan(drawn.values))
        samples.actions[self._tensor(drawn.replaced)] = self._tensor(drawn.actions)
        return samples._replace(
            rewards=th.where(is_known, self._tensor(drawn.values), samples.rewards),
            discounts=self.targets.gamma * (~is_known).float(),
        )

    def read_pool(self, rows: NDArray[np.int64], env: VecNormalize | None = None) -> Samples:
        """
        :param rows: Rows of the pool, shape (n,).
        :param env: What normalises observations and rewards, as in SB3.
        :return: Their transitions.
        """
        taken = self.pool.take(rows)
        states, next_states = (
            self._normalize_obs(part_of(taken, name), env)  # type: ignore[attr-defined]  # the parent is a replay buffer
            for name in ("observations", "next_observations")
        )
        rewards = self._normalize_reward(taken["rewards"].reshape(-1, 1), env)  # type: ignore[attr-defined]  # as above
        gamma = getattr(self, "gamma", None)  # of n-step buffers, whose rows have discounts: those of the pool are one step
        discounts = None if gamma is None else self._tensor(np.full((len(rows), 1), gamma, dtype=np.float32))
        kind = DictReplayBufferSamples if isinstance(states, dict) else ReplayBufferSamples
        return kind(
            observations=self._tensor(states),
            actions=self._tensor(taken["actions"]),
            next_observations=self._tensor(next_states),
            dones=self._tensor(taken["dones"].reshape(-1, 1)),
            rewards=self._tensor(rewards),
            discounts=discounts,
        )

    def _tensor(self, array: Any) -> Any:
        if isinstance(array, dict):
            return {name: self._tensor(entry) for name, entry in array.items()}
        return self.to_torch(array, copy=False)  # type: ignore[attr-defined]  # the parent is a replay buffer

    def _purge(self) -> None:
        if self.max_age is not None and self.n_added - self._n_purged_at >= max(1, self.max_age // 10):
            self.pool.purge(self.n_added, self.max_age)
            self._n_purged_at = self.n_added

    # ------------------------------------------------------------------ the pool as a whole

    @property
    def current_mix_ratio(self) -> float:
        """Share of a batch that the pool is asked for now: 0 before ``start_after``."""
        if self.n_added <= self.start_after:
            return 0.0
        ratio = self.mix_ratio(self.n_added) if callable(self.mix_ratio) else self.mix_ratio
        return min(max(ratio, 0.0), 1.0)

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
                keys += self.transition_keys.states(entries(part_of(taken, part)))
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

        :param other: A buffer with the same arguments. Cells, if any, must be one frozen object's copies.
        """
        self.detector.merge(other.detector)
        self.pool.merge(other.pool)
        self.pool.keep(lambda key: self.detector.verdict(key) == Verdict.DETERMINISTIC)
        self.targets = None

    def forget(self) -> None:
        """Empty the pool and all counts, as when the environment changed."""
        known, kept, self.targets = self.detector, self.pool, None
        self.detector = DeterminismDetector(known.min_count, known.epsilon, known.tolerance, known.max_candidates)
        self.pool = TransitionPool(kept.capacity if self.enabled else 1, kept.fields, kept.eviction)

    def reset(self) -> None:
        super().reset()  # type: ignore[misc]  # the parent is a replay buffer
        self.forget()

    def _columns(self) -> dict[str, NDArray[Any]]:
        """The ring's arrays, shapes (buffer_size, n_envs, ...), under the names of the pool's fields."""
        parts = {"observations": self.observations, "next_observations": self.next_observations}
        columns = {"actions": self.actions, "rewards": self.rewards, "dones": self.dones}
        for name, part in parts.items():
            columns |= {field(name, entry): array for entry, array in entries(part).items()}
        return columns


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
    :param gamma: Discount factor, the model's.
    :raises ValueError: if an argument is out of range or the observation space is a ``Dict``.
    """


def _require_parent(buffer: ZeroVarianceBufferMixin, observation_space: spaces.Space, kwargs: dict[str, Any]) -> None:
    """Refuse what would be wrong in silence, or fail with a sentence that does not say the fix."""
    name = type(buffer).__name__
    if isinstance(observation_space, spaces.Dict) != isinstance(buffer, DictReplayBuffer):
        is_dict = "are" if isinstance(observation_space, spaces.Dict) else "are not"
        raise ValueError(
            f"{name} cannot hold these observations, which {is_dict} a Dict: use ZeroVarianceDictReplayBuffer for a Dict, and "
            "ZeroVarianceReplayBuffer otherwise"
        )
    if isinstance(buffer, HerReplayBuffer):
        raise ValueError(f"{name} cannot be a HerReplayBuffer: virtual goals change rewards after the fact")
    if kwargs.get("optimize_memory_usage"):
        raise ValueError(f"{name} needs next observations of their own: optimize_memory_usage must be False")
    if "n_steps" in kwargs and not isinstance(buffer, NStepReplayBuffer):
        raise ValueError(f"{name} has rows of one step, not n_steps={kwargs['n_steps']}: use ZeroVarianceNStepReplayBuffer")


def _seed_of_the_run() -> list[int]:
    """
    :return: A seed made of the state of NumPy's global generator, which SB3 seeds and draws its batches from. It stays as it
        is, so that a buffer without a pool gives the same batches as SB3's.
    """
    _, words, place, *_ = np.random.get_state(legacy=True)  # noqa: NPY002  # read, not drawn from
    return [*map(int, words), int(place)]
