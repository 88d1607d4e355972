"""Finished runs on disk: one JSON file each, written whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from sb3_budget.bench.run import Job


def write_text(path: Path, text: str) -> None:
    """
    Write beside the file and rename, so that no reader and no interruption sees half of it.

    :param path: the file
    :param text: its new content
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(path.suffix + ".partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)


def write_json(path: Path, data: Any) -> None:
    """
    :param path: the file
    :param data: JSON-ready
    """
    write_text(path, json.dumps(data, indent=1) + "\n")


def save(out: Path, job: Job, result: dict[str, Any]) -> None:
    """
    :param out: folder of the benchmark
    :param job: the run
    :param result: its result
    """
    write_json(out / "seeds" / f"{job.name}.json", result)


def load(out: Path, job: Job) -> dict[str, Any] | None:
    """
    :param out: folder of the benchmark
    :param job: the run
    :return: its result, if it finished with exactly these settings
    """
    path = out / "seeds" / f"{job.name}.json"
    if not path.is_file():
        return None
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return result if result["run_hash"] == job.run_hash else None


def load_all(out: Path) -> list[dict[str, Any]]:
    """
    :param out: folder of the benchmark
    :return: every finished run in it, ordered by env, arm and seed
    """
    results = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((out / "seeds").glob("*.json"))]
    return sorted(results, key=lambda result: (result["env"], result["arm"], result["seed"]))


def command_of(out: Path) -> tuple[str, dict[str, float]] | None:
    """
    :param out: folder of the benchmark
    :return: the command line that its report is of, and the returns whose price it gives; ``None`` without a report
    """
    path = out / "results.json"
    if not path.is_file():
        return None
    settings = json.loads(path.read_text(encoding="utf-8"))["settings"]
    return settings["command"], settings.get("targets", {})
