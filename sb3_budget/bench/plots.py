"""Learning curves as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sb3_budget.bench import statistics
from sb3_budget.bench.curves import Curves

NEEDS_MATPLOTLIB = "curves.png needs matplotlib: pip install 'sb3-budget[plots]'"


def plot_curves(envs: dict[str, dict[str, Curves]], path: Path) -> None:
    """
    Interquartile mean and 95 % bootstrap band against ledger steps and against seconds, one row per env.

    :param envs: env id -> arm -> curves
    :param path: the PNG
    """
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import EngFormatter
    except ImportError as error:
        raise ImportError(NEEDS_MATPLOTLIB) from error
    figure = Figure(figsize=(11, 0.6 + 3.4 * len(envs)), layout="constrained")
    axes: Any = figure.subplots(len(envs), 2, squeeze=False)
    names = list(dict.fromkeys(name for curves in envs.values() for name in curves))
    for row, (env_id, arms) in zip(axes, envs.items(), strict=True):
        for name, curves in arms.items():
            color = f"C{names.index(name) % 10}"
            low, high = statistics.band(curves.returns)
            for axis, xs in zip(row, (curves.steps, curves.seconds.mean(axis=0)), strict=True):
                axis.plot(xs, statistics.iqm(curves.returns), color=color, label=f"{name} (n={len(curves.seeds)})")
                axis.fill_between(xs, low, high, color=color, alpha=0.15, linewidth=0)
        for axis, label in zip(row, ("simulator steps (ledger)", "seconds of training"), strict=True):
            axis.set_title(env_id)
            axis.set_xlabel(label)
            axis.set_ylabel("return (IQM, 95 % band)")
            axis.xaxis.set_major_formatter(EngFormatter(sep=""))
            axis.grid(alpha=0.3)
        row[0].legend(fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120, metadata={"Software": None})
