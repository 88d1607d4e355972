"""The callback that trains the critic of an on-policy algorithm on transitions whose outcome never varies."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.type_aliases import Schedule
from stable_baselines3.common.utils import FloatSchedule

from sb3_budget.buffers.finished_group_buffer import FinishedGroupBufferMixin
from sb3_budget.callbacks.policy_recycling import PolicyRecycling
from sb3_budget.callbacks.progress import progress_remaining
from sb3_budget.callbacks.requirements import require_on_policy, require_top_level
from sb3_budget.callbacks.state_files import read_state, write_state
from sb3_budget.callbacks.transition_reader import TransitionReader
from sb3_budget.core.cells import Cells, parse_cells
from sb3_budget.core.determinism import DeterminismDetector
from sb3_budget.core.transition_keys import TransitionKeys
from sb3_budget.core.transition_pool import Eviction, TransitionPool
from sb3_budget.core.transition_watch import TransitionWatch
from sb3_budget.policies.critic_regression import CriticRegression

#: Transitions that the critic's errors are measured on, at most.
MOST_MEASURED = 1_024
#: Minibatches that a variance of gradients is estimated from.
N_GRADIENTS = 16
#: Largest share of pooled rows.
MOST_MIXED = 0.99
#: Pairs of state and action that are settled neither way are forgotten beyond so many times the pool's capacity.
CANDIDATES_PER_ROW = 10
#: What is saved.
STATE = ("watch", "_n_watched", "_rng", "_version", "_due", "_n_entered_before", "_critic_state", "_policy_state")


class CriticRecyclingCallback(BaseCallback):
    """
    Watches every transition of PPO, A2C, TRPO or GRPO, and trains the critic more on those whose outcome never varies.

    Pairs of state and action are counted on raw observations, as the environment gives them. One whose outcome has no variance
    is copied into a pool once. After each ``train()``, when the next rollout begins, the critic takes extra steps on the pool:
    regression on :math:`r + \\gamma\\,(1 - d)\\,V(s')`, each row with the weight :math:`\\pi(a|s)` of the present policy, see
    :class:`~sb3_budget.policies.critic_regression.CriticRegression`. The values that the next rollout's advantages are made of
    are then the better ones. The optimizer is one of its own, and parameters that actions depend on stay as they are: a
    features extractor that actor and critic share is not trained by it.

    With an empty pool or a share of 0 training is Stable-Baselines3's own, bit for bit. Put it before callbacks that change
    rewards.

    :param mix_ratio: Share of all rows that the critic is trained on that come from the pool, in ``[0, 1)`` (float, or
        schedule of the progress remaining). Those of a rollout count once per epoch.
    :param batch_size: Rows of an extra step. By default the algorithm's, or 64 if it has none.
    :param min_count: Equal outcomes that make a pair deterministic, at least 1.
    :param epsilon: Variance up to which outcomes are equal, in squared units of rewards and observations. A single outcome
        further than its square root from the mean contradicts. Whole numbers must repeat exactly.
    :param capacity: Largest number of transitions in the pool.
    :param eviction: What leaves a full pool: ``"fifo"`` the first that came, ``"lru"`` what the environment has not shown for
        longest, ``"priority"`` what the critic had the smallest error on.
    :param max_age: Steps after which a transition leaves that did not happen again. ``None`` keeps it.
    :param start_after: Steps before which the pool is not used. With ``cells``, their statistics are gathered until then and
        nothing is counted.
    :param cells: State abstraction that makes neighbours one state; with continuous actions it sees them too, behind the
        observation. ``None`` for exact bytes. Those that are not frozen yet are copied.
    :param whitelist: ``whitelist(observations, actions)`` returns a mask of transitions known to be deterministic, shape
        (n_envs,). They need no count; a contradiction still counts.
    :param weighting: ``"policy"`` (default): rows weigh :math:`\\pi(a|s)`. ``"uniform"``: all the same, which fits the values
        of a policy that takes all pooled actions equally often.
    :param tau: Share of the critic that the target critic takes over at each extra step. With 1 (default) the critic is its
        own target.
    :param learning_rate: Learning rate of the extra steps. By default the present one of the critic.
    :param policy_recycling: Whether the actor takes as many extra steps, with PPO's clipped ratio of its present probability
        and that of the policy that took the action, and the advantage of then. Off by default; no gain was measured.
    :param max_policy_age: With it: rows that happened in one of so many latest rollouts take part, at least 1.
    :param clip_range: With it: ratios count up to so far from 1.
    :param variance_every: Rollouts after which the variance of the critic's gradient is estimated with and without the pool,
        from 32 minibatches. 0 (default) for never.
    :param seed: Seed of the draws from the pool. The model's by default.
    :param verbose: Verbosity level.
    :raises ValueError: if an argument is out of range, or, when training starts, the algorithm or its policy does not fit.
    """

    model: OnPolicyAlgorithm

    def __init__(
        self,
        mix_ratio: float | Schedule = 0.25,
        batch_size: int | None = None,
        min_count: int = 5,
        epsilon: float = 1e-6,
        capacity: int = 10_000,
        eviction: str = "fifo",
        max_age: int | None = None,
        start_after: int = 0,
        cells: Cells | Callable[[Any], list[Any]] | None = None,
        whitelist: Callable[[Any, NDArray[Any]], NDArray[np.bool_]] | None = None,
        weighting: str = "policy",
        tau: float = 1.0,
        learning_rate: float | None = None,
        policy_recycling: bool = False,
        max_policy_age: int = 4,
        clip_range: float = 0.2,
        variance_every: int = 0,
        seed: int | None = None,
        verbose: int = 0,
    ):
        super().__init__(verbose)
        first_ratio = mix_ratio(1.0) if callable(mix_ratio) else mix_ratio
        if not 0.0 <= first_ratio < 1.0:
            raise ValueError(f"mix_ratio={first_ratio} must lie in [0, 1): the algorithm trains on its own rows, too")
        positive = {"batch_size": batch_size, "capacity": capacity, "max_age": max_age, "max_policy_age": max_policy_age}
        for name, value in positive.items():
            if value is not None and value < 1:
                raise ValueError(f"{name}={value} must be at least 1")
        if start_after < (0 if cells is None else 1) or variance_every < 0:
            raise ValueError(
                f"start_after={start_after} and variance_every={variance_every} must not be negative, and with cells "
                "start_after must be positive"
            )
        if policy_recycling and cells is not None:
            raise ValueError("policy_recycling needs exact keys: a cell's log-probability would be of another action or state")
        if eviction not in {kind.value for kind in Eviction}:
            raise ValueError(f"eviction={eviction!r} is none of {[kind.value for kind in Eviction]}")
        if weighting not in ("policy", "uniform"):
            raise ValueError(f"weighting={weighting!r} is neither 'policy' nor 'uniform'")
        if not 0.0 < tau <= 1.0:
            raise ValueError(f"tau={tau} must lie in (0, 1]")
        if not 0.0 < clip_range < 1.0 or (learning_rate is not None and learning_rate <= 0.0):
            raise ValueError(f"clip_range={clip_range} must lie in (0, 1) and learning_rate={learning_rate} be positive")
        self.mix_ratio = FloatSchedule(mix_ratio)
        self.batch_size, self.max_age, self.start_after = batch_size, max_age, start_after
        self.by_policy, self.tau, self.learning_rate = weighting == "policy", tau, learning_rate
        self.policy_recycling, self.max_policy_age, self.clip_range = policy_recycling, max_policy_age, clip_range
        self.variance_every = variance_every
        self._detector = DeterminismDetector(min_count, epsilon, max_keys=CANDIDATES_PER_ROW * capacity)
        self._capacity, self._eviction, self._whitelist = capacity, Eviction(eviction), whitelist
        self._cells = parse_cells(cells)
        self._rng = np.random.default_rng(seed)
        self._seeded = seed is not None
        #: What counts transitions, and keeps them in its pool, once there is a model.
        self.watch: TransitionWatch | None = None
        self._critic: CriticRegression | None = None
        self._policy: PolicyRecycling | None = None
        self._critic_state: dict[str, Any] | None = None
        self._policy_state: dict[str, Any] | None = None
        #: Steps so far, of all trainings.
        self._n_watched = 0
        #: Trainings so far: the version of the policy.
        self._version = 0
        #: Rows that the pool owes.
        self._due = 0.0
        self._n_entered_before = 0
        #: Extra steps of the critic when the present rollout began.
        self.n_updates = 0

    # ------------------------------------------------------------------ set-up

    def _init_callback(self) -> None:
        require_on_policy(self)
        model, name = self.model, type(self.model).__name__
        if isinstance(model.rollout_buffer, FinishedGroupBufferMixin):
            raise ValueError(f"This {name} uses no critic: there is nothing to recycle for")
        self._reader = TransitionReader(model, self.__dict__.get("_reader"))
        fields = dict(self._reader.fields) | (dict(PolicyRecycling.FIELDS) if self.policy_recycling else {})
        if self.watch is not None and self.watch.pool.fields != fields:
            raise ValueError(
                f"The pool has the columns {list(self.watch.pool.fields)}, but this {name} has {list(fields)}, or shapes "
                "differ: a callback belongs to one kind of environment"
            )
        self._keep_state()
        max_norm = getattr(model, "max_grad_norm", None)
        critic, policy = CriticRegression(model.policy, model.gamma, self.tau, self.by_policy, max_norm), None
        if self._critic_state is not None:
            critic.load_state_dict(self._critic_state)
        if self.policy_recycling:
            policy = PolicyRecycling(model, self._reader, self.clip_range, self.max_policy_age, max_norm)
            if self._policy_state is not None:
                policy.load_state_dict(self._policy_state)
        # Not before all fits, so that a model that was refused leaves nothing behind.
        self._critic, self._policy = critic, policy
        if self.watch is None:
            keys = TransitionKeys(self._cells, continuous_actions=isinstance(model.action_space, spaces.Box))
            pool = TransitionPool(self._capacity, fields, self._eviction)
            self.watch = TransitionWatch(type(self).__name__, self._detector, pool, keys, self._whitelist)
        # Who listened in a training that was broken off does no more.
        self.watch.listener = None
        if not self._seeded and model.seed is not None:
            self._rng.bit_generator.state = np.random.default_rng(model.seed).bit_generator.state
        self._seeded = True

    def _on_training_start(self) -> None:
        require_top_level(self)
        self._reader.start()
        n_steps = -(-MOST_MEASURED // self.model.n_envs)
        self._latest: deque[dict[str, NDArray[Any]]] = deque(maxlen=n_steps)
        self._rollout_keys: list[list[Hashable]] = []

    # ------------------------------------------------------------------ in

    def _on_step(self) -> bool:
        watch = self._known
        if not watch.enabled:
            return True
        columns, cut = self._reader.read(self.locals)
        self._latest.append(columns)
        if self._policy is not None:
            columns = columns | self._policy.columns(self.locals)
        gather = self._n_watched < self.start_after
        self._n_watched += len(cut)
        self._rollout_keys.append(watch.add(columns, cut, self._n_watched, self._version, gather))
        return True

    @property
    def _known(self) -> TransitionWatch:
        assert self.watch is not None
        return self.watch

    # ------------------------------------------------------------------ out

    def _on_rollout_start(self) -> None:
        """The algorithm has trained on the last rollout, if there was one."""
        pool = self._known.pool
        batch_size = self._rows_per_step
        self.n_updates, self._due = int(self._due // batch_size), self._due % batch_size
        if not len(pool):
            self.n_updates = 0
            return
        assert self._critic is not None
        rate = self.learning_rate or self.model.policy.optimizer.param_groups[-1]["lr"]
        for _ in range(self.n_updates):
            rows = self._rng.integers(len(pool), size=batch_size)
            errors = self._critic.step(self._reader.batch(pool.take(rows)), rate)
            if self._eviction is Eviction.PRIORITY:
                pool.set_priorities(pool.keys(rows), errors.abs().numpy(force=True))
        if self._policy is not None and self.n_updates:
            rate = self.learning_rate or self.model.policy.optimizer.param_groups[0]["lr"]
            self._policy.train(pool, self._version, self.n_updates, batch_size, rate, self._rng)

    @property
    def _rows_per_step(self) -> int:
        return int(self.batch_size or getattr(self.model, "batch_size", None) or 64)

    @property
    def _ratio(self) -> float:
        """Share of pooled rows. All of them would be endless steps for one online row."""
        return min(max(self.mix_ratio(progress_remaining(self.model)), 0.0), MOST_MIXED)

    def _on_rollout_end(self) -> None:
        watch, buffer = self._known, self.model.rollout_buffer
        keys, self._rollout_keys = self._rollout_keys, []
        if self._policy is not None:
            self._policy.note(watch.pool, keys, buffer)
        self._version += 1
        if self.max_age is not None:
            watch.pool.purge(self._n_watched, self.max_age)
        self._log(watch)
        ratio = self._ratio
        if watch.enabled and len(watch.pool) and self._n_watched > self.start_after:
            # TRPO's critic has passes of its own.
            n_passes = getattr(self.model, "n_critic_updates", getattr(self.model, "n_epochs", 1))
            n_online = buffer.buffer_size * buffer.n_envs * n_passes
            self._due += n_online * ratio / (1.0 - ratio)

    # ------------------------------------------------------------------ logs

    def _log(self, watch: TransitionWatch) -> None:
        pool, known, logger = watch.pool, watch.detector, self.logger
        n_rows = self.n_updates * self._rows_per_step
        logger.record("budget/recycle_pool_size", len(pool))
        logger.record("budget/recycle_hit_rate", known.hit_rate)
        logger.record("budget/recycle_promoted", known.n_promoted)
        logger.record("budget/recycle_stochastic", known.n_stochastic)
        logger.record("budget/recycle_turnover", (pool.n_entered - self._n_entered_before) / max(1, len(pool)))
        logger.record("budget/recycle_updates", self.n_updates)
        logger.record("budget/recycle_use", n_rows / max(1, len(pool)))
        self._n_entered_before = pool.n_entered
        if self._policy is not None and self._policy.ratios is not None:
            ratios = self._policy.ratios
            logger.record("budget/recycle_ratio_min", float(ratios.min()))
            logger.record("budget/recycle_ratio_mean", float(ratios.mean()))
            logger.record("budget/recycle_ratio_max", float(ratios.max()))
        if not watch.enabled or not self._latest:
            return
        online = {name: np.concatenate([step[name] for step in self._latest]) for name in self._latest[0]}
        logger.record("budget/recycle_error_online", self._error(online, by_policy=False))
        if len(pool):
            # Evenly over the pool, so that measuring draws no random number.
            rows = np.unique(np.linspace(0, len(pool) - 1, MOST_MEASURED).round().astype(np.int64))
            logger.record("budget/recycle_error_pool", self._error(pool.take(rows), by_policy=self.by_policy))
            if self.variance_every and self._version % self.variance_every == 0:
                self._log_variance(online, pool)

    def _error(self, columns: dict[str, NDArray[Any]], by_policy: bool) -> float:
        assert self._critic is not None
        batch = self._reader.batch(columns)
        squares = self._critic.errors(batch) ** 2
        weights = self._critic.weights(batch) if by_policy else squares.new_ones(len(squares))
        return float(((weights * squares).sum() / weights.sum()).sqrt())

    def _log_variance(self, online: dict[str, NDArray[Any]], pool: TransitionPool) -> None:
        """Total variance of the gradient of one minibatch: of online rows only, and of a share of them and pooled ones."""
        assert self._critic is not None
        n, size, rng = len(online["rewards"]), self._rows_per_step, np.random.default_rng(self._version)
        n_pooled = round(size * self._ratio)
        for key, n_other in (("budget/recycle_grad_var_online", 0), ("budget/recycle_grad_var_mixed", n_pooled)):
            draws = []
            for _ in range(N_GRADIENTS):
                own = {name: column[rng.integers(n, size=size - n_other)] for name, column in online.items()}
                other = pool.take(rng.integers(len(pool), size=n_other), list(online))
                mixed = {name: np.concatenate([own[name], other[name]]) for name in online}
                draws.append(self._critic.gradient(self._reader.batch(mixed)).numpy(force=True))
            self.logger.record(key, float(np.stack(draws).astype(np.float64).var(axis=0, ddof=1).sum()))

    # ------------------------------------------------------------------ persistence

    def _keep_state(self) -> None:
        self._critic_state = self._critic_state if self._critic is None else self._critic.state_dict()
        self._policy_state = self._policy_state if self._policy is None else self._policy.state_dict()

    def save(self, path: str | Path) -> None:
        """
        Save the pool with all counts, what the pool still owes, the generator, and the state of the optimizers.

        :param path: File to write.
        """
        self._keep_state()
        write_state(path, CriticRecyclingCallback, {name: self.__dict__[name] for name in STATE})

    def load(self, path: str | Path) -> None:
        """
        Take over what :meth:`save` wrote, before ``learn`` is called.

        :param path: File to read.
        :raises ValueError: if it is damaged or not such a callback's.
        """
        self.__dict__.update(read_state(path, CriticRecyclingCallback))
        self._critic = self._policy = None
        self._seeded = True
