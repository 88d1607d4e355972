"""What ``results.json`` says: every arm in figures, per env."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sb3_budget.bench import arms as known_arms
from sb3_budget.bench import statistics
from sb3_budget.bench.curves import Curves

CONTRASTS = (
    ("full", "random-gate"),
    ("full", "short-horizon"),
    ("select", "random-gate"),
    ("select", "short-horizon"),
    ("horizon", "short-horizon"),
    ("grpo", "grouped"),
    ("grpo+select", "grpo"),
    ("grpo+select", "grpo+random-gate"),
    ("allocate", "uniform-archive"),
    ("dqn+pool", "dqn+uniform-pool"),
    ("dqn+graph", "dqn+pool"),
    ("dqn+explore", "dqn+graph"),
)
"""Which part causes a gain: pairs of arms, besides every arm against its baseline, ``stock`` or ``dqn``."""


def summarize_env(runs: dict[str, list[dict[str, Any]]], curves: dict[str, Curves], target: float | None) -> dict[str, Any]:
    """
    :param runs: arm -> finished runs on one env
    :param curves: arm -> their curves
    :param target: a return whose price in steps and seconds is wanted
    :return: ``arms`` and ``contrasts``, JSON-ready
    """
    budget = min_budget(curves)
    baselines = {name: known_arms.baseline(name) for name in runs}
    arms = {name: _arm(runs[name], curves[name], curves.get(baselines[name]), budget) for name in runs}
    if target is not None:
        for name, figures in arms.items():
            figures["target"] = {"return": target, **_reach(curves[name], target, None)}
    pairs = [(name, other) for name, other in baselines.items() if name != other]
    # Arms of one label share their settings.
    for label in sorted({known_arms.split(name)[1] for name in runs} | {""}):
        pairs += [(ours + label, theirs + label) for ours, theirs in CONTRASTS]
    contrasts = [_contrast(curves[a], curves[b], a, b) for a, b in pairs if a in curves and b in curves]
    return {"arms": arms, "contrasts": [contrast for contrast in contrasts if contrast["n"]]}


def min_budget(curves: dict[str, Curves]) -> float:
    """
    :param curves: arm -> curves
    :return: ledger steps that every arm has spent
    """
    return min(float(arm.steps[-1]) for arm in curves.values())


def _arm(runs: list[dict[str, Any]], curves: Curves, stock: Curves | None, budget: float) -> dict[str, Any]:
    aucs = areas(curves, budget)
    figures: dict[str, Any] = {
        "final": statistics.interval(curves.finals)._asdict(),
        "auc": statistics.interval(aucs)._asdict(),
        "ledger": {key: _mean(run["ledger"][key] for run in runs) for key in runs[0]["ledger"]},
        "steps_per_second": float(np.mean(curves.steps[-1] / curves.seconds[:, -1])),
        "mean_length": _mean(run["mean_length"] for run in runs),
        "stop_rate": _mean(run["stops"] / run["looks"] for run in runs if run["looks"]),
        "log": {
            key: _mean(run["log"].get(key) for run in runs) for key in sorted({key for run in runs for key in run["log"]})
        },
        "seeds": {
            str(run["seed"]): {"final": float(final), "auc": float(auc), "mean_length": run["mean_length"]}
            for run, final, auc in zip(runs, curves.finals, aucs, strict=True)
        },
        "curve": {
            "steps": curves.steps.tolist(),
            "seconds": curves.seconds.mean(axis=0).tolist(),
            "iqm": statistics.iqm(curves.returns).tolist(),
        },
    }
    if stock is not None:
        level = float(statistics.iqm(stock.finals))
        # The same seeds are resampled together: a seed on which both learn late is late for both.
        paired = curves.seeds == stock.seeds
        reach = _reach(curves, level, statistics.bootstrap_iqms(stock.finals, seed=0 if paired else 1))
        figures |= {
            "steps_to_stock_final": reach["steps"],
            "steps_to_stock_final_ci": reach["steps_ci"],
            "share_of_stock_steps": _share(reach["steps"], float(stock.steps[-1])),
            "share_of_stock_steps_ci": [_share(end, float(stock.steps[-1])) for end in reach["steps_ci"]],
            "seconds_to_stock_final": reach["seconds"],
            "share_of_stock_seconds": _share(reach["seconds"], float(stock.seconds[:, -1].mean())),
        }
        for seed, own in reach["seeds"].items():
            figures["seeds"][seed]["steps_to_stock_final"] = own["steps"]
            figures["seeds"][seed]["seconds_to_stock_final"] = own["seconds"]
    return figures


def areas(curves: Curves, budget: float) -> np.ndarray:
    """
    :param curves: curves of an arm
    :param budget: ledger steps up to which the mean height is taken
    :return: mean height of each seed's curve (n_seeds,)
    """
    # From 0 on, also where steps were spent before the first evaluation.
    steps = np.unique(np.concatenate([[0.0], curves.steps[curves.steps < budget], [budget]]))
    return statistics.area(steps, np.array([np.interp(steps, curves.steps, returns) for returns in curves.returns]))


def _reach(curves: Curves, level: float, levels: np.ndarray | None) -> dict[str, Any]:
    """Steps and seconds to a return: of the interquartile mean curve, and of every seed; ``None`` where never."""
    middle = statistics.iqm(curves.returns)
    # Of a seed as it was measured: between the steps of others a peak is cut off.
    each = np.array([statistics.first_reach(points[0], points[3], level) for points in curves.own_points])
    low, high = statistics.reach_interval(curves.steps, curves.returns, level if levels is None else levels)
    return {
        "steps": _finite(statistics.first_reach(curves.steps, middle, level)),
        "steps_ci": [_finite(low), _finite(high)],
        "seed_steps": _finite(float(statistics.iqm(each))),
        "seed_steps_ci": [_finite(end) for end in statistics.nearest_band(each)],
        "seconds": _finite(statistics.first_reach(curves.seconds.mean(axis=0), middle, level)),
        "cpu_seconds": _finite(statistics.first_reach(curves.cpu_seconds.mean(axis=0), middle, level)),
        "seeds": {
            str(seed): {
                "steps": _finite(steps),
                "seconds": _finite(statistics.first_reach(points[1], points[3], level)),
            }
            for seed, steps, points in zip(curves.seeds, each, curves.own_points, strict=True)
        },
    }


def _contrast(first: Curves, second: Curves, first_name: str, second_name: str) -> dict[str, Any]:
    ours, theirs = (dict(zip(arm.seeds, arm.finals, strict=True)) for arm in (first, second))
    return {"arm": first_name, "against": second_name, **paired(ours, theirs)}


def paired(ours: Mapping[Any, float], theirs: Mapping[Any, float]) -> dict[str, Any]:
    """
    :param ours: final returns by seed
    :param theirs: those of another arm
    :return: number ``n`` of seeds that both have, and, if any, ``wins`` of ours and the interval of the differences
    """
    differences = np.array([final - theirs[seed] for seed, final in ours.items() if seed in theirs])
    if not len(differences):
        return {"n": 0}
    return {"n": len(differences), "wins": int((differences > 0).sum()), **statistics.interval(differences)._asdict()}


def _mean(values: Any) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _share(value: float | None, of: float) -> float | None:
    return None if value is None or not of else value / of
