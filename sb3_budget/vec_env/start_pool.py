"""A finite pool of starts for groups, which learns where there is something to learn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import cloudpickle  # type: ignore[import-untyped]  # it ships no types
import numpy as np
from numpy.typing import ArrayLike, NDArray

from sb3_budget.core.entry_pool import EntryPool, PoolStatistics
from sb3_budget.core.start_rules import DrawFunction, PoolRule, parse_rule
from sb3_budget.core.starts import PoolEntries
from sb3_budget.vec_env.start import Start, check_start


class StartPool:
    """
    A finite pool of starts for groups of episodes, the ``start_rule`` of :class:`~sb3_budget.GRPO`.

    A group whose members all have the same return teaches nothing about which actions are better. The pool keeps, for each
    start, what its groups have shown, draws the next start by a rule, and says which finished groups the update learns
    from.

    Where a seed decides the level, as in MiniGrid, 500 levels are::

        model = GRPO("CnnPolicy", venv, start_rule=StartPool(500, seed=0))

    and levels of your choice are ``StartPool([Start(level, seed=level) for level in levels])``.

    :param starts: Number of starts, each with a seed of its own for ``env.reset(seed=...)``, or the starts themselves: by
        seed, options or snapshot. A start by options without a seed is a task whose seed changes with every group.
    :param rule: Which start comes next: ``"recycle"`` (default, :class:`~sb3_budget.RecycleRule`), ``"discard"``
        (:class:`~sb3_budget.DiscardRule`), ``"skip"`` (:class:`~sb3_budget.SkipRule`), ``"plr"``
        (:class:`~sb3_budget.LevelReplayRule`), one of these classes with arguments of your own, or a function
        ``(entries, rng) -> entry`` of :class:`~sb3_budget.PoolEntries`, which uses all groups.
    :param oversampling: Groups that are rolled out per group that is wanted, at least 1 (default). Of ``m`` finished groups
        the first ``ceil(m / oversampling)`` with a spread of returns are used; the others are left out, and their starts
        can be drawn again.
    :param tolerance: Largest difference within a group that counts as no spread, in standard deviations of all returns. 0
        by default: exactly equal returns.
    :param good_return: A group without a spread is easy from this return on, and hard below. By default from the running
        mean of all returns on.
    :param seed: Decides the seeds of the starts where ``starts`` is a number. By default the seed of the first model that
        trains on the pool. Draws are decided by the generator that comes with each of them.
    :raises ValueError: if an argument is out of range, or starts have the same id, an id that cannot be hashed, or decide
        nothing.
    """

    def __init__(
        self,
        starts: int | Sequence[Start],
        rule: str | PoolRule | DrawFunction = "recycle",
        oversampling: float = 1.0,
        tolerance: float = 0.0,
        good_return: float | None = None,
        seed: int | None = None,
    ):
        self.starts = _seeded_starts(starts, seed) if isinstance(starts, (int, np.integer)) else _checked_starts(starts)
        self._pool = EntryPool(len(self.starts), parse_rule(rule), oversampling, tolerance, good_return)
        #: Entry that the episodes of a group began in, until the group is recorded.
        self._given: dict[tuple[int, int], int] = {}
        self._follows_seed = seed is None and isinstance(starts, (int, np.integer))

    def follow_seed(self, seed: int) -> None:
        """
        Let the seeds of the starts be decided by that of a model, where the pool was given none and has followed none yet.

        :param seed: Seed of the model.
        """
        if self._follows_seed and self._pool.n_records == 0 and not self._given:
            self.starts = _seeded_starts(len(self.starts), seed)
        self._follows_seed = False

    def __len__(self) -> int:
        return len(self.starts)

    def __call__(self, group: int, episode: int, rng: np.random.Generator) -> Start:
        """
        :param group: Number of the group.
        :param episode: Number of its episode.
        :param rng: Source of the draw.
        :return: The start of that episode of all members.
        """
        entry = self._given[group, episode] = self._pool.draw(rng)
        return self.starts[entry]

    def gave(self, group: int, episode: int) -> bool:
        """
        :param group: Number of a group.
        :param episode: Number of its episode.
        :return: Whether that episode began in a start of this pool that is not recorded yet.
        """
        return (group, episode) in self._given

    def record(self, finished: Sequence[tuple[int, int, ArrayLike]], scores: ArrayLike | None = None) -> NDArray[np.bool_]:
        """
        Learn from the groups that finished in one rollout, of which there may be none.

        :param finished: Group, episode and undiscounted returns of the members, shape (k,), in order of finishing.
        :param scores: Priority of each for :class:`~sb3_budget.LevelReplayRule`, one per group. By default the standard
            deviation of its returns.
        :return: Whether the update learns from each, one per group.
        :raises ValueError: if one began in no start of this pool, is recorded twice, or has returns that are not finite.
        """
        keys = [(group, episode) for group, episode, _ in finished]
        for group, episode in keys:
            if (group, episode) not in self._given:
                raise ValueError(f"Episode {episode} of group {group} has no start of this pool that is not recorded yet")
        if len(set(keys)) < len(keys):
            raise ValueError(f"An episode of a group is recorded once, but one of {keys} is given twice")
        used = self._pool.record([self._given[key] for key in keys], [returns for _, _, returns in finished], scores)
        for key in keys:
            del self._given[key]
        return used

    def forget(self, oldest: ArrayLike) -> None:
        """
        Forget which starts were given to episodes that will not finish any more, because a reset broke them off.

        :param oldest: The earliest episode of each group that may still finish, shape (n_groups,).
        """
        first = np.asarray(oldest, dtype=np.int64)
        # Groups of an earlier training with more of them are gone.
        self._given = {
            (group, episode): entry
            for (group, episode), entry in self._given.items()
            if group < len(first) and episode >= first[group]
        }

    @property
    def rule(self) -> PoolRule:
        """Which start comes next."""
        return self._pool.rule

    @property
    def entries(self) -> PoolEntries:
        """What is known of each start, in the order of ``starts``."""
        return self._pool.entries

    @property
    def statistics(self) -> PoolStatistics:
        """Shares of the latest record, flips so far, and what the pool consists of."""
        return self._pool.statistics

    def log_values(self) -> dict[str, float]:
        """
        :return: What is logged of :attr:`statistics`, by key; shares of nothing are left out.
        """
        statistics = self.statistics
        values = {
            "budget/pool_zero_variance": statistics.zero_variance,
            "budget/pool_easy": statistics.easy,
            "budget/pool_hard": statistics.hard,
            "budget/pool_flips_easy": statistics.flips_easy,
            "budget/pool_flips_hard": statistics.flips_hard,
            "budget/pool_recycled": statistics.recycled,
        }
        return {key: float(value) for key, value in values.items() if not np.isnan(value)}

    def save(self, path: str | Path) -> None:
        """
        Save the pool with all it has learned. It is also saved with the model whose ``start_rule`` it is.

        :param path: File to write.
        """
        Path(path).write_bytes(cloudpickle.dumps(self))

    @classmethod
    def load(cls, path: str | Path) -> StartPool:
        """
        :param path: File that :meth:`save` wrote.
        :return: The pool, which goes on where it was.
        :raises ValueError: if the file holds something else.
        """
        pool = cloudpickle.loads(Path(path).read_bytes())
        if not isinstance(pool, cls):
            raise ValueError(f"{path} holds a {type(pool).__name__}, not a {cls.__name__}")
        return pool


def _seeded_starts(n: int, seed: int | None) -> tuple[Start, ...]:
    if not 1 <= n < 2**31:
        raise ValueError(f"starts={n} must be at least 1")
    seeds = np.random.default_rng(seed).choice(2**31, size=n, replace=False)
    return tuple(Start(entry, seed=int(each)) for entry, each in enumerate(seeds))


def _checked_starts(starts: Sequence[Start]) -> tuple[Start, ...]:
    checked = tuple(starts) if isinstance(starts, Iterable) else (starts,)
    if not checked:
        raise ValueError("A pool of 0 starts has none to draw: give at least 1")
    known = set()
    for start in checked:
        if not isinstance(start, Start):
            raise ValueError(f"A pool is made of a number of starts or of Start objects, not of a {type(start).__name__}")
        check_start(start)
        if start.seed is None and start.options is None and start.snapshot is None:
            raise ValueError(f"Start {start.id!r} has no seed, options or snapshot: members would begin in different states")
        try:
            repeated = start.id in known
        except TypeError as error:
            raise ValueError(f"The id {start.id!r} of a start cannot be hashed: use a number, a string or a tuple") from error
        if repeated:
            raise ValueError(f"Two starts of the pool have the id {start.id!r}: give each its own")
        known.add(start.id)
    return checked
