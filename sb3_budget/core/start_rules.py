"""Which start of a pool comes next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sb3_budget.core.ranges import require_share
from sb3_budget.core.starts import (
    Outcome,
    PoolEntries,
    Record,
    adapt_probability,
    draw_weighted,
    replay_weights,
    skip_probability,
)

#: A rule of the user's: ``(entries, rng) -> entry``.
DrawFunction = Callable[[PoolEntries, np.random.Generator], int]


class PoolRule(Protocol):
    """
    Which entry comes next. The pool keeps all of ``entries`` but the weights, which are the rule's.

    ``max_discarded`` is the largest share of the finished groups of a rollout that the update may leave out; 0 uses all.
    """

    max_discarded: float

    def draw(self, entries: PoolEntries, rng: np.random.Generator) -> int:
        """
        :param entries: What is known.
        :param rng: Source of the draw.
        :return: The entry that the next group begins in.
        """
        ...

    def after_record(self, entries: PoolEntries, record: Record) -> None:
        """
        :param entries: What is known, the record included.
        :param record: The latest finished groups, at least one.
        """
        ...


class RecycleRule:
    """
    Query recycling (Coelho et al., 2026, https://arxiv.org/abs/2606.10709). A start whose group had a spread and was used
    is consumed: its weight is 0. Starts of all other groups keep their weight and are drawn again, since having no spread
    is a state of the policy rather than of the start. Between two updates none is drawn twice where others are left.

    :param easy_decay: A start that is easy for the ``r``-th time in a row weighs ``easy_decay ** (r - 1)``, in ``(0, 1]``.
        1 by default, as in the paper, which notes that solved starts then waste rollouts.
    :param min_weight: Floor of that weight, positive, so that an easy start can still flip.
    :param draws_per_start: A new pass begins, and consumed starts weigh 1 again, when all are consumed, or else after this
        many draws per start of the pool, at least 1. Without that limit (``math.inf``) a pass never ends once only starts
        are left that the policy cannot solve, or always solves. 2 by default, about the whole budget of the paper.
    :param max_discarded: Largest share of the finished groups of a rollout that the update leaves out; 0 leaves none out.
    :raises ValueError: if an argument is out of range.
    """

    def __init__(
        self,
        easy_decay: float = 1.0,
        min_weight: float = 0.05,
        draws_per_start: float = 2.0,
        max_discarded: float = 0.9,
    ):
        _require_positive_share("easy_decay", easy_decay)
        _require_positive_share("min_weight", min_weight)
        require_share("max_discarded", max_discarded)
        if not draws_per_start >= 1.0:
            raise ValueError(f"draws_per_start={draws_per_start} must be at least 1 draw per start")
        self.easy_decay, self.min_weight, self.draws_per_start = easy_decay, min_weight, draws_per_start
        self.max_discarded = max_discarded
        self._draws = 0

    def draw(self, entries: PoolEntries, rng: np.random.Generator) -> int:
        weights = entries.weights
        if not weights.any() or self._draws >= self.draws_per_start * len(weights):
            weights[weights == 0.0] = 1.0
            self._draws = 0
        self._draws += 1
        others = np.where(entries.drawn, 0.0, weights)
        return draw_weighted(others if others.any() else weights, rng)

    def after_record(self, entries: PoolEntries, record: Record) -> None:
        returned = record.entries[entries.weights[record.entries] > 0.0]
        decayed = np.maximum(self.min_weight, self.easy_decay ** (entries.runs[returned] - 1.0))
        entries.weights[returned] = np.where(entries.outcomes[returned] == Outcome.EASY, decayed, 1.0)
        entries.weights[record.entries[record.used & (record.outcomes == Outcome.SIGNAL)]] = 0.0


class DiscardRule:
    """
    Dynamic sampling (DAPO; Yu et al., 2025, https://arxiv.org/abs/2503.14476). All starts are drawn once per pass, in random
    order, and groups without a spread are left out of the update.

    :param max_discarded: Largest share of the finished groups of a rollout that the update leaves out, so that it never
        loses all its data.
    :raises ValueError: if it is out of range.
    """

    def __init__(self, max_discarded: float = 0.9):
        require_share("max_discarded", max_discarded)
        self.max_discarded = max_discarded

    def draw(self, entries: PoolEntries, rng: np.random.Generator) -> int:
        return _draw_once_per_pass(entries.weights, rng)

    def after_record(self, entries: PoolEntries, record: Record) -> None:
        pass


class SkipRule:
    """
    GRESO (Zheng et al., 2025, https://arxiv.org/abs/2506.02177). All starts come up once per pass, in random order, but one
    whose latest ``z`` groups in a row had no spread is skipped with probability :math:`1 - p^z` until the next pass. After
    each rollout of the second pass on, ``p_easy`` and ``p_hard`` go down by 0.01 where the share of easy, or hard, groups
    has reached its target, and up otherwise. Groups without a spread are left out of the update.

    The defaults are those of the authors' code.

    :param p_easy: Chance at first that a start is tried again after one easy group, in ``[0.05, 0.95]``.
    :param p_hard: The same after one hard group.
    :param target_easy: Share of easy groups that is aimed at.
    :param target_hard: Share of hard groups that is aimed at: larger, since hard ones are more likely to change.
    :param max_skips: Largest number of skips in one draw, not negative.
    :param max_discarded: As for :class:`DiscardRule`.
    :raises ValueError: if an argument is out of range.
    """

    def __init__(
        self,
        p_easy: float = 0.5,
        p_hard: float = 0.5,
        target_easy: float = 1 / 12,
        target_hard: float = 1 / 6,
        max_skips: int = 100,
        max_discarded: float = 0.9,
    ):
        if not (0.05 <= p_easy <= 0.95 and 0.05 <= p_hard <= 0.95):
            raise ValueError(f"p_easy={p_easy} and p_hard={p_hard} must lie in [0.05, 0.95]")
        for name, share in (("target_easy", target_easy), ("target_hard", target_hard), ("max_discarded", max_discarded)):
            require_share(name, share)
        if max_skips < 0:
            raise ValueError(f"max_skips={max_skips} must not be negative")
        self.p_easy, self.p_hard = p_easy, p_hard
        self.target_easy, self.target_hard = target_easy, target_hard
        self.max_skips, self.max_discarded = max_skips, max_discarded

    def draw(self, entries: PoolEntries, rng: np.random.Generator) -> int:
        entry = _draw_once_per_pass(entries.weights, rng)
        for _ in range(self.max_skips):
            p = self.p_easy if entries.outcomes[entry] == Outcome.EASY else self.p_hard
            if rng.random() >= skip_probability(entries.runs[entry], p):
                break
            entry = _draw_once_per_pass(entries.weights, rng)
        return entry

    def after_record(self, entries: PoolEntries, record: Record) -> None:
        if entries.visits.max() < 2:
            return  # nothing was skipped yet
        easy, hard = (float((record.outcomes == outcome).mean()) for outcome in (Outcome.EASY, Outcome.HARD))
        self.p_easy = adapt_probability(self.p_easy, easy, self.target_easy)
        self.p_hard = adapt_probability(self.p_hard, hard, self.target_hard)


class LevelReplayRule:
    """
    Prioritized Level Replay (Jiang et al., 2021, https://arxiv.org/abs/2010.03934). A start that has been seen is drawn by the
    rank of its score, mixed with the time since its last visit; the probability of drawing one of these, rather than an
    unseen one, is the share of starts that have been seen. The score is the standard deviation of the latest group's
    returns, or what is passed to ``record``.

    :param temperature: Of the ranks, positive. 0.1 as in the paper (1 is the default of the authors' code).
    :param staleness_coef: Share of the weight that goes by the time since the last visit. 0.1 as in the paper (0 in the
        code).
    :param min_seen: Share of seen starts below which only unseen ones are drawn. 0.2 as in the code.
    :param max_discarded: As for :class:`DiscardRule`; 0 by default: all groups are used.
    :raises ValueError: if an argument is out of range.
    """

    def __init__(
        self,
        temperature: float = 0.1,
        staleness_coef: float = 0.1,
        min_seen: float = 0.2,
        max_discarded: float = 0.0,
    ):
        if not temperature > 0.0:
            raise ValueError(f"temperature={temperature} must be positive")
        require_share("staleness_coef", staleness_coef)
        require_share("min_seen", min_seen)
        require_share("max_discarded", max_discarded)
        self.temperature, self.staleness_coef, self.min_seen = temperature, staleness_coef, min_seen
        self.max_discarded = max_discarded

    def draw(self, entries: PoolEntries, rng: np.random.Generator) -> int:
        seen = entries.visits > 0
        unseen = ~seen & ~entries.drawn if (~seen & ~entries.drawn).any() else ~seen
        replayed = float(seen.mean()) if seen.mean() >= self.min_seen else 0.0
        entries.weights[:] = (1.0 - replayed) * unseen / max(1, int(unseen.sum()))
        if replayed:
            scores, last = entries.scores[seen], entries.last_records[seen]
            entries.weights[seen] = replayed * replay_weights(scores, last, self.temperature, self.staleness_coef)
        return draw_weighted(entries.weights, rng)

    def after_record(self, entries: PoolEntries, record: Record) -> None:
        pass


class OwnRule:
    """
    A function of the user's as a rule that uses all groups.

    :param fn: ``(entries, rng) -> entry``.
    """

    max_discarded = 0.0

    def __init__(self, fn: DrawFunction):
        self.fn = fn

    def draw(self, entries: PoolEntries, rng: np.random.Generator) -> int:
        return self.fn(entries, rng)

    def after_record(self, entries: PoolEntries, record: Record) -> None:
        pass


PRESETS: dict[str, Callable[[], PoolRule]] = {
    "recycle": RecycleRule,
    "discard": DiscardRule,
    "skip": SkipRule,
    "plr": LevelReplayRule,
}


def parse_rule(rule: str | PoolRule | DrawFunction) -> PoolRule:
    """
    :param rule: ``"recycle"``, ``"discard"``, ``"skip"``, ``"plr"``, an object with ``draw``, ``after_record`` and
        ``max_discarded``, or a function ``(entries, rng) -> entry``.
    :return: The rule.
    :raises ValueError: if it is none of these.
    """
    if isinstance(rule, str) and rule in PRESETS:
        return PRESETS[rule]()
    if not isinstance(rule, (str, type)):
        if all(hasattr(rule, name) for name in ("draw", "after_record", "max_discarded")):
            return rule  # type: ignore[return-value]  # it has all of the protocol
        if callable(rule):
            return OwnRule(rule)
    raise ValueError(
        f"rule={rule!r} is not one of {', '.join(map(repr, PRESETS))}, a rule or a function (entries, rng) -> entry"
    )


def _draw_once_per_pass(weights: NDArray[np.float64], rng: np.random.Generator) -> int:
    if not weights.any():
        weights[:] = 1.0
    entry = draw_weighted(weights, rng)
    weights[entry] = 0.0
    return entry


def _require_positive_share(name: str, value: float) -> None:
    if not 0.0 < value <= 1.0:
        raise ValueError(f"{name}={value} must lie in (0, 1]")
