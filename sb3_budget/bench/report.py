"""``results.json``, ``report.md`` and ``curves.png`` from the finished runs of a benchmark."""

from __future__ import annotations

import platform
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from sb3_budget.bench import arms, info, plots, store
from sb3_budget.bench.curves import align, group
from sb3_budget.bench.summary import summarize_env
from sb3_budget.vec_env.thread_vec_env import available_cpus

COLUMNS = (
    "arm", "seeds", "final return (IQM, 95 %)", "AUC (IQM, 95 %)", "x stock", "steps to stock's final", "of stock's steps",
    "seconds to stock's final", "steps/s", "mean length", "stop rate",
)  # fmt: skip
TARGET_COLUMNS = (
    "arm", "return", "steps (95 %)", "of stock's steps there", "steps by seed (IQM, 95 %)", "of stock's", "seconds",
    "processor seconds", "seeds that got there",
)  # fmt: skip


def write_report(out: Path, command: str, targets: dict[str, float], asked_for: Collection[str] = ()) -> tuple[str, list[str]]:
    """
    Read every finished run below a folder and write the three files beside them.

    :param out: folder of the benchmark
    :param command: the command line, for the report
    :param targets: env id -> return whose price is wanted
    :param asked_for: hashes of the settings whose runs are wanted, where an arm has run with several
    :return: the report, in Markdown, and the names of the files that were written
    """
    by_env, left_out = group(store.load_all(out), asked_for)
    if not by_env:
        raise ValueError(f"there is no finished run in {out / 'seeds'}")
    order = list(arms.ARMS)
    envs = {
        env_id: dict(sorted(runs.items(), key=lambda item: (order.index(item[0].partition("+")[0]), item[0])))
        for env_id, runs in by_env.items()
    }
    curves = {env_id: {name: align(runs) for name, runs in by_arm.items()} for env_id, by_arm in envs.items()}
    figures = {
        env_id: summarize_env(by_arm, curves[env_id], targets.get(env_id, targets.get(""))) for env_id, by_arm in envs.items()
    }
    settings = {
        "command": command,
        "targets": targets,
        "versions": info.versions(),
        "machine": f"{platform.system()} {platform.machine()}, {available_cpus()} cores",
        "runs": {env_id: {name: runs[0]["settings"] for name, runs in by_arm.items()} for env_id, by_arm in envs.items()},
    }
    results: dict[str, Any] = {"settings": settings, "envs": figures}
    if len(figures) == 1:
        results["arms"] = next(iter(figures.values()))["arms"]
    store.write_json(out / "results.json", results)
    text = markdown(results, left_out)
    store.write_text(out / "report.md", text)
    written = ["results.json", "report.md"]
    try:
        plots.plot_curves(curves, out / "curves.png")
        written.append("curves.png")
    except ImportError:
        text += f"\n{plots.NEEDS_MATPLOTLIB}\n"
        # One from before would stand beside figures that it does not show.
        (out / "curves.png").unlink(missing_ok=True)
    return text, written


def markdown(results: dict[str, Any], left_out: list[str]) -> str:
    """
    :param results: content of ``results.json``
    :param left_out: a sentence for every run that is not in it
    :return: the report
    """
    parts = [f"# {', '.join(results['envs'])}", f"`{results['settings']['command']}`"]
    for env_id, figures in results["envs"].items():
        parts += [f"## {env_id}", _table(COLUMNS, [_row(name, arm, figures["arms"]) for name, arm in figures["arms"].items()])]
        parts += [_seed_table(figures["arms"])]
        if targets := [_target_row(name, arm, figures["arms"]) for name, arm in figures["arms"].items() if "target" in arm]:
            parts += [_table(TARGET_COLUMNS, targets), _target_seed_table(figures["arms"])]
        if figures["contrasts"]:
            parts += [
                _table(
                    ("arm", "against", "pairs of seeds", "difference of finals (IQM, 95 %)", "wins"),
                    [
                        (pair["arm"], pair["against"], str(pair["n"]), _interval(pair), f"{pair['wins']}/{pair['n']}")
                        for pair in figures["contrasts"]
                    ],
                )
            ]
    names = dict.fromkeys(name for figures in results["envs"].values() for name in figures["arms"])
    parts += ["\n".join(f"- `{name}`: {arms.split(name)[0].summary}" for name in names)]
    drawn = any(run.get("stochastic", False) for runs in results["settings"]["runs"].values() for run in runs.values())
    actions = "episodes with actions drawn from the policy" if drawn else "deterministic episodes"
    parts += [
        f"Returns are undiscounted and raw, of {actions} on envs that are neither staggered nor gated. Steps are "
        "ledger steps. Seconds leave evaluations out. Where a return is reached: on the IQM curve, interpolated."
    ]
    versions = ", ".join(f"{name} {version}" for name, version in results["settings"]["versions"].items() if version)
    parts += [f"{results['settings']['machine']}; {versions}"]
    return "\n\n".join(parts + left_out) + "\n"


