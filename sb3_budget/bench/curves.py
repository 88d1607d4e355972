"""The learning curves of one arm on one env, brought to common points."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np


class Curves(NamedTuple):
    """
    One row per seed.

    :param seeds: the seeds
    :param steps: ledger steps of the points (n_points,)
    :param seconds: seconds of training there (n_seeds, n_points)
    :param cpu_seconds: processor seconds of training there (n_seeds, n_points)
    :param returns: mean evaluated returns there (n_seeds, n_points)
    :param finals: last evaluated mean returns (n_seeds,)
    :param own_points: steps, seconds, processor seconds and returns of each seed as they were measured, each (4, n)
    """

    seeds: list[int]
    steps: np.ndarray
    seconds: np.ndarray
    cpu_seconds: np.ndarray
    returns: np.ndarray
    finals: np.ndarray
    own_points: list[np.ndarray]


def align(results: list[dict[str, Any]]) -> Curves:
    """
    Points of all seeds, interpolated to the steps of the seed that ended first.

    :param results: runs of one arm on one env
    :return: their curves
    """
    tables = [np.array(result["points"], dtype=float).T for result in results]
    grid = min((table[0] for table in tables), key=lambda steps: float(steps[-1]))

    def interpolated(row: int) -> np.ndarray:
        return np.array([np.interp(grid, table[0], table[row]) for table in tables])

    return Curves(
        seeds=[int(result["seed"]) for result in results],
        steps=grid,
        seconds=interpolated(1),
        cpu_seconds=interpolated(2),
        returns=interpolated(3),
        finals=np.array([table[3, -1] for table in tables]),
        own_points=[table[:4] for table in tables],
    )


def group(
    results: list[dict[str, Any]], asked_for: Collection[str] = ()
) -> tuple[dict[str, dict[str, list[dict[str, Any]]]], list[str]]:
    """
    Runs by env and arm. Runs of an arm with different settings cannot stand in one mean: those that were asked for stay, and
    without any the larger group.

    :param results: finished runs
    :param asked_for: hashes of the settings that were asked for
    :return: env id -> arm -> runs with equal settings, and one sentence for every run left out and every env whose arms
        do not compare
    """
    envs: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for result in results:
        envs.setdefault(result["env"], {}).setdefault(result["arm"], []).append(result)
    left_out: list[str] = []
    for env_id, by_arm in envs.items():
        for name, runs in by_arm.items():
            hashes = [run["settings_hash"] for run in runs]
            common = max(hashes, key=lambda each: (each in asked_for, hashes.count(each)))
            by_arm[name] = [run for run in runs if run["settings_hash"] == common]
            left_out += [
                f"{env_id}, {name}, seed {run['seed']}: left out, it ran with other settings"
                for run in runs
                if run["settings_hash"] != common
            ]
        for key, what in (
            ("steps", "budgets"),
            ("evals", "numbers of evaluations"),
            ("eval_episodes", "episodes per evaluation"),
            ("stochastic", "draws of actions in evaluations"),
        ):
            # Runs from before there was a choice took the likeliest actions.
            values = {name: runs[0]["settings"].get(key, False) for name, runs in by_arm.items()}
            if len(set(values.values())) > 1:
                listed = ", ".join(f"{name} {value}" for name, value in values.items())
                left_out.append(f"{env_id}: arms with different {what} stand beside each other: {listed}")
    return envs, left_out
