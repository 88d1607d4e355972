"""A ``DummyVecEnv`` that steps its environments in several threads, where that is faster."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from copy import deepcopy
from queue import SimpleQueue
from threading import Thread
from time import perf_counter
from typing import NamedTuple

import gymnasium as gym
import numpy as np
from stable_baselines3.common.vec_env import DummyVecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvStepReturn

#: Steps in a row that are timed with threads, or without. In a row, since each way leaves the caches as it needs them.
STEPS_PER_BLOCK = 8
#: Blocks of each way before one of them is chosen.
TIMED_BLOCKS = 3
#: Threads must be faster by a tenth at least: they take processors that something else may want.
LARGEST_PAYING_RATIO = 0.9


def available_cpus() -> int:
    """
    :return: Processors that this process may use.
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads_pay(serial_times: Sequence[float], threaded_times: Sequence[float]) -> bool:
    """
    Whether to step in threads. Medians, so that neither a slow first step nor a single reset decides.

    :param serial_times: Wall time of steps without threads [s].
    :param threaded_times: Wall time of steps with threads [s].
    :return: ``True`` if the median step with threads takes at most 0.9 of the median step without.
    """
    return bool(np.median(threaded_times) <= LARGEST_PAYING_RATIO * np.median(serial_times))


class _Job(NamedTuple):
    """One step of some slots."""

    step_slots: Callable[[list[int]], None]
    slots: list[int]
    #: What it raised, by its first slot.
    outcomes: dict[int, BaseException | None]
    #: Wakes the caller.
    finished: SimpleQueue[None]


class _Worker(Thread):
    """Does the jobs it is given until it is given ``None``. A daemon: it must not keep a program without ``close()`` alive."""

    def __init__(self, number: int):
        super().__init__(name=f"thread-vec-env-{number}", daemon=True)
        self.jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self.start()

    def run(self) -> None:
        while self._do(self.jobs.get()):
            pass

    @staticmethod
    def _do(job: _Job | None) -> bool:
        # A function of its own: its variables go with it, so that an idle thread keeps no environment alive.
        if job is None:
            return False
        error = None
        try:
            job.step_slots(job.slots)
        except BaseException as raised:
            error = raised
        job.outcomes[job.slots[0]] = error
        job.finished.put(None)
        return True


def _dismiss(workers: list[_Worker]) -> None:
    for worker in workers:
        worker.jobs.put(None)


class ThreadVecEnv(DummyVecEnv):
    """
    Steps its environments in the threads of one process, with the results of ``DummyVecEnv``, bit for bit.

    Simulators such as MuJoCo and the Arcade Learning Environment release Python's interpreter lock while they compute,
    so that threads run them in parallel, without the copies between processes that make ``SubprocVecEnv`` slow for
    short steps::

        venv = make_vec_env("Ant-v5", n_envs=16, vec_env_cls=ThreadVecEnv)

    Environments that are Python throughout gain nothing. Therefore the first 48 steps are timed, half of them with
    threads, and the faster way is kept; which one it was changes no result.

    The environments must share nothing that changes, NumPy's and Python's global random generators included: the order
    in which two environments come to it would differ from run to run.

    If environments raise, :meth:`step_wait` raises the error of the first slot among them, after all threads are
    done with the step.

    :param env_fns: Functions that each make one environment.
    :param n_threads: Number of threads, the calling one included. Each steps neighbouring slots, and the same ones in
        every step. At most one per environment is used. By default the processors that this process may use.
    :param threaded: ``True`` always steps in threads, ``False`` never does, and ``None`` decides from the first steps.
        The attribute of the same name says what was decided, ``None`` until then, and may be set between steps. With
        one thread it is ``False``.
    :raises ValueError: if ``n_threads`` is not positive, or two functions return the same environment.
    """

    def __init__(self, env_fns: list[Callable[[], gym.Env]], n_threads: int | None = None, threaded: bool | None = None):
        if n_threads is not None and n_threads < 1:
            raise ValueError(f"n_threads={n_threads} must be at least 1")
        super().__init__(env_fns)
        self.n_threads = min(available_cpus() if n_threads is None else n_threads, self.num_envs)
        self.threaded = threaded if self.n_threads > 1 else False
        self.closed = False
        self._chunks: list[list[int]] = [part.tolist() for part in np.array_split(np.arange(self.num_envs), self.n_threads)]
        #: Wall time of the steps without threads and with them [s].
        self._step_times: tuple[list[float], list[float]] = ([], [])
        self._workers: list[_Worker] = []
        weakref.finalize(self, _dismiss, self._workers)

    def step_wait(self) -> VecEnvStepReturn:
        if self.threaded is None:
            return self._timed_step()
        return self._threaded_step() if self.threaded else super().step_wait()

    def close(self) -> None:
        if self.closed:
            return
        # Not while a thread that was left behind by an interrupt still steps one of them.
        self._end_threads()
        self.closed = True
        super().close()

    def _timed_step(self) -> VecEnvStepReturn:
        """A step with threads or without, block by block; the last one decides."""
        serial_times, threaded_times = self._step_times
        threaded = (len(serial_times) + len(threaded_times)) // STEPS_PER_BLOCK % 2 == 1
        began = perf_counter()
        outcome = self._threaded_step() if threaded else super().step_wait()
        self._step_times[threaded].append(perf_counter() - began)
        if len(threaded_times) == TIMED_BLOCKS * STEPS_PER_BLOCK:
            self.threaded = threads_pay(serial_times, threaded_times)
            if not self.threaded:
                self._end_threads()
        return outcome

    def _threaded_step(self) -> VecEnvStepReturn:
        if not self._workers:
            self._workers.extend(_Worker(number) for number in range(1, self.n_threads))
        own, *others = self._chunks
        outcomes: dict[int, BaseException | None] = {}
        finished: SimpleQueue[None] = SimpleQueue()
        for worker, slots in zip(self._workers, others, strict=True):
            worker.jobs.put(_Job(self._step_slots, slots, outcomes, finished))

        def wait_for_others() -> None:
            # The outcomes are counted and not the wake-ups, one of which an interrupt may swallow.
            while len(outcomes) < len(others):
                finished.get()

        try:
            self._step_slots(own)
            wait_for_others()
        finally:
            # Also after an error or an interrupt: whoever catches it may reset environments that are still stepped.
            wait_for_others()
        for slot in sorted(outcomes):
            error = outcomes[slot]
            if error is not None:
                raise error
        return self._obs_from_buf(), np.copy(self.buf_rews), np.copy(self.buf_dones), deepcopy(self.buf_infos)

    def _step_slots(self, slots: list[int]) -> None:
        """The loop of ``DummyVecEnv.step_wait`` over some of the slots."""
        for slot in slots:
            obs, self.buf_rews[slot], terminated, truncated, info = self.envs[slot].step(self.actions[slot])
            self.buf_infos[slot] = info
            self.buf_dones[slot] = terminated or truncated
            info["TimeLimit.truncated"] = truncated and not terminated
            if self.buf_dones[slot]:
                info["terminal_observation"] = obs
                obs, self.reset_infos[slot] = self.envs[slot].reset()
            self._save_obs(slot, obs)

    def _end_threads(self) -> None:
        _dismiss(self._workers)
        for worker in self._workers:
            worker.join()
        self._workers.clear()
