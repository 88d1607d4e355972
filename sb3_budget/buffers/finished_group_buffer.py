"""Rollout buffers that train on groups of complete episodes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.buffers import DictRolloutBuffer, RolloutBuffer

from sb3_budget.buffers.group_rollout_buffer import GroupBufferMixin, among, numbered, places, require_one_of
from sb3_budget.core import weights as row_weights
from sb3_budget.core.group_advantages import (
    aggregation_factors,
    outcome_advantages,
    return_to_go_advantages,
    scaled,
    shaped_by_entropy,
)
from sb3_budget.core.groups import equal_returns

AGGREGATIONS = ("step", "episode", "constant")
FIELDS = ("actions", "values", "log_probs", "returns")


class Rows(NamedTuple):
    """
    Rows of a rollout, flat.

    :param observations: Observations by key; the key is ``""`` where there is only one.
    :param columns: What SB3's buffers hold of a row, and ``group``, ``episode``: number of its start, ``member``
        that played it, ``time``, ``reward``, ``weight``, ``age``: rollouts since it was added, and ``finished``: which of the
        finished groups it is of, or -1.
    """

    observations: dict[str, NDArray[Any]]
    columns: dict[str, NDArray[Any]]

    def __len__(self) -> int:
        return len(self.columns["group"])

    @property
    def batch(self) -> Any:
        """The observations as SB3 has them."""
        return self.observations.get("", self.observations)

    def select(self, chosen: NDArray[np.bool_]) -> Rows:
        """
        :param chosen: Which rows, shape (len(self),).
        :return: Copies of them.
        """
        return Rows(*({name: values[chosen] for name, values in part.items()} for part in (self.observations, self.columns)))

    def join(self, others: Rows) -> Rows:
        """
        :param others: Further rows.
        :return: These and the others.
        """
        pairs = ((self.observations, others.observations), (self.columns, others.columns))
        return Rows(*({name: np.concatenate([own[name], other[name]]) for name in own} for own, other in pairs))


def played(columns: dict[str, NDArray[Any]], used: Any = slice(None)) -> NDArray[np.int64]:
    """
    :param columns: Columns of :class:`Rows`.
    :param used: Which of the rows.
    :return: A number for the episode of each of these rows, from 0. A start is played by each member once.
    """
    return numbered(*(columns[name][used] for name in ("group", "member", "episode")))


class FinishedGroupBufferMixin(GroupBufferMixin):
    """
    Trains on groups of episodes once their last member has ended. Rows of the others are carried on to the next rollout,
    with the log-probabilities of the policy that acted: PPO's ratio knows how old they are. Advantages need no critic.

    A rollout that finishes no group leaves nothing to train on. Where episodes differ in length, rows of the shorter ones
    wait for the longest of their group.

    :param advantage: ``"outcome"`` (default): the episode's return less the group's mean, the same for all its rows.
        ``"return_to_go"``: the discounted return from the row on, less its mean over the other members at the same step.
    :param loss_aggregation: What the policy loss is a mean of, see
        :func:`~sb3_budget.core.group_advantages.aggregation_factors`.
    :param kwargs: As for :class:`GroupBufferMixin`; ``scale`` is ``"group"`` by default with ``"outcome"``, ``"batch"``
        with ``"return_to_go"``.
    """

    ADVANTAGES: ClassVar[dict[str, str | None]] = {"outcome": "group", "return_to_go": "batch"}

    def __init__(self, *args: Any, loss_aggregation: str = "step", **kwargs: Any):
        require_one_of("loss_aggregation", loss_aggregation, AGGREGATIONS)
        self.loss_aggregation = loss_aggregation
        self._carried: Rows | None = None
        super().__init__(*args, **kwargs)
        self._ready: Rows | None = None
        #: Mean number of rollouts that the rows to train on have waited; NaN without any.
        self.row_age = np.nan

    @property
    def empty(self) -> bool:
        return self._ready is None or not self._ready.columns["weight"].any()

    def drop_episodes(self, pairs: Iterable[tuple[int, int]]) -> None:
        dropped = set(pairs)
        super().drop_episodes(dropped)
        if self._carried is not None:
            columns = self._carried.columns
            columns["weight"][among(columns["group"], columns["episode"], dropped)] = 0.0

    def leave_out(self, pairs: Any) -> None:
        if self._ready is not None:
            columns = self._ready.columns
            columns["weight"][among(columns["group"], columns["episode"], set(pairs))] = 0.0

    # ------------------------------------------------------------------ advantages

    def _relate(self, oldest: NDArray[np.int64]) -> tuple[float, float]:
        rows = self._rows_of_rollout()
        if self._carried is not None:
            self._carried.columns["age"] += 1
            rows = self._carried.join(rows)
        columns = rows.columns
        finished = [(group.group, group.episode) for group in self.finished]
        columns["finished"] = places(columns["group"], columns["episode"], finished)
        ready = columns["finished"] >= 0
        self._carried = rows.select(~ready & (columns["episode"] >= oldest[columns["group"]]))
        self._ready = rows.select(ready) if ready.any() else None
        if self._ready is not None:
            self._ready.columns["advantages"] = self._advantages(self._ready.columns).astype(np.float32)
        self.row_age = float(self._ready.columns["age"].mean()) if self._ready is not None else np.nan
        return np.nan, float(self.group_size - 1) if ready.any() else 0.0

    def _rows_of_rollout(self) -> Rows:
        keys: dict[str, NDArray[Any]] = {
            "group": self._groups,
            "member": self.members,
            "episode": self.episodes,
            "time": self.times,
            "reward": self.plain_rewards,
            "weight": self.weights,
            "age": np.zeros_like(self.times),
            "finished": np.full_like(self.times, -1),
        }
        observations: Any = self.__dict__["observations"]
        named = observations if isinstance(observations, dict) else {"": observations}
        columns = {name: self.swap_and_flatten(getattr(self, name)) for name in FIELDS}  # type: ignore[attr-defined]
        return Rows(
            {name: self.swap_and_flatten(values) for name, values in named.items()},  # type: ignore[attr-defined]
            {**columns, **{name: values.T.ravel().copy() for name, values in keys.items()}},
        )

    def _advantages(self, columns: dict[str, NDArray[Any]]) -> NDArray[np.float64]:
        """Of the rows of finished groups; those of groups whose returns are alike are exactly 0."""
        row_group = columns["finished"]
        member, time = columns["member"], columns["time"]
        tolerance, deviation = self.zero_tolerance, self.outcomes.raw_return_std
        flat = np.array([equal_returns(group.raw_returns, tolerance, deviation) for group in self.finished])
        columns["alike"] = flat[row_group]
        assert self.scale is not None
        if self.advantage == "outcome":
            by_member = outcome_advantages(np.stack([group.returns for group in self.finished]))
            of_member = np.repeat(np.arange(len(by_member)), self.group_size)
            least = self.std_floor * self.outcomes.return_std
            by_member = scaled(by_member.ravel(), of_member, self.scale, least).reshape(by_member.shape)
            advantages = by_member[row_group, member]
            advantages[columns["alike"]] = 0.0
            return advantages
        rewards = np.zeros((len(self.finished), self.group_size, int(time.max()) + 1))
        rewards[row_group, member, time] = columns["reward"]
        advantages = return_to_go_advantages(rewards, self.gamma)[row_group, member, time]
        advantages[columns["alike"]] = 0.0
        return self._scaled(advantages, row_group)

    # ------------------------------------------------------------------ samples

    def get(self, batch_size: int | None = None) -> Generator[Any, None, None]:
        if self.empty:
            return
        self._load()
        kept = row_weights.thin(self._probabilities, self._thinning_rng)
        for rows in row_weights.chunks(kept, batch_size or len(kept)):
            yield self._get_samples(rows)  # type: ignore[attr-defined]  # the parent is a rollout buffer

    def get_episodes(self, batch_size: int) -> Generator[tuple[Any, NDArray[np.int64]], None, None]:
        """
        Minibatches of whole episodes, of at least ``batch_size`` rows where there are so many, in random order.

        :param batch_size: Least number of rows.
        :return: Samples, and the number of the episode of each row, from 0.
        """
        if self.empty:
            return
        self._load()
        assert self._ready is not None
        columns = self._ready.columns
        used = self._whole_episodes(columns)
        episode = played(columns, used)
        shuffled = self._thinning_rng.permutation(int(episode.max()) + 1)[episode]
        order = np.argsort(shuffled, kind="stable")
        batch_of_episode = row_weights.batches_of_at_least(np.bincount(shuffled), batch_size)
        for batch in range(int(batch_of_episode.max()) + 1):
            chosen = order[batch_of_episode[shuffled[order]] == batch]
            yield self._get_samples(used[chosen]), numbered(shuffled[chosen])  # type: ignore[attr-defined]

    def _whole_episodes(self, columns: dict[str, NDArray[Any]]) -> NDArray[np.int64]:
        """Rows of episodes, each of which stays with a chance that is proportional to the mean weight of its rows."""
        episode = played(columns)
        weights = np.bincount(episode, weights=columns["weight"]) / np.bincount(episode)
        stays = self._thinning_rng.random(len(weights)) < weights / weights.max()
        return np.flatnonzero(stays[episode] & (columns["weight"] > 0.0))

    def _load(self) -> None:
        """Put the rows to train on where the parent takes samples from."""
        if self.generator_ready:
            return
        assert self._ready is not None
        columns = self._ready.columns
        # Weighed here, when all is known: who is left out, and what was shaped.
        used = columns["weight"] > 0.0
        episode = played(columns, used)
        factors = aggregation_factors(episode, self.loss_aggregation, self.buffer_size * self.n_envs)
        columns["advantages"][used] *= factors.astype(np.float32)
        loaded = {"observations": self._ready.batch}
        self.__dict__.update(loaded | {name: columns[name] for name in (*FIELDS, "advantages")})
        self._probabilities = row_weights.inclusion_probabilities(columns["weight"])
        self.generator_ready = True

    # ------------------------------------------------------------------ shaping

    def shape_alike(self, entropy: Callable[[Any], NDArray[np.floating]], alpha: float, good_return: float) -> None:
        """
        Give the rows of groups whose returns are alike an advantage all the same, see
        :func:`~sb3_budget.core.group_advantages.shaped_by_entropy`.

        :param entropy: Entropy of the policy at observations, shape (n,).
        :param alpha: Strength.
        :param good_return: A group did well if its members' mean return is at least so high.
        """
        if self._ready is None:
            return
        chosen = self._ready.columns["alike"]
        if not chosen.any():
            return
        alike_rows = self._ready.select(chosen)
        entropies = entropy(alike_rows.batch)
        group = alike_rows.columns["finished"]
        good = np.array([finished.raw_returns.mean() >= good_return for finished in self.finished])[group]
        self._ready.columns["advantages"][chosen] = shaped_by_entropy(entropies, group, good, alpha)


class FinishedGroupRolloutBuffer(FinishedGroupBufferMixin, RolloutBuffer):
    """
    The rollout buffer of :class:`~sb3_budget.GRPO` with ``advantage="outcome"`` or ``"return_to_go"``.

    :param buffer_size: Number of rows per slot that a rollout adds.
    :param observation_space: Observation space, not a ``Dict``.
    :param action_space: Action space.
    :param kwargs: Keyword arguments of :class:`FinishedGroupBufferMixin` and :class:`~sb3_budget.SelectiveRolloutBuffer`.
    :raises ValueError: if an argument is out of range, ``n_envs`` is no multiple of ``group_size``, or the observation
        space is a ``Dict``.
    """


class FinishedGroupDictRolloutBuffer(FinishedGroupBufferMixin, DictRolloutBuffer):
    """
    ``Dict`` observations; otherwise as :class:`FinishedGroupRolloutBuffer`.

    :raises ValueError: if an argument is out of range or the observation space is no ``Dict``.
    """
