from __future__ import annotations

import json
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from gymnasium import spaces

from sb3_budget.bench import cli, plan, pool, store, vec_env_speed
from sb3_budget.bench import run as run_module

# A few steps of four slots are too short for the costs of a gate to be small beside them.
pytestmark = pytest.mark.filterwarnings("ignore:The gate takes")

ENV = "Pendulum-v1"
SMALL = ["--n-envs", "4", "--n-steps", "16", "--steps", "256", "--evals", "1", "--eval-episodes", "1", "--jobs", "1"]


def bench(out, *more):
    return cli.main(["bench", "--env", ENV, *SMALL, "--out", str(out), *more])


def test_bench_writes_the_three_files_and_prints_the_table(tmp_path, capsys):
    assert bench(tmp_path, "--arms", "stock,stagger", "--seeds", "2") == 0
    results = json.loads((tmp_path / "results.json").read_text())
    assert set(results["arms"]) == {"stock", "stagger"}
    assert len(results["arms"]["stock"]["seeds"]) == 2
    assert "| stagger" in capsys.readouterr().out
    assert (tmp_path / "report.md").is_file()


def test_controls_copy_the_finished_run_of_their_seed(tmp_path):
    assert bench(tmp_path, "--arms", "full,random-gate,short-horizon", "--seeds", "1", "--steps", "640") == 0
    runs = {run["arm"]: run for run in store.load_all(tmp_path)}
    expected = run_module.reference(runs["full"])._asdict()
    assert runs["random-gate"]["reference"] == expected == runs["short-horizon"]["reference"]


def test_finished_runs_are_not_run_again(tmp_path, monkeypatch):
    assert bench(tmp_path, "--arms", "stock", "--seeds", "1") == 0
    seen = []
    original = pool.run
    monkeypatch.setattr(pool, "run", lambda job, progress: (seen.append((job.arm, job.seed)), original(job, progress))[1])
    assert bench(tmp_path, "--arms", "stock,stagger", "--seeds", "2") == 0
    assert seen == [("stagger", 0), ("stock", 1), ("stagger", 1)]
    assert bench(tmp_path, "--arms", "stock", "--seeds", "1", "--steps", "320") == 0
    assert seen[3:] == [("stock", 0)]


def test_ctrl_c_keeps_finished_seeds_and_reports_them(tmp_path, monkeypatch, capsys):
    original = pool.run

    def interrupted(job, progress):
        if job.seed == 1:
            raise KeyboardInterrupt
        return original(job, progress)

    monkeypatch.setattr(pool, "run", interrupted)
    assert bench(tmp_path, "--arms", "stock", "--seeds", "3") == 130
    assert [run["seed"] for run in store.load_all(tmp_path)] == [0]
    assert list(json.loads((tmp_path / "results.json").read_text())["arms"]["stock"]["seeds"]) == ["0"]
    assert "goes on from them" in capsys.readouterr().err


def test_a_failed_run_loses_nothing_else(tmp_path, monkeypatch, capsys):
    original = pool.run

    def failing(job, progress):
        if job.seed == 0:
            raise RuntimeError("the simulator broke")
        return original(job, progress)

    monkeypatch.setattr(pool, "run", failing)
    assert bench(tmp_path, "--arms", "full,random-gate", "--seeds", "2", "--steps", "640") == 1
    assert [(run["arm"], run["seed"]) for run in store.load_all(tmp_path)] == [("full", 1), ("random-gate", 1)]
    error = capsys.readouterr().err
    assert "the simulator broke" in error
    assert "full did not finish" in error


def test_processes_give_the_same_results_as_one(tmp_path):
    assert bench(tmp_path / "one", "--arms", "stock,stagger", "--seeds", "1") == 0
    assert bench(tmp_path / "two", "--arms", "stock,stagger", "--seeds", "1", "--jobs", "2") == 0
    one, two = ([[point[3] for point in run["points"]] for run in store.load_all(tmp_path / name)] for name in ("one", "two"))
    assert one == two


