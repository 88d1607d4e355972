"""The command line ``sb3-budget``."""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from sb3_budget.bench import allocation_plot, arms, check, info, overhead, plan, replay_cost, store, train, vec_env_speed
from sb3_budget.bench.bench import run_jobs
from sb3_budget.bench.report import write_report
from sb3_budget.core.start_log import load_table
from sb3_budget.vec_env.thread_vec_env import available_cpus

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """
    :param argv: arguments, those of the process by default
    :return: exit code: 0, 1 if a run failed, 130 after Ctrl-C; wrong arguments exit with 2
    """
    warnings.filterwarnings("ignore", "Overriding environment", category=UserWarning)
    argv = sys.argv[1:] if argv is None else list(argv)
    parser = make_parser()
    arguments = parser.parse_args(argv)
    arguments.command_line = shlex.join(["sb3-budget", *argv])
    try:
        with _terminated_as_interrupted():
            return int(arguments.handler(arguments))
    except ValueError as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """A polite ``kill`` keeps and reports as much as Ctrl-C does."""

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def make_parser() -> argparse.ArgumentParser:
    """
    :return: the parser of ``sb3-budget``
    """
    parser = argparse.ArgumentParser(prog="sb3-budget", description="Sample-efficient on-policy training with SB3, measured.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")

    bench = commands.add_parser("bench", help="arms against stock SB3 at an equal number of simulator steps")
    bench.add_argument("--env", nargs="+", default=None, help="ids of the envs (HalfCheetah-v5)")
    bench.add_argument("--arms", default=None, help=f"comma-separated: {', '.join(arms.ARMS)}, or arm+label (stock,full)")
    bench.add_argument("--seeds", type=_positive, default=None, help="number of seeds (5)")
    bench.add_argument("--first-seed", type=int, default=None, help="the first of them (0)")
    bench.add_argument("--jobs", type=_positive, default=None, help="runs side by side (the processor cores)")
    bench.add_argument(
        "--out", type=Path, default=None, help="folder of the results; finished runs in it are kept (sb3-budget-bench)"
    )
    bench.add_argument("--evals", type=_positive, default=None, help="evaluations at equal distances (10)")
    bench.add_argument("--eval-episodes", type=_positive, default=8, help="episodes of each (8)")
    bench.add_argument("--stochastic", action="store_true", help="evaluations draw actions instead of taking the likeliest")
    bench.add_argument("--target-return", nargs="+", default=[], metavar="[ENV=]X", help="also report steps and seconds to X")
    bench.add_argument(
        "--arm-hyperparams", action="append", default=[], metavar="ARM=FILE", help="another file for one arm; repeatable"
    )
    bench.add_argument("--quick", action="store_true", help="a small comparison that takes a few minutes on two cores")
    _add_training(bench)
    bench.set_defaults(handler=_bench)

    training = commands.add_parser("train", help="train one model and save it")
    training.add_argument("--env", required=True, help="id of the env")
    training.add_argument("--arm", default="full", help="an arm of bench (full)")
    training.add_argument("--seed", type=int, default=0, help="seed (0)")
    training.add_argument("--out", type=Path, default=Path("sb3-budget-model"), help="folder of the model (sb3-budget-model)")
    training.add_argument("--tensorboard", default=None, metavar="FOLDER", help="log to TensorBoard")
    _add_training(training)
    training.set_defaults(handler=_train)

    plot = commands.add_parser("plot", help="write the report of bench again from its runs, or draw where starts were")
    plot.add_argument("out", type=Path, help="folder of the results; or a file of starts (.npz), of which it draws a picture")
    plot.add_argument("--columns", type=_positive, default=None, help="width of a grid whose states are numbered row by row")
    plot.add_argument("--target-return", nargs="+", default=[], metavar="[ENV=]X", help="also report steps and seconds to X")
    plot.set_defaults(handler=_plot)

    cost = commands.add_parser("overhead", help="what the parts cost, side by side with SB3 alone")
    cost.add_argument("--env", default=None, help="id of the env (HalfCheetah-v5, without MuJoCo Pendulum-v1)")
    cost.add_argument("--n-envs", type=_positive, default=64, help="number of slots (64)")
    cost.add_argument("--n-vec-envs", type=_positive, default=16, help="number of slots for the kinds of VecEnv (16)")
    cost.add_argument("--repetitions", type=_positive, default=40, help="pairs of measurements (40)")
    cost.add_argument("--json", action="store_true", help="print JSON")
    cost.set_defaults(handler=_overhead)

    checked = commands.add_parser("check", help="what can be done with an env: seeds, single resets, saved states, staggering")
    checked.add_argument("env", help="id of the env")
    checked.add_argument("--env-kwargs", type=_mapping, default={}, metavar="JSON", help="keyword arguments of the env")
    checked.add_argument("--json", action="store_true", help="print JSON")
    checked.set_defaults(handler=_check)

    about = commands.add_parser("info", help="versions and machine")
    about.add_argument("--json", action="store_true", help="print JSON")
    about.set_defaults(handler=_info)
    return parser


