"""Threads change how long a step takes, and nothing else."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from sb3_budget import EpisodeControlVecEnv, StaggeredResetVecEnv
from sb3_budget.vec_env import thread_vec_env
from sb3_budget.vec_env.thread_vec_env import ThreadVecEnv, available_cpus, threads_pay
from tests.vec_env.slot_envs import SPACES, NoisyEnv, assert_same, episode_ends, make_slot, make_venv, step

N_TIMED = 2 * thread_vec_env.TIMED_BLOCKS * thread_vec_env.STEPS_PER_BLOCK
#: Both ways without a choice, and while it is made, with slots that do and do not fill the threads evenly.
WAYS = {
    "two_threads": {"n_threads": 2, "threaded": True},
    "three_threads": {"n_threads": 3, "threaded": True},
    "a_thread_each": {"n_threads": 99, "threaded": True},
    "one_thread": {"n_threads": 1},
    "serial": {"n_threads": 2, "threaded": False},
    "undecided": {"n_threads": 2},
}


def in_threads(**kwargs):
    return partial(ThreadVecEnv, **kwargs)


def without_clocks(outcome):
    for info in outcome[3]:
        info.get("episode", {}).pop("t", None)
    return outcome


class ProbeEnv(gym.Env):
    """Notes the threads that step it, and calls a function in each step."""

    observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = spaces.Discrete(2)
    render_mode = None

    def __init__(self, in_step=lambda: None):
        self.in_step = in_step
        self.threads, self.steps, self.closed = [], 0, 0

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.threads.append(threading.current_thread().name)
        self.in_step()
        self.steps += 1
        return np.zeros(1, np.float32), 0.0, False, False, {}

    def close(self):
        self.closed += 1


def probes(*in_steps, **kwargs):
    """A VecEnv of a ``ProbeEnv`` for each of the functions."""
    venv = ThreadVecEnv([partial(ProbeEnv, in_step) for in_step in in_steps], **kwargs)
    venv.reset()
    return venv


def raising(error):
    def in_step():
        raise error

    return in_step


def nothing():
    pass


def alive():
    return [thread for thread in threading.enumerate() if thread.name.startswith("thread-vec-env")]


def forget_threads():
    """Those of a ``VecEnv`` that nobody holds any more."""
    if alive():
        gc.collect()
    for thread in alive():
        thread.join(timeout=10)
    assert not alive()


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    forget_threads()


# ---------------------------------------------------------------------- the same as DummyVecEnv


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", SPACES)
def test_outcomes_are_those_of_dummy_vec_env(kind, way):
    # Slots terminate after 5 steps or are truncated before, or at the same step as they terminate.
    options = {"kind": kind, "length": 5, "time_limits": [3, 9, 4, 5, 9], "monitor": True}
    stock = make_venv(5, **options)
    venv = make_venv(5, vec_env_cls=in_threads(**WAYS[way]), **options)
    assert_same(stock.reset(), venv.reset())
    for _ in range(N_TIMED + 4):
        expected, outcome = without_clocks(step(stock)), without_clocks(step(venv))
        assert_same(expected, outcome)
        assert_same(stock.reset_infos, venv.reset_infos)
        assert outcome[1].dtype == np.float32 and outcome[2].dtype == bool
        assert type(outcome[0]) is type(expected[0])
    venv.close()


@pytest.mark.parametrize("integer_rewards", [False, True])
def test_outcomes_of_a_step_are_copies_that_later_steps_leave_alone(integer_rewards):
    venv = make_venv(4, vec_env_cls=in_threads(**WAYS["two_threads"]), integer_rewards=integer_rewards, time_limits=2)
    first_obs = venv.reset()
    step(venv)
    obs, rewards, dones, infos = step(venv)
    step(venv)
    assert first_obs[:, 2].tolist() == [0, 0, 0, 0]
    assert obs[:, 1].tolist() == [1, 1, 1, 1]
    assert rewards.tolist() == [2.0, 12.0, 22.0, 32.0]
    assert dones.all() and all(info["TimeLimit.truncated"] for info in infos)
    assert [info["terminal_observation"].tolist() for info in infos] == [[slot, 0, 2] for slot in range(4)]
    venv.close()


def test_seeds_reach_the_generator_of_each_environment():
    observations = []
    for vec_env_cls in (DummyVecEnv, in_threads(**WAYS["three_threads"])):
        venv = make_vec_env(lambda: gym.wrappers.TimeLimit(NoisyEnv(), 3), n_envs=4, seed=7, vec_env_cls=vec_env_cls)
        observations.append([venv.reset(), *(step(venv)[0] for _ in range(8))])
        venv.close()
    assert_same(*observations)
    assert len(np.unique(observations[0][0][:, 0])) == 4


def test_attributes_methods_options_and_rendering_are_those_of_dummy_vec_env():
    answers = []
    for vec_env_cls in (DummyVecEnv, in_threads(**WAYS["two_threads"])):
        venv = make_venv(3, vec_env_cls=vec_env_cls, time_limits=9, monitor=True)
        venv.set_attr("note", 5, indices=[1])
        seeds = venv.seed(3)
        venv.set_options({"step": 4})
        answers.append(
            [
                venv.reset(),
                step(venv)[0],
                venv.get_attr("slot"),
                venv.get_attr("note", indices=1),
                venv.get_attr("seeds"),
                venv.env_method("action_masks", indices=[2]),
                venv.env_is_wrapped(Monitor),
                venv.env_is_wrapped(VecNormalize),
                venv.has_attr("note"),
                venv.render_mode,
                venv.metadata,
                venv.render(),
                seeds,
            ]
        )
        venv.close()
    assert_same(*answers)


def test_ppo_learns_bit_identical_parameters():
    learnt = []
    for vec_env_cls in (DummyVecEnv, *(in_threads(**WAYS[way]) for way in ("three_threads", "undecided"))):
        venv = make_venv(5, vec_env_cls=vec_env_cls, time_limits=[9, 3, 4, 5, 6], monitor=True)
        model = PPO("MlpPolicy", VecNormalize(venv), n_steps=32, batch_size=80, n_epochs=1, seed=3, device="cpu")
        learnt.append(torch.nn.utils.parameters_to_vector(model.learn(2 * 5 * 32).policy.parameters()))
        venv.close()
    for parameters in learnt[1:]:
        assert torch.equal(learnt[0], parameters)


@pytest.mark.parametrize("wrapper", [EpisodeControlVecEnv, partial(StaggeredResetVecEnv, n_steps=4, seed=1)])
def test_slots_are_stopped_and_shifted_on_top_of_it(wrapper):
    seen = []
    for vec_env_cls in (DummyVecEnv, in_threads(**WAYS["three_threads"])):
        venv = wrapper(make_venv(5, vec_env_cls=vec_env_cls, time_limits=8, monitor=True))
        venv.reset()
        ends = episode_ends(venv, 3)
        venv.request_stop([1, 4])
        seen.append([*ends, *episode_ends(venv, 20), step(venv)[0], venv.reset_infos])
        venv.close()
    assert_same(*seen)
    reasons = {end["reason"] for ends in seen[0][:-2] for end in ends}
    assert {"stopped", "time_limit"} <= reasons
    assert ("stagger" in reasons) == isinstance(venv, StaggeredResetVecEnv)


# ---------------------------------------------------------------------- threads


def test_each_thread_steps_neighbouring_slots_and_the_caller_steps_the_first():
    venv = probes(*[nothing] * 7, n_threads=3, threaded=True)
    for _ in range(20):
        step(venv)
    names = [set(threads) for threads in venv.get_attr("threads")]
    own = threading.current_thread().name
    assert names == [{name} for name in [own] * 3 + ["thread-vec-env-1"] * 2 + ["thread-vec-env-2"] * 2]
    assert len(alive()) == 2
    venv.close()


def test_slots_of_two_threads_are_in_their_steps_at_the_same_time():
    # Each of the two waits in its step until the other is in its own.
    meeting = threading.Barrier(2, timeout=10)
    venv = probes(meeting.wait, meeting.wait, n_threads=2, threaded=True)
    for _ in range(3):
        step(venv)
    venv.close()


@pytest.mark.parametrize("options", [WAYS["one_thread"], WAYS["serial"], {"n_threads": 1, "threaded": True}])
def test_without_threads_everything_runs_in_the_caller(options):
    venv = probes(nothing, nothing, **options)
    assert venv.threaded is False
    step(venv)
    assert venv.get_attr("threads") == [[threading.current_thread().name]] * 2
    assert not alive()
    venv.close()


def test_there_are_as_many_threads_as_processors_and_at_most_one_per_slot(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 3, 5}, raising=False)
    assert probes(*[nothing] * 8).n_threads == 3
    assert probes(nothing, nothing).n_threads == 2
    assert probes(nothing, nothing, nothing, n_threads=8).n_threads == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    assert available_cpus() == 4
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert available_cpus() == 1


# ---------------------------------------------------------------------- the choice


@pytest.mark.parametrize(
    ("threaded_times", "pays"),
    [([0.9, 0.9, 0.9], True), ([0.91, 0.91, 0.91], False), ([0.5, 99.0, 0.5], True), ([1.1, 0.1, 1.1], False)],
)
def test_threads_pay_if_their_median_step_is_shorter_by_a_tenth(threaded_times, pays):
    assert threads_pay([1.0, 1.0, 50.0], threaded_times) is pays


@pytest.mark.parametrize("parallel", [True, False])
def test_the_faster_way_of_the_first_steps_is_kept(parallel, monkeypatch):
    # A clock of which a step takes a second, unless another thread computes it in the meantime.
    seconds = []
    monkeypatch.setattr(thread_vec_env, "perf_counter", lambda: float(len(seconds)))

    def compute():
        if not (parallel and threading.current_thread() in alive()):
            seconds.append(1)

    venv = probes(*[compute] * 4, n_threads=2)
    for _ in range(N_TIMED):
        assert venv.threaded is None
        step(venv)
    assert venv.threaded is parallel
    used = venv.get_attr("threads")[3]
    assert used.count("thread-vec-env-1") == N_TIMED // 2
    step(venv)
    assert used[-1] == ("thread-vec-env-1" if parallel else threading.current_thread().name)
    assert len(alive()) == (1 if parallel else 0), "threads that are not used are ended"
    venv.threaded = True
    step(venv)
    assert used[-1] == "thread-vec-env-1", "the choice can be overruled"
    venv.close()


@pytest.mark.parametrize("threaded", [True, False])
def test_a_forced_choice_is_kept(threaded):
    venv = probes(nothing, nothing, n_threads=2, threaded=threaded)
    for _ in range(N_TIMED + 1):
        step(venv)
        assert venv.threaded is threaded
    assert ("thread-vec-env-1" in venv.get_attr("threads")[1]) is threaded
    venv.close()


# ---------------------------------------------------------------------- errors and ends


@pytest.mark.parametrize("slot", [0, 1, 2, 3, 5])
def test_an_error_is_raised_in_the_caller_after_the_other_threads_are_done(slot):
    in_steps = [partial(time.sleep, 0.005)] * 6
    in_steps[slot] = raising(ValueError(f"slot {slot} broke"))
    venv = probes(*in_steps, n_threads=3, threaded=True)
    with pytest.raises(ValueError, match=f"slot {slot} broke"):
        step(venv)
    steps = venv.get_attr("steps")
    assert all(steps[other] == 1 for other in range(6) if other // 2 != slot // 2)
    assert steps[slot] == 0
    venv.close()
    assert venv.get_attr("closed") == [1] * 6


def test_of_several_errors_that_of_the_first_slot_is_raised():
    # The later slots fail first.
    failed = threading.Event()

    def fail_late():
        assert failed.wait(timeout=10)
        raise ValueError("early slot")

    def fail_soon():
        failed.set()
        raise ValueError("late slot")

    for in_steps in ([nothing, fail_late, fail_soon], [fail_late, nothing, fail_soon]):
        failed.clear()
        venv = probes(*in_steps, n_threads=3, threaded=True)
        with pytest.raises(ValueError, match="early slot"):
            step(venv)
        venv.close()


def test_steps_after_an_error_are_those_of_dummy_vec_env():
    venv = probes(nothing, raising(ValueError("once")), n_threads=2, threaded=True)
    with pytest.raises(ValueError, match="once"):
        step(venv)
    venv.set_attr("in_step", nothing)
    for _ in range(3):
        step(venv)
    assert venv.get_attr("steps") == [4, 3]
    venv.close()


@pytest.mark.parametrize("slot", [0, 1])
def test_an_interrupt_in_a_step_propagates(slot):
    in_steps = [nothing, nothing]
    in_steps[slot] = raising(KeyboardInterrupt())
    venv = probes(*in_steps, n_threads=2, threaded=True)
    with pytest.raises(KeyboardInterrupt):
        step(venv)
    assert venv.get_attr("steps")[1 - slot] == 1
    venv.close()


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="no signals between threads")
def test_ctrl_c_while_the_caller_waits_is_raised_when_no_environment_is_stepped_any_more(request):
    # A shell lets its background jobs ignore Ctrl-C, and Python then installs no handler.
    request.addfinalizer(partial(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler)))
    waiting = threading.Event()

    def interrupt_the_caller():
        assert waiting.wait(timeout=10)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        time.sleep(0.03)

    venv = probes(waiting.set, interrupt_the_caller, nothing, n_threads=3, threaded=True)
    with pytest.raises(KeyboardInterrupt):
        step(venv)
    assert venv.get_attr("steps")[1:] == [1, 1]
    venv.set_attr("in_step", nothing)
    step(venv)
    assert venv.get_attr("steps")[1:] == [2, 2]
    venv.close()
    assert venv.get_attr("closed") == [1, 1, 1]


def test_an_interrupt_that_swallows_a_wake_up_does_not_block_the_caller(monkeypatch):
    interrupts = [KeyboardInterrupt()]

    class Interrupted(thread_vec_env.SimpleQueue):
        def get(self):
            super().get()
            if interrupts:
                raise interrupts.pop()

    venv = probes(nothing, partial(time.sleep, 0.01), partial(time.sleep, 0.02), n_threads=3, threaded=True)
    step(venv)
    monkeypatch.setattr(thread_vec_env, "SimpleQueue", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        step(venv)
    assert venv.get_attr("steps") == [2, 2, 2]
    venv.close()


@pytest.mark.parametrize("threaded", [True, False])
def test_closing_twice_closes_the_environments_once(threaded):
    venv = probes(nothing, nothing, n_threads=2, threaded=threaded)
    step(venv)
    venv.close()
    venv.close()
    assert venv.get_attr("closed") == [1, 1]
    assert not alive()


def test_threads_end_with_a_forgotten_vec_env():
    step(probes(nothing, nothing, n_threads=2, threaded=True))
    forget_threads()


def test_a_program_ends_without_closing():
    program = """
    from tests.vec_env.test_thread_vec_env import nothing, probes, step

    venv = probes(nothing, nothing, n_threads=2, threaded=True)
    step(venv)
    print(venv.get_attr("steps"))
    """
    result = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0 and not result.stderr, result.stderr
    assert result.stdout.strip() == "[1, 1]"


def test_bad_input_is_refused():
    for n_threads in (0, -2):
        with pytest.raises(ValueError, match=f"n_threads={n_threads} must be at least 1"):
            ThreadVecEnv([ProbeEnv], n_threads=n_threads)
    env = make_slot(0)
    with pytest.raises(ValueError, match="same instance"):
        ThreadVecEnv([lambda: env, lambda: env])