def _row(name: str, arm: dict[str, Any], every: dict[str, Any]) -> tuple[str, ...]:
    stock = every.get(arms.baseline(name), {}).get("final", {}).get("iqm")
    ratio = f"{arm['final']['iqm'] / stock:.2f}" if stock and stock > 0 else ""
    return (
        name,
        str(len(arm["seeds"])),
        _interval(arm["final"]),
        _interval(arm["auc"]),
        ratio,
        _number(arm.get("steps_to_stock_final"), "never" if stock is not None else ""),
        _share(arm),
        _number(arm.get("seconds_to_stock_final"), "never" if stock is not None else ""),
        _number(arm["steps_per_second"]),
        _number(arm["mean_length"]),
        "" if arm["stop_rate"] is None else f"{arm['stop_rate']:.3f}",
    )


def _share(arm: dict[str, Any]) -> str:
    if arm.get("share_of_stock_steps") is None:
        return ""
    low, high = ("never" if end is None else f"{end:.2f}" for end in arm["share_of_stock_steps_ci"])
    return f"{arm['share_of_stock_steps']:.2f} [{low}, {high}]"


def _target_row(name: str, arm: dict[str, Any], every: dict[str, Any]) -> tuple[str, ...]:
    target = arm["target"]
    stock = every.get(arms.baseline(name), {}).get("target", {})
    there = sum(seed["steps"] is not None for seed in target["seeds"].values())
    return (
        name,
        _number(target["return"]),
        _steps(target["steps"], target["steps_ci"]),
        _ratio(target["steps"], stock.get("steps")),
        _steps(target["seed_steps"], target["seed_steps_ci"]),
        _ratio(target["seed_steps"], stock.get("seed_steps")),
        _number(target["seconds"], "never"),
        _number(target["cpu_seconds"], "never"),
        f"{there}/{len(target['seeds'])}",
    )


def _steps(value: float | None, ends: list[float | None]) -> str:
    low, high = (_number(end, "never") for end in ends)
    return f"{_number(value, 'never')} [{low}, {high}]"


def _ratio(value: float | None, of: float | None) -> str:
    return "" if value is None or not of else f"{value / of:.2f}"


def _target_seed_table(every: dict[str, Any]) -> str:
    """Steps of each seed to the return that was asked for."""
    return _by_seed("steps of seed", every, lambda arm, seed: _number(arm["target"]["seeds"][seed]["steps"], "never"))


def _seed_table(every: dict[str, Any]) -> str:
    """Final return of each seed."""
    return _by_seed("final of seed", every, lambda arm, seed: _number(arm["seeds"][seed].get("final"), ""))


def _by_seed(title: str, every: dict[str, Any], cell: Callable[[dict[str, Any], str], str]) -> str:
    seeds = sorted({seed for arm in every.values() for seed in arm["seeds"]}, key=int)
    rows = [(name, *(cell(arm, seed) if seed in arm["seeds"] else "" for seed in seeds)) for name, arm in every.items()]
    return _table((title, *seeds), rows)


def _table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    widths = [max(len(cell) for cell in column) for column in zip(header, *rows, strict=True)]
    lines = [header, tuple("-" * width for width in widths), *rows]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    )


def _interval(figures: dict[str, Any]) -> str:
    low, high = figures["ci"]
    return f"{_number(figures['iqm'])} [{_number(low)}, {_number(high)}]"


def _number(value: float | None, missing: str = "") -> str:
    if value is None:
        return missing
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
