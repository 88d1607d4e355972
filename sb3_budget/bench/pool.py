"""Many runs over few processor cores."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from sb3_budget.bench.run import Job, run

Outcome = dict[str, Any] | Exception
_steps: Any = None


def run_all(jobs: list[Job], n_workers: int, progress: Callable[[int], None]) -> Iterator[tuple[Job, Outcome]]:
    """
    Run every job and yield it as soon as it is done, with its result or the exception that ended it. Left early, by an
    exception such as ``KeyboardInterrupt``, it ends the runs in progress.

    :param jobs: the runs
    :param n_workers: processes; 1 stays in this one
    :param progress: called with the number of new simulator steps
    """
    if n_workers == 1:
        for job in jobs:
            yield job, _attempt(job, progress)
    else:
        yield from _run_in_processes(jobs, n_workers, progress)


def _attempt(job: Job, progress: Callable[[int], None]) -> Outcome:
    try:
        return run(job, progress)
    except Exception as error:
        return error


def _run_in_processes(jobs: list[Job], n_workers: int, progress: Callable[[int], None]) -> Iterator[tuple[Job, Outcome]]:
    lost = []
    for job, outcome in _together(jobs, n_workers, progress):
        if isinstance(outcome, BrokenProcessPool):
            lost.append(job)
        else:
            yield job, outcome
    # A process that is killed takes all others along, and nobody knows which it was: what is left runs one by one.
    for job in lost:
        ((_, outcome),) = _together([job], 1, progress)
        if isinstance(outcome, BrokenProcessPool):
            outcome = RuntimeError("its process was killed, by a crash or for lack of memory")
        yield job, outcome


def _together(jobs: list[Job], n_workers: int, progress: Callable[[int], None]) -> Iterator[tuple[Job, Outcome]]:
    """Jobs of which all that have not finished end with ``BrokenProcessPool`` once a process is killed."""
    context = multiprocessing.get_context("spawn")
    steps = context.Value("q", 0)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    others = multiprocessing.active_children()
    executor = ProcessPoolExecutor(n_workers, mp_context=context, initializer=_start_worker, initargs=(steps,))
    reported = 0
    try:
        running: dict[Future[Outcome], Job] = {executor.submit(_run_in_worker, job): job for job in jobs}
        while running:
            done, _ = wait(running, timeout=0.5, return_when=FIRST_COMPLETED)
            progress(steps.value - reported)
            reported = steps.value
            for future in done:
                broken = future.exception()
                yield running.pop(future), broken if isinstance(broken, BrokenProcessPool) else future.result()
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
        for child in multiprocessing.active_children():
            if child not in others:
                child.terminate()


def _start_worker(steps: Any) -> None:
    """A worker leaves Ctrl-C to its parent and adds its steps to a shared count."""
    global _steps
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _steps = steps


def _run_in_worker(job: Job) -> Outcome:
    return _attempt(job, _count)


def _count(n_steps: int) -> None:
    with _steps.get_lock():
        _steps.value += n_steps