def _add_training(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--steps", type=_positive, default=None, help="budget in simulator steps (n_timesteps of the file, 300000)"
    )
    parser.add_argument("--n-envs", type=_positive, default=None, help="number of slots (64)")
    parser.add_argument("--n-steps", type=_positive, default=None, help="rollout length (16)")
    parser.add_argument("--hyperparams", default=None, metavar="FILE", help="YAML in RL Zoo's format instead of our defaults")


def _bench(arguments: argparse.Namespace) -> int:
    jobs, out = plan.jobs(arguments), arguments.out or Path("sb3-budget-quick" if arguments.quick else "sb3-budget-bench")
    targets = plan.targets(arguments.target_return, {job.env_id for job in jobs})
    interrupted, failures = False, []
    try:
        failures = run_jobs(jobs, out, arguments.jobs or available_cpus())
    except KeyboardInterrupt:
        interrupted = True
        print("interrupted: finished runs are kept, the same command goes on from them", file=sys.stderr)
    if any((out / "seeds").glob("*.json")):
        text, written = write_report(out, arguments.command_line, targets, {job.settings_hash for job in jobs})
        print(f"{text}\nwritten: {out}/{', '.join(written)}")
    for failure in failures:
        print(f"failed: {failure}", file=sys.stderr)
    return INTERRUPTED if interrupted else int(bool(failures))


def _train(arguments: argparse.Namespace) -> int:
    print(train.train(plan.training_job(arguments), arguments.out, arguments.tensorboard))
    return 0


def _plot(arguments: argparse.Namespace) -> int:
    if arguments.out.suffix == ".npz":
        picture = arguments.out.with_suffix(".png")
        allocation_plot.plot_starts(load_table(arguments.out), picture, arguments.columns)
        print(f"written: {picture}")
        return 0
    command, targets = store.command_of(arguments.out) or (arguments.command_line, {})
    text, _ = write_report(arguments.out, command, plan.targets(arguments.target_return, None) or targets)
    print(text)
    return 0


def _overhead(arguments: argparse.Namespace) -> int:
    env_id = arguments.env or overhead.default_env()
    plan.check_env(env_id)
    measured = overhead.measure(env_id, arguments.n_envs, arguments.repetitions)
    replay = replay_cost.measure_replay(arguments.repetitions)
    speed = vec_env_speed.measure_speed(arguments.n_vec_envs, arguments.repetitions)
    if arguments.json:
        print(json.dumps({**measured, "replay": replay, "vec_envs": speed}, indent=1))
    else:
        parts = overhead.describe(measured), replay_cost.describe_replay(replay), vec_env_speed.describe_speed(speed)
        print(*parts, sep="\n\n")
    return 0


def _check(arguments: argparse.Namespace) -> int:
    plan.check_env(arguments.env)
    found = check.check(arguments.env, arguments.env_kwargs)
    print(json.dumps(found, indent=1) if arguments.json else check.describe(found))
    return int(not found["ok"])


def _info(arguments: argparse.Namespace) -> int:
    print(json.dumps({"cores": available_cpus(), **info.versions()}, indent=1) if arguments.json else info.describe())
    return 0


def _mapping(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise argparse.ArgumentTypeError(f"{text} is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"{text} is no JSON object")
    return value


def _positive(text: str) -> int:
    value = int(float(text)) if "e" in text.lower() else int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} must be at least 1")
    return value
