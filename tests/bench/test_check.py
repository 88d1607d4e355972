from __future__ import annotations

import json

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from sb3_budget.bench import cli


class Unseeded(gym.Env):
    """Draws its start from elsewhere, and keeps its state where it cannot be saved."""

    metadata = {"render_modes": ["rgb_array"]}

    observation_space = spaces.Box(-10.0, 10.0, (1,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self, start: float | None = None):
        self.start = start
        self.hidden = (value for value in np.random.default_rng().random(10_000))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._observe(), {}

    def _observe(self):
        return np.array([next(self.hidden) if self.start is None else self.start])

    def step(self, action):
        self.steps += 1
        return self._observe(), 0.0, self.steps == 3, False, {}


@pytest.fixture(autouse=True, scope="module")
def _registered():
    gym.register("Unseeded-v0", Unseeded, max_episode_steps=20)
    yield
    del gym.registry["Unseeded-v0"]


def found(capsys, *arguments):
    code = cli.main(["check", *arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_an_env_with_all_that_starts_need(capsys):
    code, result = found(capsys, "Pendulum-v1")
    assert code == 0 and result["ok"]
    assert result["seeding"] and result["starts_vary"] and result["exact"] and result["slots_reset_alone"]
    assert (result["adapter"], result["horizon"], result["early_ends"]) == ("plain", 200, 0.0)
    assert result["dispersion"] == pytest.approx(0.0, abs=1e-9)
    assert 0 < result["state_bytes"] < 5_000 and result["save_us"] > 0


def test_an_env_that_has_none_of_it(capsys):
    code, result = found(capsys, "Unseeded-v0")
    assert code == 1 and not result["ok"]
    assert not result["seeding"] and not result["exact"] and "'hidden'" in result["reason"]
    assert result["early_ends"] == 1.0
    assert cli.main(["check", "Unseeded-v0"]) == 1
    printed = capsys.readouterr().out
    assert "a restored state goes on exactly           no (The attribute 'hidden' (generator) cannot be saved" in printed
    assert "not needed: slots part by themselves" in printed


def test_for_people_it_says_whether_staggering_can_help(capsys):
    assert cli.main(["check", "Pendulum-v1"]) == 0
    assert "can help: slots stay in step" in capsys.readouterr().out


def test_keyword_arguments_reach_the_env(capsys):
    _, result = found(capsys, "FrozenLake-v1", "--env-kwargs", '{"map_name": "8x8"}')
    assert result["ok"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["Nowhere-v0"], "unknown env"),
        (["Pendulum-v1", "--env-kwargs", "["], "no JSON"),
        (["Pendulum-v1", "--env-kwargs", "[]"], "no JSON object"),
    ],
)
def test_bad_input_is_named(arguments, message, capsys):
    with pytest.raises(SystemExit) as error:
        cli.main(["check", *arguments])
    assert error.value.code == 2
    assert message in capsys.readouterr().err
