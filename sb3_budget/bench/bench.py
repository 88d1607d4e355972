"""The sub-command ``bench``: arms against stock SB3 over seeds at an equal ledger."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sb3_budget.bench import arms, store
from sb3_budget.bench.pool import run_all
from sb3_budget.bench.progress import Progress
from sb3_budget.bench.run import Job, reference


def run_jobs(jobs: list[Job], out: Path, n_workers: int) -> list[str]:
    """
    Run what has not finished yet and save every run as soon as it is done. Controls come after the arms they copy.

    :param jobs: the runs
    :param out: folder of the benchmark
    :param n_workers: runs side by side
    :return: one sentence for every run that failed
    """
    originals = [job for job in jobs if arms.copied_arm(job.arm) is None]
    controls = [job for job in jobs if arms.copied_arm(job.arm) is not None]
    failures: list[str] = []
    with Progress(sum(job.steps for job in jobs)) as progress:
        _run_wave(originals, out, n_workers, progress, failures)
        _run_wave(list(_with_references(controls, originals, out, failures)), out, n_workers, progress, failures)
    return failures


def _with_references(controls: list[Job], originals: list[Job], out: Path, failures: list[str]) -> Iterator[Job]:
    finished = {(job.env_id, job.arm, job.seed): store.load(out, job) for job in originals}
    for job in controls:
        copied = finished.get((job.env_id, arms.copied_arm(job.arm) or "", job.seed))
        try:
            if copied is None:
                raise ValueError(f"{arms.copied_arm(job.arm)} did not finish")
            yield job._replace(reference=reference(copied))
        except ValueError as error:
            failures.append(f"{job.name}: {error}")


def _run_wave(jobs: list[Job], out: Path, n_workers: int, progress: Progress, failures: list[str]) -> None:
    pending = [job for job in jobs if store.load(out, job) is None]
    if len(pending) < len(jobs):
        progress.line(f"{len(jobs) - len(pending)} of {len(jobs)} runs are in {out} already")
        progress.update(sum(job.steps for job in jobs) - sum(job.steps for job in pending))
    for job, outcome in run_all(pending, min(n_workers, max(1, len(pending))), progress.update):
        if isinstance(outcome, Exception):
            failures.append(f"{job.name}: {type(outcome).__name__}: {outcome}")
            progress.line(f"failed  {failures[-1]}")
        else:
            store.save(out, job, outcome)
            progress.line(_line(outcome))


def _line(result: dict[str, Any]) -> str:
    steps, seconds, _, final, _ = result["points"][-1]
    length = "" if result["mean_length"] is None else f", episodes of {result['mean_length']:.0f} steps"
    return (
        f"{result['env']:16} {result['arm']:14} seed {result['seed']}: return {final:.1f} after {steps:.0f} steps, "
        f"{seconds:.0f} s{length}"
    )
