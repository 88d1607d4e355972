"""Targets for DQN from the graph that pooled transitions make."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch as th
from numpy.typing import NDArray
from stable_baselines3 import DQN
from stable_baselines3.common.base_class import BaseAlgorithm

from sb3_budget.buffers.pooled_targets import PooledTargets, Untried
from sb3_budget.buffers.replay_rows import Samples
from sb3_budget.buffers.zero_variance_replay_buffer import ZeroVarianceBufferMixin
from sb3_budget.callbacks.progress import present_training
from sb3_budget.core.determinism import Verdict
from sb3_budget.core.transition_fields import entries, part_of
from sb3_budget.core.transition_graph import exact_values

#: Pooled transitions that go through a network at once, at most.
LARGEST_CHUNK = 1_024


def graph_targets(model: DQN, buffer: ZeroVarianceBufferMixin, optimism: float | None) -> PooledTargets:
    """
    Exact values on the graph of pooled transitions. Of a state's other actions, those that were tried count with the target
    network's value, which stock batches train. One that was never tried is nothing but a guess of the network: it is left
    out, or worth what ``optimism`` says (Brafman and Tennenholtz, 2002, "R-max").

    :param model: A DQN.
    :param buffer: Its buffer, whose pool is not empty.
    :param optimism: Value of actions that were never tried, in the environment's own rewards. ``None`` leaves them out.
    :return: Targets of the pooled transitions, and of the untried actions of their states if they have a value.
    """
    normalize = model.get_vec_normalize_env()
    if optimism is not None and normalize is not None and normalize.norm_reward:
        # Rewards are divided by this, and so is a sum of them.
        optimism /= float(np.sqrt(normalize.ret_rms.var + normalize.epsilon))
    sources, targets = buffer.graph()
    flat = buffer.pool.take(np.arange(len(buffer.pool)), ["actions", "dones"])
    rewards = np.concatenate([samples.rewards.cpu().numpy().ravel() for _, samples in chunks(model, buffer)])
    # A state is seen where its first transition begins, and one outside of the graph where it is led to.
    firsts = np.unique(sources, return_index=True)[1]
    n_actions = int(model.action_space.n)  # type: ignore[attr-defined]  # DQN's are Discrete
    is_pooled = np.zeros((len(firsts), n_actions), dtype=np.bool_)
    is_pooled[sources, flat["actions"].ravel()] = True
    others, untried = _others(model, buffer, "observations", firsts, is_pooled, optimism)
    leaves = np.flatnonzero((targets < 0) & (flat["dones"] <= 0))
    end_values = np.zeros(len(sources))
    end_values[leaves], _ = _others(
        model, buffer, "next_observations", leaves, np.zeros((len(leaves), n_actions), dtype=np.bool_), optimism
    )
    values = exact_values(sources, targets, rewards, end_values, others, model.gamma)
    keys, is_current = buffer.pool.keys(), present_training(model)
    if optimism is None:
        return PooledTargets(keys, values, model.gamma, is_current=is_current)
    states, actions = np.nonzero(untried)
    guessed = Untried([keys[row] for row in firsts[states]], actions[:, None].astype(flat["actions"].dtype), optimism)
    return PooledTargets(keys, values, model.gamma, guessed, is_current)


def chunks(
    model: BaseAlgorithm, buffer: ZeroVarianceBufferMixin, rows: NDArray[np.int64] | None = None
) -> Iterator[tuple[NDArray[np.int64], Samples]]:
    """
    :param model: Whose ``VecNormalize`` applies, if it has one.
    :param buffer: Its buffer.
    :param rows: Rows of the pool. By default all.
    :return: Pieces of them that fit any memory, with their transitions.
    """
    wanted = np.arange(len(buffer.pool)) if rows is None else rows
    for piece in np.array_split(wanted, 1 + len(wanted) // LARGEST_CHUNK):
        yield piece, buffer.read_pool(piece, model.get_vec_normalize_env())


def _others(
    model: DQN,
    buffer: ZeroVarianceBufferMixin,
    part: str,
    rows: NDArray[np.int64],
    is_pooled: NDArray[np.bool_],
    optimism: float | None,
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """
    The best of the actions that are not pooled, of the states in which (or to which) some pooled transitions lead.

    :return: Its value, shape (m,); and which actions were never tried, shape (m, n_actions). Where there is none of value,
        minus infinity if others are pooled, and otherwise the network's largest value.
    """
    n_actions = is_pooled.shape[1]
    best, untried = np.full(len(rows), -np.inf), np.zeros((len(rows), n_actions), dtype=np.bool_)
    done = 0
    for piece, samples in chunks(model, buffer, rows):
        here = slice(done, done + len(piece))
        done += len(piece)
        with th.no_grad():
            values = model.q_net_target(getattr(samples, part)).cpu().numpy()
        pooled = is_pooled[here]
        states, actions = np.nonzero(~pooled)
        taken = buffer.pool.take(piece)
        shown = {name: entry[states] for name, entry in entries(part_of(taken, part)).items()}
        keys = buffer.watch.transition_keys.keys(shown, actions[:, None].astype(taken["actions"].dtype))
        known, verdict = buffer.detector.evidence, buffer.detector.verdict
        tried = np.array([known(key) is not None or verdict(key) is Verdict.STOCHASTIC for key in keys], dtype=bool)
        untried[here][states[~tried], actions[~tried]] = True
        if optimism is not None:
            values[untried[here]] = optimism
        counts = ~pooled if optimism is not None else ~pooled & ~untried[here]
        best[here] = np.where(counts, values, -np.inf).max(axis=1, initial=-np.inf)
        nothing = ~counts.any(axis=1) & ~pooled.any(axis=1)
        best[here][nothing] = values[nothing].max(axis=1, initial=-np.inf)
    return best, untried