def test_each_arm_may_have_its_own_hyperparameters(tmp_path):
    pytest.importorskip("yaml")
    tuned = tmp_path / "tuned.yml"
    tuned.write_text("default: {n_envs: 2, n_steps: 32, n_epochs: 1, batch_size: 64}")
    arguments = ["--env", ENV, "--steps", "128", "--evals", "1", "--eval-episodes", "1", "--jobs", "1", "--seeds", "1"]
    files = ["--hyperparams", str(tuned), "--arm-hyperparams", f"stock+tuned={tuned}"]
    assert cli.main(["bench", *arguments, *files, "--arms", "stock,stock+tuned", "--out", str(tmp_path)]) == 0
    assert json.loads((tmp_path / "results.json").read_text())["settings"]["runs"][ENV]["stock+tuned"]["n_envs"] == 2


def test_plot_writes_the_report_again(tmp_path):
    assert bench(tmp_path, "--arms", "stock", "--seeds", "1") == 0
    (tmp_path / "report.md").unlink()
    assert cli.main(["plot", str(tmp_path), "--target-return", "5"]) == 0
    assert "seeds that got there" in (tmp_path / "report.md").read_text()


def test_plot_keeps_the_command_and_the_return_that_was_asked_for(tmp_path):
    assert bench(tmp_path, "--arms", "stock", "--seeds", "1", "--target-return", "5") == 0
    before = (tmp_path / "report.md").read_text()
    assert cli.main(["plot", str(tmp_path)]) == 0
    assert (tmp_path / "report.md").read_text() == before and "seeds that got there" in before


def test_a_process_that_is_killed_costs_its_own_run_only(tmp_path, capsys):
    arguments = ["--env", "tests.bench.killer:Killer-v0", "--n-envs", "1", "--n-steps", "64", "--steps", "64"]
    more = ["--evals", "1", "--eval-episodes", "1", "--jobs", "2", "--arms", "stock", "--seeds", "3", "--out", str(tmp_path)]
    assert cli.main(["bench", *arguments, *more]) == 1
    assert [run["seed"] for run in store.load_all(tmp_path)] == [0, 2]
    assert "its process was killed" in capsys.readouterr().err


def test_train_saves_model_and_statistics(tmp_path, capsys):
    arguments = ["--env", ENV, "--steps", "256", "--n-envs", "4", "--n-steps", "16", "--out", str(tmp_path)]
    assert cli.main(["train", *arguments]) == 0
    assert "return" in capsys.readouterr().out
    assert (tmp_path / "model.zip").is_file()
    assert (tmp_path / "vecnormalize.pkl").is_file()


def test_overhead_prints_the_pairs_and_the_kinds_of_vec_env(capsys):
    assert (
        cli.main(["overhead", "--env", "Pendulum-v1", "--n-envs", "8", "--n-vec-envs", "2", "--repetitions", "2", "--json"])
        == 0
    )
    measured = json.loads(capsys.readouterr().out)
    for key in ("wrapper_step", "gate_and_buffer_collect", "stops_collect", "thinning_get", "group_update", "grpo_iteration"):
        assert set(measured[key]) == {"off", "on", "ratio"}
        assert measured[key]["ratio"] > 0
    for by_priority in measured["allocator"].values():
        for cost in by_priority.values():
            assert 0.0 < cost["per_step"] and 0.0 < cost["share"] < 1.0
    assert {part: set(rows) for part, rows in measured["replay"].items()} == {
        "buffer": {"FrozenLake-v1", "CartPole-v1", "images"},
        "dqn": {"FrozenLake-v1", "CliffWalking-v1", "images"},
    }
    for pair in (*measured["replay"]["buffer"].values(), *measured["replay"]["dqn"].values()):
        assert set(pair) == {"off", "on", "ratio"} and min(pair.values()) > 0
    for row in measured["vec_envs"]["envs"].values():
        assert set(row) == {"dummy", "thread", "subproc", "thread_against_dummy", "thread_against_subproc"}
        assert min(row.values()) > 0
    assert "CartPole-v1" in measured["vec_envs"]["envs"]


