from __future__ import annotations

import json

import numpy as np
import pytest

from sb3_budget.bench import report, store, summary
from sb3_budget.bench.curves import align, group


def result(arm, seed, returns, steps=(0, 100, 200), env="CartPole-v1", settings_hash="same"):
    points = [[step, step / 10, step / 20, value, 0.0] for step, value in zip(steps, returns, strict=True)]
    return {
        "env": env,
        "arm": arm,
        "seed": seed,
        "settings": {"n_envs": 4, "steps": steps[-1], "evals": len(steps) - 1, "eval_episodes": 1},
        "settings_hash": settings_hash,
        "run_hash": f"{arm}{seed}",
        "reference": None,
        "points": points,
        "ledger": {"total_steps": steps[-1], "resets": 4},
        "mean_length": 20.0,
        "episodes": {"terminated": 3},
        "looks": 10 if arm == "full" else 0,
        "stops": 4 if arm == "full" else 0,
        "rejections": 11,
        "log": {"budget/x": 1.0},
    }


def save(out, *results):
    for run in results:
        store.write_json(out / "seeds" / f"{run['env']}__{run['arm']}__{run['seed']}.json", run)


def test_results_say_when_an_arm_reaches_stock(tmp_path):
    save(tmp_path, result("stock", 0, [0, 5, 10]), result("full", 0, [0, 20, 40]))
    report.write_report(tmp_path, "sb3-budget bench", {"": 30.0})
    results = json.loads((tmp_path / "results.json").read_text())
    full = results["arms"]["full"]
    assert full == results["envs"]["CartPole-v1"]["arms"]["full"]
    assert full["final"] == {"iqm": 40.0, "ci": [40.0, 40.0]}
    assert full["auc"]["iqm"] == 20.0
    assert full["steps_to_stock_final"] == 50.0
    assert full["share_of_stock_steps"] == 0.25
    assert full["seconds_to_stock_final"] == 5.0
    assert full["stop_rate"] == 0.4
    assert full["seeds"]["0"]["steps_to_stock_final"] == 50.0
    assert full["ledger"]["total_steps"] == 200
    assert full["target"]["steps"] == 150.0
    assert full["target"]["cpu_seconds"] == 7.5
    assert results["arms"]["stock"]["target"]["steps"] is None
    assert results["settings"]["command"] == "sb3-budget bench"


def test_a_seed_reaches_a_return_at_its_own_evaluations(tmp_path):
    early, late = result("full", 0, [0, 30, 0]), result("full", 1, [0, 30, 0])
    late["points"] = [[point[0] + 10, *point[1:]] for point in late["points"]]
    save(tmp_path, early, late)
    report.write_report(tmp_path, "the command", {"": 30.0})
    seeds = json.loads((tmp_path / "results.json").read_text())["arms"]["full"]["target"]["seeds"]
    assert [seeds[seed]["steps"] for seed in ("0", "1")] == [early["points"][1][0], late["points"][1][0]]


def test_report_shows_every_arm_with_what_it_is(tmp_path):
    save(tmp_path, result("stock", 0, [0, 5, 10]), result("full", 0, [0, 20, 40]), result("full", 1, [0, 20, 40]))
    text, written = report.write_report(tmp_path, "the command", {"CartPole-v1": 30.0})
    assert set(written) == {path.name for path in tmp_path.iterdir()} - {"seeds"}
    assert text == (tmp_path / "report.md").read_text()
    for expected in ("the command", "| stock", "| full", "4.00", "0.25", "never", "1/1", "2/2", "value gate"):
        assert expected in text


def test_picture_is_written(tmp_path):
    pytest.importorskip("matplotlib")
    save(tmp_path, result("stock", 0, [0, 5, 10]), result("stock", 0, [0, 5, 10], env="Acrobot-v1"))
    report.write_report(tmp_path, "", {})
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "arms" not in json.loads((tmp_path / "results.json").read_text())


def test_runs_with_other_settings_are_left_out_and_named(tmp_path):
    runs = [result("stock", seed, [0, 5, 10]) for seed in range(2)] + [result("stock", 2, [0, 0, 0], settings_hash="other")]
    grouped, left_out = group(runs)
    assert [run["seed"] for run in grouped["CartPole-v1"]["stock"]] == [0, 1]
    assert left_out == ["CartPole-v1, stock, seed 2: left out, it ran with other settings"]


