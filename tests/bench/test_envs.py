from __future__ import annotations

import pytest

from sb3_budget.bench.envs import make_envs


def test_mujoco_does_not_flood_the_terminal(capfd, tmp_path, monkeypatch):
    pytest.importorskip("mujoco")
    monkeypatch.chdir(tmp_path)
    make_envs("HalfCheetah-v5", 2, seed=0).close()
    assert "deprecated" not in "".join(capfd.readouterr())
    assert list(tmp_path.iterdir()) == []


def test_envs_take_their_arguments():
    venv = make_envs("Pendulum-v1", 3, seed=0, env_kwargs={"g": 5.0})
    assert venv.get_attr("g") == [5.0, 5.0, 5.0]
