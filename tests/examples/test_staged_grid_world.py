"""The staged grid world: its rules, its exact evaluation, its measures, and the published numbers."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from stable_baselines3 import PPO
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.env_util import make_vec_env

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def example() -> SimpleNamespace:
    return SimpleNamespace(**runpy.run_path(str(ROOT / "examples" / "staged_grid_world.py")))


def hold_switch(env) -> int:
    """The best action, from the environment's own rules: the one that ends nearest to the switch."""
    x, y = np.divmod(env.next_cells[env.room, env.cell], env.size)
    switch_x, switch_y = divmod(env.switches[env.room], env.size)
    return int(np.argmin(np.abs(x - switch_x) + np.abs(y - switch_y)))


def test_it_is_a_valid_environment(example: SimpleNamespace) -> None:
    check_env(example.StagedGridWorld())
    with pytest.raises(ValueError, match="horizon=200 cannot be cut into n_stages=7"):
        example.StagedGridWorld(n_stages=7)


def test_holding_every_switch_opens_every_room_and_is_a_success(example: SimpleNamespace) -> None:
    env = example.StagedGridWorld()
    env.reset(seed=0)
    rooms = []
    for step in range(1, 201):
        rooms.append(env.room)
        _, reward, terminated, truncated, info = env.step(np.int64(hold_switch(env)))
        assert not terminated and truncated == (step == 200)
    assert rooms == [room for room in range(8) for _ in range(25)]
    assert info["is_success"] and reward == pytest.approx(1 / 25)


def test_a_room_stays_closed_until_its_switch_is_held_at_the_end_of_a_window(example: SimpleNamespace) -> None:
    env = example.StagedGridWorld()
    env.reset(seed=0)
    for step in range(1, 201):
        away = step == 25  # leave the first switch in the last moment of the first window
        action = np.argmax(env.next_cells[0, env.cell] != env.cell) if away else hold_switch(env)
        *_, info = env.step(np.int64(action))
        if step in (25, 50):
            assert env.room == (0 if step == 25 else 1)
    assert not info["is_success"]


def test_the_same_action_means_another_direction_in_the_next_room(example: SimpleNamespace) -> None:
    env = example.StagedGridWorld()
    centre = env.n_cells // 2
    assert len(set(env.next_cells[:4, centre, 0])) == 4
    assert all(len(set(env.next_cells[room, centre])) == 4 for room in range(8))


def test_the_exact_evaluation_agrees_with_played_episodes(example: SimpleNamespace) -> None:
    env_kwargs = {"size": 2, "n_stages": 2, "horizon": 6}
    venv = make_vec_env(example.StagedGridWorld, n_envs=100, seed=0, env_kwargs=env_kwargs)
    model = PPO("MlpPolicy", venv, n_steps=2, batch_size=200, seed=0, device="cpu")
    exact = example.evaluate_exactly(model.policy, example.StagedGridWorld(**env_kwargs))
    passed, n_episodes = np.zeros(2), 2_000
    obs = venv.reset()
    for step in range(1, n_episodes // 100 * 6 + 1):
        actions, _ = model.predict(obs, deterministic=False)
        obs, _, dones, infos = venv.step(actions)
        if step % 6 == 3:
            passed[0] += sum(venv.get_attr("room"))
        if dones.all():
            passed[1] += sum(info["is_success"] for info in infos)
    error = 4 * np.sqrt(exact * (1 - exact) / n_episodes)  # alpha < 1e-4 per stage
    assert (np.abs(passed / n_episodes - exact) < error).all()


def test_the_measures_of_a_hand_made_history(example: SimpleNamespace) -> None:
    first = [0, 0.5, 1, 1, 0.7, 0.7, 0.9, 0.7, 1, 1]  # falls by 0.3 from its best, recovers, falls again
    second = [0, 0, 0.9, 0.8, 0.5, 0.5, 0.8, 0.6, 0.8, 0.8]
    history = [[100 * i, a, b, 0.25] for i, (a, b) in enumerate(zip(first, second, strict=True))]
    measures = example.measure(history, cycle=1)
    assert measures == {
        "fluctuation": 0.0,  # the moving mean over one evaluation is the value itself
        "forgetting": 4.0,
        "steps_to_80": 200.0,
        "success": pytest.approx(0.7),
        "greedy_success": 0.25,
    }
    assert example.measure(history, cycle=3)["fluctuation"] > 0.05
    assert example.measure(history[:2], cycle=3)["steps_to_80"] is None


def test_it_runs_resumes_and_draws(example: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    out, picture = tmp_path / "results.json", tmp_path / "picture.png"
    results = example.main(total_timesteps=1_024, seeds=1, out=str(out))
    assert "staggered seed 10" in capsys.readouterr().out
    again = example.main(total_timesteps=1_024, seeds=1, out=str(out), plot_to=str(picture))
    printed = capsys.readouterr().out
    assert "seed 10" not in printed and "| ratio |" in printed
    assert again == json.loads(json.dumps(results)) and picture.stat().st_size > 1_000
    with pytest.raises(ValueError, match="other settings"):
        example.main(total_timesteps=2_048, seeds=1, out=str(out))


@pytest.mark.parametrize("name", ["staged_grid_world.json", "staged_grid_world_slow.json"])
def test_the_published_table_is_that_of_the_published_runs(example: SimpleNamespace, name: str) -> None:
    results = json.loads((ROOT / "docs" / "results" / name).read_text())
    cycle = results["settings"]["horizon"] // results["settings"]["n_steps"]
    for arm in example.ARMS:
        assert len(results["runs"][arm]) >= 5
        for run in results["runs"][arm].values():
            assert run["measures"] == pytest.approx(example.measure(run["history"], cycle))
    page = (ROOT / "docs" / "guide" / "staged_grid_world.md").read_text()
    assert example.markdown_table(results) in page