def test_runs_that_were_asked_for_come_before_others():
    older = [result("stock", seed, [0, 5, 10], settings_hash="older") for seed in range(3)]
    newer = [result("stock", seed, [0, 5, 10], steps=(0, 50, 100), settings_hash="newer") for seed in (3, 4)]
    ours = [result("full", 3, [0, 5, 10], steps=(0, 50, 100), settings_hash="full")]
    grouped, left_out = group([*older, *newer, *ours], {"newer", "full"})
    assert [run["seed"] for run in grouped["CartPole-v1"]["stock"]] == [3, 4] and len(left_out) == 3
    _, left_out = group([*older, *ours])
    assert left_out == ["CartPole-v1: arms with different budgets stand beside each other: stock 200, full 100"]


def test_stock_reaches_its_own_final_and_so_does_its_like(tmp_path):
    for arm in ("stock", "stagger"):
        save(tmp_path, *(result(arm, seed, [0, 5 * (seed + 1), 10 * (seed + 1)]) for seed in range(5)))
    report.write_report(tmp_path, "", {})
    figures = json.loads((tmp_path / "results.json").read_text())["arms"]
    for arm in ("stock", "stagger"):
        # By seed the end is the final, and so it is in every resample of seeds.
        assert figures[arm]["steps_to_stock_final_ci"] == [200.0, 200.0]


def test_steps_before_the_first_evaluation_count():
    late = align([result("stagger", 0, [0, 10, 10], steps=(50, 100, 200))])
    # 0 until step 50, a slope until 100, and 10 from there on.
    np.testing.assert_allclose(summary.areas(late, 200), [(25 * 10 + 100 * 10) / 200])


def test_a_picture_that_cannot_be_drawn_is_not_said_to_be(tmp_path, monkeypatch):
    def missing(*_):
        raise ImportError

    save(tmp_path, result("stock", 0, [0, 5, 10]))
    (tmp_path / "curves.png").write_bytes(b"of other figures")
    monkeypatch.setattr(report.plots, "plot_curves", missing)
    _, written = report.write_report(tmp_path, "", {})
    assert written == ["results.json", "report.md"] and not (tmp_path / "curves.png").exists()


def test_curves_of_different_lengths_meet_at_the_shorter_one():
    curves = align([result("stock", 0, [0, 10, 20]), result("stock", 1, [0, 10, 20], steps=(0, 50, 100))])
    np.testing.assert_allclose(curves.steps, [0, 50, 100])
    np.testing.assert_allclose(curves.returns, [[0, 5, 10], [0, 10, 20]])
    np.testing.assert_allclose(curves.finals, [20, 20])


def test_arms_with_a_longer_budget_get_no_area_for_it():
    short, longer = align([result("stock", 0, [0, 10, 10])]), align([result("full", 0, [0, 10, 10], steps=(0, 100, 900))])
    assert summary.min_budget({"stock": short, "full": longer}) == 200
    np.testing.assert_allclose(summary.areas(longer, 200), summary.areas(short, 200))


def test_contrasts_pair_seeds():
    curves = {
        "select": align([result("select", seed, [0, 0, value]) for seed, value in ((0, 10), (1, 5), (2, 9))]),
        "random-gate": align([result("random-gate", seed, [0, 0, value]) for seed, value in ((1, 6), (2, 5))]),
    }
    runs = {name: [result(name, seed, [0, 0, 0]) for seed in arm.seeds] for name, arm in curves.items()}
    (contrast,) = summary.summarize_env(runs, curves, None)["contrasts"]
    assert (contrast["arm"], contrast["against"], contrast["n"], contrast["wins"]) == ("select", "random-gate", 2, 1)
    assert contrast["iqm"] == 1.5


def test_empty_folder_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="no finished run"):
        report.write_report(tmp_path, "", {})


def test_files_appear_whole(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    store.write_text(tmp_path / "a.json", "old")
    monkeypatch.setattr("os.replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.write_text(tmp_path / "a.json", "new")
    assert (tmp_path / "a.json").read_text() == "old"


def test_controls_of_one_label_are_compared_with_each_other():
    names = ("full+low", "random-gate+low", "random-gate", "stock")
    curves = {name: align([result(name, 0, [0, 0, 1])]) for name in names}
    runs = {name: [result(name, 0, [0, 0, 1])] for name in names}
    found = [(pair["arm"], pair["against"]) for pair in summary.summarize_env(runs, curves, None)["contrasts"]]
    assert found == [*((name, "stock") for name in names[:3]), ("full+low", "random-gate+low")]
