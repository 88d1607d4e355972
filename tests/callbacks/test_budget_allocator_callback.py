"""Episodes begin where the allocator sends them, and nowhere else when it is off."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.callbacks import BaseCallback, EveryNTimesteps
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack, VecMonitor, VecNormalize

from sb3_budget import (
    GRPO,
    BudgetAllocatorCallback,
    EpisodeControlVecEnv,
    StartPool,
    StateWrapper,
    ThreadVecEnv,
)
from sb3_budget.callbacks import rollout_notes

SMALL = {"n_steps": 32, "batch_size": 64, "n_epochs": 2, "seed": 0, "device": "cpu", "policy_kwargs": {"net_arch": [8]}}


class Chain(gym.Env):
    """Cells in a row; action 1 goes on, action 0 goes back, and only the last cell pays."""

    length = 12
    observation_space = spaces.Discrete(length)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cell = 0
        return self.cell, {}

    def step(self, action):
        self.cell = max(0, self.cell + (1 if action else -1))
        reached = self.cell == self.length - 1
        return self.cell, float(reached), reached, False, {}


def make_chain():
    return gym.wrappers.TimeLimit(Chain(), 30)


def chains(n_envs=4, vec_env_cls=DummyVecEnv, **kwargs):
    return EpisodeControlVecEnv(make_vec_env(make_chain, n_envs, seed=0, vec_env_cls=vec_env_cls, **kwargs), seed=0)


class Starts(BaseCallback):
    """First observations of episodes, and the ids of their starts."""

    def __init__(self):
        super().__init__()
        self.first, self.ids = [], []

    def _on_step(self):
        ended = np.flatnonzero(self.locals["dones"])
        self.first += np.asarray(self.locals["new_obs"])[ended].ravel().tolist()
        self.ids += [self.locals["infos"][slot]["sb3_budget"]["start_id"] for slot in ended]
        return True


def parameters(model):
    return th.cat([parameter.detach().flatten() for parameter in model.policy.parameters()]).numpy()


@pytest.mark.parametrize("priority", ["contrast", "novelty", "advantage", "uniform"])
def test_after_the_warmup_episodes_begin_in_archived_cells(priority):
    starts = Starts()
    allocator = BudgetAllocatorCallback(priority, warmup=256, floor=0.0)
    PPO("MlpPolicy", chains(), **SMALL).learn(2048, callback=[allocator, starts])
    assert set(starts.first[:4]) == {0}
    assert len(set(starts.first[-40:])) > 3
    assert len(allocator.archive) == Chain.length - 1
    named = [each for each in starts.ids if each is not None]
    assert named and all(kind == "cell" for kind, *_ in named)


def test_a_share_of_the_episodes_begins_where_the_environment_does():
    starts = Starts()
    PPO("MlpPolicy", chains(8), **SMALL).learn(
        8192, callback=[BudgetAllocatorCallback("uniform", warmup=0, floor=0.5), starts]
    )
    own = np.mean([each is None for each in starts.ids])
    assert abs(own - 0.5) < 4 * np.sqrt(0.25 / len(starts.ids))


def test_with_a_floor_of_1_it_is_stock():
    stock = PPO("MlpPolicy", make_vec_env(make_chain, 4, seed=0), **SMALL).learn(1024)
    ours = PPO("MlpPolicy", chains(), **SMALL).learn(1024, callback=BudgetAllocatorCallback(floor=1.0))
    np.testing.assert_array_equal(parameters(ours), parameters(stock))


@pytest.mark.parametrize("vec_env_cls", [SubprocVecEnv, ThreadVecEnv])
def test_kinds_of_vec_env_make_no_difference(vec_env_cls):
    def run(kind):
        starts = Starts()
        model = PPO("MlpPolicy", chains(vec_env_cls=kind, wrapper_class=StateWrapper), **SMALL)
        model.learn(1024, callback=[BudgetAllocatorCallback("novelty", warmup=128), starts])
        model.get_env().close()
        return starts.first, parameters(model)

    first, expected = run(DummyVecEnv)
    other, found = run(vec_env_cls)
    assert first == other
    np.testing.assert_array_equal(found, expected)


def test_archived_starts_may_have_a_horizon_of_their_own():
    starts, lengths = Starts(), []

    class Lengths(BaseCallback):
        def _on_step(self):
            ended = [info["sb3_budget"] for info in self.locals["infos"] if "sb3_budget" in info]
            lengths.extend((end["start_id"] is not None, end["length"], end["reason"]) for end in ended)
            return True

    allocator = BudgetAllocatorCallback("uniform", warmup=128, horizon=5)
    PPO("MlpPolicy", chains(), **SMALL).learn(2048, callback=[allocator, starts, Lengths()])
    archived = [(length, reason) for from_archive, length, reason in lengths if from_archive]
    assert max(length for length, _ in archived) == 5
    assert {reason for _, reason in archived} <= {"horizon", "terminated"}


def test_what_is_far_is_reached_sooner_than_without():
    """The chance that a random walk gets from 0 to 11 within 30 steps is small; from an archived cell it is not."""
    reached = {}
    for floor in (0.2, 1.0):
        model = PPO("MlpPolicy", chains(8), **SMALL)
        rewards = []

        class Rewards(BaseCallback):
            def _on_step(self, rewards=rewards):
                rewards.append(self.locals["rewards"].sum())
                return True

        model.learn(4096, callback=[BudgetAllocatorCallback("novelty", warmup=256, floor=floor), Rewards()])
        reached[floor] = sum(rewards)
    assert reached[0.2] > 3 * max(1, reached[1.0])


def test_it_serves_off_policy_algorithms_and_a2c():
    for model in (
        DQN("MlpPolicy", chains(2), learning_starts=50, buffer_size=1000, seed=0, device="cpu"),
        A2C("MlpPolicy", chains(2), seed=0, device="cpu"),
    ):
        starts = Starts()
        model.learn(1000, callback=[BudgetAllocatorCallback(warmup=100), starts])
        assert any(each is not None for each in starts.ids)


def test_members_of_a_group_are_sent_to_one_place():
    starts = Starts()
    model = GRPO("MlpPolicy", chains(8), group_size=4, **SMALL)
    model.learn(2048, callback=[BudgetAllocatorCallback("novelty", warmup=128), starts])
    assert any(isinstance(each, tuple) and each[0] == "cell" for each in starts.ids)
    buffer = model.rollout_buffer
    first = {}
    for row, slot in np.argwhere((buffer.times == 0) & (buffer.episode_starts > 0)):
        place = (int(slot) // 4, int(buffer.episodes[row, slot]))
        observation = buffer.observations.reshape(4 * 2, 32, -1)[slot, row] if buffer.generator_ready else None
        if observation is not None:
            first.setdefault(place, set()).add(observation.tobytes())
    assert first and all(len(seen) == 1 for seen in first.values())


def test_normalised_observations_leave_the_cells_alone():
    allocator = BudgetAllocatorCallback("novelty", warmup=512)
    venv = VecNormalize(EpisodeControlVecEnv(make_vec_env("MountainCar-v0", 4, seed=0), seed=0))
    PPO("MlpPolicy", venv, **SMALL).learn(2048, callback=allocator)
    assert 1 < len(allocator.archive) < 400
    positions = [state.observation[0] for state in allocator.archive.states]
    assert -1.2 <= min(positions) <= max(positions) <= 0.6


def test_what_it_knows_can_be_saved_and_a_second_run_goes_on_with_it(tmp_path):
    first = BudgetAllocatorCallback(warmup=128)
    PPO("MlpPolicy", chains(), **SMALL).learn(1024, callback=first)
    first.save(tmp_path / "allocator.pkl")
    second = BudgetAllocatorCallback(warmup=0)
    second.load(tmp_path / "allocator.pkl")
    np.testing.assert_array_equal(second.archive.visits, first.archive.visits)
    starts = Starts()
    PPO("MlpPolicy", chains(), **SMALL).learn(512, callback=[second, starts])
    BudgetAllocatorCallback().save(tmp_path / "fresh.pkl")
    assert any(each is not None for each in starts.ids)
    assert second.archive.visits.sum() > first.archive.visits.sum()


def test_after_the_training_starts_are_the_environments_own():
    venv = chains()
    model = PPO("MlpPolicy", venv, **SMALL).learn(1024, callback=BudgetAllocatorCallback("uniform", warmup=64, floor=0.0))
    assert venv.reset().ravel().tolist() == [0, 0, 0, 0]
    starts = Starts()
    model.learn(512, callback=starts, reset_num_timesteps=False)
    assert set(starts.ids) == {None}
    GRPO("MlpPolicy", venv, group_size=4, **SMALL).learn(128)


def test_a_pool_and_the_allocator_share_the_starts_of_groups():
    pool, starts = StartPool(10, seed=0), Starts()
    model = GRPO("MlpPolicy", chains(8), group_size=4, start_rule=pool, **SMALL)
    model.learn(2048, callback=[BudgetAllocatorCallback("uniform", warmup=128, floor=0.5), starts])
    kinds = {isinstance(each, tuple) for each in starts.ids}
    assert kinds == {True, False} and pool.entries.visits.sum() > 0


def test_stacked_and_named_observations_are_taken_below_the_wrappers():
    venv = VecFrameStack(EpisodeControlVecEnv(make_vec_env("MountainCar-v0", 4, seed=0), seed=0), 3)
    allocator = BudgetAllocatorCallback(warmup=256)
    PPO("MlpPolicy", venv, **SMALL).learn(1024, callback=allocator)
    assert len(allocator.archive) > 1

    class Named(Chain):
        observation_space = spaces.Dict({"cell": Chain.observation_space})

        def reset(self, *, seed=None, options=None):
            cell, info = super().reset(seed=seed)
            return {"cell": cell}, info

        def step(self, action):
            cell, *rest = super().step(action)
            return ({"cell": cell}, *rest)

    for cells in (None, lambda seen: seen["cell"].tolist()):
        named = EpisodeControlVecEnv(DummyVecEnv([lambda: gym.wrappers.TimeLimit(Named(), 30)] * 4), seed=0)
        allocator = BudgetAllocatorCallback(cells=cells, warmup=256)
        PPO("MultiInputPolicy", named, **SMALL).learn(1024, callback=allocator)
        assert 1 < len(allocator.archive) <= Chain.length


def test_advantages_go_to_the_cells_in_which_they_were_taken(monkeypatch):
    credited = []
    monkeypatch.setattr(rollout_notes, "credit", lambda average, rows, values: credited.append((rows, values)))
    allocator = BudgetAllocatorCallback("advantage", warmup=0, archive_size=3, refresh=0.0)
    venv = EpisodeControlVecEnv(make_vec_env("MountainCar-v0", 4, seed=0), seed=0)
    PPO("MlpPolicy", venv, **SMALL).learn(512, callback=allocator)
    rows = np.stack([each for each, _ in credited])
    assert rows.shape == (4, 32, 4) and (rows == -1).any() and rows.max() <= 2


def test_with_equal_seeds_runs_are_equal():
    runs = [parameters(PPO("MlpPolicy", chains(), **SMALL).learn(1024, BudgetAllocatorCallback())) for _ in range(2)]
    np.testing.assert_array_equal(*runs)


def test_a_users_cells_and_priority():
    halves = BudgetAllocatorCallback(
        lambda anchors: anchors.visits.astype(float), cells=lambda seen: [int(each) // 6 for each in seen], warmup=64
    )
    PPO("MlpPolicy", chains(), **SMALL).learn(1024, callback=halves)
    assert len(halves.archive) == 2


def test_it_logs_what_it_does():
    model = PPO("MlpPolicy", chains(), **SMALL).learn(1024, callback=BudgetAllocatorCallback(warmup=64), log_interval=1000)
    logged = model.logger.name_to_value
    assert 0.0 < logged["budget/archive_starts"] < 1.0
    assert logged["budget/archive_size"] > 3
    assert 0.0 < logged["budget/allocator_time"] < 1.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"floor": 1.5}, r"floor=1.5 must lie in \[0, 1\]"),
        ({"warmup": -1}, "warmup=-1 must be a number of steps"),
        ({"temperature": 0.0}, "temperature=0.0 must be positive"),
        ({"horizon": 0}, "horizon=0 must be at least 1 step"),
        ({"archive_size": 0}, "archive_size=0 must be at least 1"),
        ({"priority": "best"}, "priority='best' is not one of"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        BudgetAllocatorCallback(**arguments)


def test_misuse_is_refused():
    with pytest.raises(ValueError, match="put EpisodeControlVecEnv around the base VecEnv"):
        PPO("MlpPolicy", VecMonitor(DummyVecEnv([make_chain] * 4)), **SMALL).learn(64, BudgetAllocatorCallback())
    with pytest.raises(ValueError, match="enabled=False: it cannot choose starts"):
        venv = EpisodeControlVecEnv(make_vec_env(make_chain, 4), enabled=False)
        PPO("MlpPolicy", venv, **SMALL).learn(64, BudgetAllocatorCallback())
    with pytest.raises(ValueError, match="inside EveryNTimesteps would never hear of rollouts"):
        PPO("MlpPolicy", chains(), **SMALL).learn(64, EveryNTimesteps(10, BudgetAllocatorCallback()))
    with pytest.raises(ValueError, match="needs an on-policy algorithm, not DQN"):
        DQN("MlpPolicy", chains(2), buffer_size=100).learn(64, BudgetAllocatorCallback("advantage"))


@pytest.mark.parametrize("algorithm", [PPO, DQN])
def test_a_training_that_was_broken_off_leaves_nothing_to_the_next(algorithm):
    class Interrupt(BaseCallback):
        def _on_step(self):
            if self.num_timesteps >= 600:
                raise KeyboardInterrupt
            return True

    def starts_of_the_second(reset_num_timesteps, *callbacks):
        venv = chains()
        kwargs = SMALL if algorithm is PPO else {"learning_starts": 50, "buffer_size": 500, "seed": 0, "device": "cpu"}
        model = algorithm("MlpPolicy", venv, **kwargs)
        with pytest.raises(KeyboardInterrupt):
            model.learn(2000, callback=[BudgetAllocatorCallback("novelty", warmup=100), Interrupt()])
        assert venv.start_sampler is not None
        seen = Starts()
        model.learn(600, callback=[*callbacks, seen], reset_num_timesteps=reset_num_timesteps)
        return seen.ids

    assert set(starts_of_the_second(True)) == {None}
    # Episodes that were running go on.
    assert set(starts_of_the_second(False)[4:]) == {None}
    assert set(starts_of_the_second(True, BudgetAllocatorCallback("novelty", warmup=100))) != {None}