def test_overhead_has_a_column_for_envpool_where_it_is_installed(monkeypatch):
    fake = ModuleType("envpool")
    fake.__spec__ = ModuleSpec("envpool", None)
    pool_of_envs = SimpleNamespace(
        action_space=spaces.Discrete(2), reset=lambda: None, step=lambda actions: np.zeros(len(actions))
    )
    fake.make = lambda env_id, *, env_type, num_envs, num_threads, seed: pool_of_envs
    monkeypatch.setitem(sys.modules, "envpool", fake)
    monkeypatch.setattr(vec_env_speed, "MUJOCO", ("Pendulum-v1",))
    measured = vec_env_speed.measure_speed(n_envs=2, repetitions=2)
    row = measured["envs"]["Pendulum-v1"]
    assert row["envpool"] > 0
    assert row["thread_against_envpool"] > 0
    assert "envpool" not in measured["envs"]["CartPole-v1"]
    title, *lines = vec_env_speed.describe_speed(measured).splitlines()
    assert "envpool" in title
    assert [len(line.split()) for line in lines] == [1 + 4 + 3, 1 + 3 + 2]


def test_info_names_versions(capsys):
    assert cli.main(["info"]) == 0
    assert "stable-baselines3" in capsys.readouterr().out
    assert cli.main(["info", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cores"] >= 1


def test_quick_is_the_first_published_seed_of_stock_and_of_what_is_recommended():
    def planned(*arguments):
        return plan.jobs(cli.make_parser().parse_args(["bench", *arguments]))

    quick = planned("--quick")
    assert {(job.env_id, job.seed) for job in quick} == {("HalfCheetah-v5", 10)}
    assert [job.arm for job in quick] == ["stock", "full"]
    chosen = planned("--quick", "--first-seed", "3", "--seeds", "2", "--arms", "stock")
    assert [job.seed for job in chosen] == [3, 4]
    assert [job.seed for job in planned("--arms", "stock")] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "required: command"),
        (["bench", "--env", "Nothing-v0"], "unknown env Nothing-v0"),
        (["bench", "--env", ENV, "--arms", "stock,fool"], "unknown arm 'fool'"),
        (["bench", "--env", ENV, "--arms", "stock,random-gate"], "add full to --arms"),
        (["bench", "--env", ENV, "--arms", "stock,stock"], "names an arm twice"),
        (["bench", "--env", ENV, "--seeds", "0"], "at least 1"),
        (["bench", "--env", ENV, "--steps", "many"], "invalid"),
        (["bench", "--env", ENV, "--steps", "100"], "less than one rollout"),
        (["bench", "--env", ENV, "--arms", "stock,grpo", "--n-envs", "6"], "groups of 4, which do not divide 6 envs"),
        (["bench", "--env", ENV, "--arms", "stock,stock+a/b"], "must not contain a slash"),
        (["bench", "--env", ENV, "--hyperparams", "/nowhere.yml"], "no hyperparameter file"),
        (["bench", "--env", ENV, "--arm-hyperparams", "select=x.yml"], "an arm of --arms"),
        (["bench", "--env", ENV, "--target-return", "lots"], "is no number"),
        (["bench", "--env", ENV, "--target-return", "Ant-v5=3"], "not among the envs"),
        (["train", "--env", ENV, "--arm", "random-gate"], "exists in bench only"),
        (["plot", "/nowhere"], "no finished run"),
        (["overhead", "--env", "Nothing-v0"], "unknown env"),
    ],
)
def test_wrong_arguments_are_refused_with_a_reason(arguments, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(arguments)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err
