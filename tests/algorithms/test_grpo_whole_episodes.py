"""GRPO without a critic: groups of whole episodes, carried on until their last member has ended."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecNormalize

from sb3_budget import (
    GRPO,
    EpisodeControlVecEnv,
    FinishedGroupDictRolloutBuffer,
    QuantileGate,
    SelectiveRolloutCallback,
    StartPool,
)
from sb3_budget.buffers.finished_group_buffer import played

SMALL = {"n_steps": 8, "batch_size": 32, "n_epochs": 2, "seed": 0, "device": "cpu", "policy_kwargs": {"net_arch": [8]}}


class Corridor(gym.Env):
    """The seed decides how long an episode can be; every step pays what its action and its number say."""

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = spaces.Discrete(2)
    constant = False

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.length, self.steps = int(self.np_random.integers(3, 12)), 0
        return self._observe(), {}

    def _observe(self):
        return np.array([self.length / 12, self.steps / 12], dtype=np.float32)

    def step(self, action):
        self.steps += 1
        reward = 1.0 if self.constant else float(action) + 0.1 * self.steps
        stumbles = not self.constant and bool(self.np_random.random() < 0.1)
        return self._observe(), reward, stumbles, self.steps == self.length, {"reward": reward}


class Constant(Corridor):
    constant = True


class Goal(Constant):
    def step(self, action):
        *rest, _ = super().step(action)
        observation, _, _, over = rest
        return observation, float(over), over, False, {}


class Named(Corridor):
    observation_space = spaces.Dict({"a": Corridor.observation_space})

    def _observe(self):
        return {"a": super()._observe()}


def corridors(n_envs=4, env=Corridor, vec_env_cls=DummyVecEnv):
    return make_vec_env(env, n_envs, seed=0, vec_env_cls=vec_env_cls)


def pendulums(advantage="outcome", n_steps=8, **kwargs):
    arguments = {**SMALL, "n_steps": n_steps, "batch_size": 2 * n_steps, **kwargs}
    return GRPO("MlpPolicy", make_vec_env("Pendulum-v1", 2, seed=0), group_size=2, advantage=advantage, **arguments)


class Recorder(BaseCallback):
    """Every step as the environment gave it, and the rows that each update may use."""

    def __init__(self):
        super().__init__()
        self.rewards, self.episode, self.updates, self.policies = {}, None, [], []

    def _on_step(self):
        episodes, members = self.model._starts.before(self.locals["dones"])
        for slot, reward in enumerate(self.locals["rewards"]):
            key = (slot // self.model.group_size, int(members[slot]), int(episodes[slot]))
            self.rewards.setdefault(key, []).append((float(reward), self.locals["log_probs"][slot].item()))
        return True

    def _on_rollout_end(self):
        ready = self.model.rollout_buffer._ready
        self.updates.append(None if ready is None else {key: value.copy() for key, value in ready.columns.items()})


def parameters(model):
    return th.cat([parameter.detach().flatten() for parameter in model.policy.parameters()]).numpy()


@pytest.mark.parametrize("advantage", ["outcome", "return_to_go"])
def test_every_row_of_a_finished_group_is_used_once_with_the_log_probability_of_its_time(advantage):
    recorder = Recorder()
    model = GRPO("MlpPolicy", corridors(), group_size=2, advantage=advantage, scale="none", gamma=0.9, **SMALL)
    model.learn(1024, callback=recorder)
    seen = {}
    for columns in filter(None, recorder.updates):
        for row in range(len(columns["group"])):
            key = tuple(int(columns[name][row]) for name in ("group", "member", "episode"))
            seen.setdefault(key, {})
            time = int(columns["time"][row])
            assert time not in seen[key]
            seen[key][time] = (float(columns["log_probs"][row, 0]), float(columns["advantages"][row]))
    assert len(seen) > 50
    for (group, member, episode), rows in seen.items():
        steps = recorder.rewards[group, member, episode]
        mate = recorder.rewards[group, 1 - member, episode]
        assert sorted(rows) == list(range(len(steps)))
        own, other = ([reward for reward, _ in path] for path in (steps, mate))
        for time, (log_prob, found) in rows.items():
            assert log_prob == pytest.approx(steps[time][1], abs=1e-6)
            if advantage == "outcome":
                expected = (sum(own) - sum(other)) / 2
            else:
                to_go = [sum(0.9**k * reward for k, reward in enumerate(path[time:])) for path in (own, other)]
                expected = to_go[0] - to_go[1]
            # Equal returns teach nothing, whenever they came.
            assert found == (0.0 if sum(own) == sum(other) else pytest.approx(expected, abs=1e-4))
    finished = {(group, episode) for group, _, episode in seen}
    # What is still missing is what is still open.
    latest = model.rollout_buffer.episodes[-1].reshape(-1, 2).min(axis=1)
    assert finished >= {(group, episode) for group in (0, 1) for episode in range(int(latest[group]))}


def test_outcomes_on_a_task_that_is_always_truncated_are_sums_of_rewards_whatever_the_critic_says():
    model = pendulums(n_steps=100)
    with th.no_grad():
        model.policy.value_net.bias.fill_(1e6)
    recorder = Recorder()
    model.learn(400, callback=recorder)
    (finished,) = model.rollout_buffer.finished
    sums = [sum(reward for reward, _ in recorder.rewards[0, member, 0]) for member in (0, 1)]
    np.testing.assert_allclose(finished.returns, sums, rtol=1e-5)


def test_a_stopped_episode_is_completed_by_the_critic():
    model = pendulums(n_steps=50)
    with th.no_grad():
        model.policy.value_net.weight.zero_()
        model.policy.value_net.bias.fill_(1e6)

    def stop(view):
        return view.look & (np.arange(2) == 0)

    gate = SelectiveRolloutCallback(stop, check_interval=10, grace=10, warmup=0, audit_fraction=0.0, min_active=0)
    model.learn(100, callback=gate)
    assert model.rollout_buffer.outcomes._open[0, 0][0][0] > 5e5


@pytest.mark.parametrize("advantage", ["outcome", "return_to_go"])
@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_constant_rewards_teach_nothing(advantage, scale):
    recorder = Recorder()
    arguments = {**SMALL, "vf_coef": 0.0, "ent_coef": 0.0}
    model = GRPO("MlpPolicy", corridors(env=Constant), group_size=2, advantage=advantage, scale=scale, **arguments)
    before = parameters(model)
    model.learn(256, callback=recorder)
    used = [columns["advantages"] for columns in recorder.updates if columns is not None]
    assert used and all((advantages == 0.0).all() for advantages in used)
    np.testing.assert_array_equal(parameters(model), before)
    assert model.rollout_buffer.statistics.outcomes.zero_variance == 1.0


def test_a_rollout_that_finishes_no_group_changes_nothing():
    model = pendulums()
    before = parameters(model)
    model.learn(2 * 192)
    np.testing.assert_array_equal(parameters(model), before)
    model.learn(2 * 16, reset_num_timesteps=False)
    assert (parameters(model) != before).any()


def test_going_on_is_the_same_as_not_stopping():
    whole = GRPO("MlpPolicy", corridors(), group_size=2, advantage="return_to_go", **SMALL).learn(512)
    parts = GRPO("MlpPolicy", corridors(), group_size=2, advantage="return_to_go", **SMALL)
    parts.learn(256).learn(256, reset_num_timesteps=False)
    np.testing.assert_array_equal(parameters(whole), parameters(parts))


def test_kinds_of_vec_env_make_no_difference():
    runs = []
    for kind in (DummyVecEnv, SubprocVecEnv):
        model = GRPO("MlpPolicy", corridors(vec_env_cls=kind), group_size=4, advantage="outcome", **SMALL).learn(256)
        runs.append(parameters(model))
        model.get_env().close()
    np.testing.assert_array_equal(*runs)


def test_dict_observations():
    model = GRPO("MultiInputPolicy", corridors(env=Named), group_size=2, advantage="outcome", **SMALL).learn(256)
    assert isinstance(model.rollout_buffer, FinishedGroupDictRolloutBuffer)


class Bandit(gym.Env):
    """One step, three arms with means 0, 1 and 0.2, and a hidden offset that drowns them."""

    observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.offset = 20.0 * self.np_random.normal()
        return np.zeros(1, dtype=np.float32), {}

    def step(self, action):
        return np.zeros(1, dtype=np.float32), [0.0, 1.0, 0.2][action] + self.offset, True, False, {}


@pytest.mark.parametrize("advantage", ["outcome", "return_to_go", "residual"])
def test_the_best_arm_is_learnt_through_a_hidden_offset(advantage):
    arguments = {**SMALL, "n_steps": 8, "batch_size": 128, "n_epochs": 8, "learning_rate": 0.01}
    model = GRPO("MlpPolicy", corridors(32, Bandit), group_size=8, advantage=advantage, **arguments).learn(5000)
    observation, _ = model.policy.obs_to_tensor(np.zeros((1, 1), dtype=np.float32))
    assert model.policy.get_distribution(observation).distribution.probs[0, 1].item() > 0.8


@pytest.mark.parametrize("aggregation", ["episode", "constant"])
def test_aggregation_changes_the_update(aggregation):
    runs = [
        parameters(
            GRPO("MlpPolicy", corridors(), group_size=2, advantage="outcome", loss_aggregation=rule, **SMALL).learn(256)
        )
        for rule in ("step", aggregation)
    ]
    assert (runs[0] != runs[1]).any()


def test_ratios_of_episodes_train_on_whole_episodes():
    arguments = {**SMALL, "batch_size": 8, "importance_sampling_level": "episode"}
    model = GRPO("MlpPolicy", corridors(), group_size=2, advantage="outcome", **arguments)
    batches, epochs = [], []
    get_episodes = model.rollout_buffer.get_episodes

    def recorded(batch_size):
        epochs.append([])
        for samples, episodes in get_episodes(batch_size):
            batches.append((model.rollout_buffer, np.bincount(episodes)))
            epochs[-1].append(len(episodes))
            yield samples, episodes

    model.rollout_buffer.get_episodes = recorded
    before = parameters(model)
    model.learn(512)
    assert (parameters(model) != before).any()
    assert all((lengths > 0).all() and lengths.max() <= 11 for _, lengths in batches)
    # Where an epoch has so many rows, no minibatch has fewer.
    assert any(len(epoch) > 1 for epoch in epochs)
    assert all(min(epoch) >= min(8, sum(epoch)) for epoch in epochs)


def test_groups_that_are_alike_can_be_shaped_by_entropy():
    arguments = {"group_size": 2, "advantage": "outcome", "zero_variance_shaping": 0.5, **SMALL}
    for good_return, sign in ((-1.0, 1.0), (1e6, -1.0)):
        recorder = Recorder()
        GRPO("MlpPolicy", corridors(env=Constant), good_return=good_return, **arguments).learn(128, callback=recorder)
        # The callback saw them before they were shaped; the buffer holds those of the last update.
        model = GRPO("MlpPolicy", corridors(env=Constant), good_return=good_return, **arguments).learn(128)
        advantages = model.rollout_buffer._ready.columns["advantages"]
        assert (np.sign(advantages) == sign).mean() > 0.5
        assert np.abs(advantages).max() <= 0.5 * np.log(2.0) + 1e-6


def test_it_works_under_normalisation_with_a_gate():
    venv = VecNormalize(EpisodeControlVecEnv(make_vec_env("Pendulum-v1", 8, seed=0)))
    model = GRPO("MlpPolicy", venv, group_size=4, advantage="return_to_go", **{**SMALL, "n_steps": 64})
    gate = SelectiveRolloutCallback(QuantileGate(0.4), warmup=0)
    model.learn(8 * 512, callback=gate)
    assert gate.n_stops > 0 and np.isfinite(parameters(model)).all()


def test_equal_returns_are_alike_under_normalisation_too():
    """Every return is 1, but rewards have been divided by numbers that differ."""
    recorder = Recorder()
    venv = VecNormalize(EpisodeControlVecEnv(corridors(env=Goal)))
    pool = StartPool(20, seed=0)
    model = GRPO("MlpPolicy", venv, group_size=2, advantage="outcome", start_rule=pool, **SMALL)
    model.learn(256, callback=recorder)
    used = [columns["advantages"] for columns in recorder.updates if columns is not None]
    assert used and all((advantages == 0.0).all() for advantages in used)
    assert pool.statistics.pool_signal == 0.0


def test_shaped_rows_are_aggregated_like_others():
    arguments = {"advantage": "outcome", "zero_variance_shaping": 1.0, "good_return": -1.0, **SMALL, "n_steps": 64}
    model = GRPO("MlpPolicy", corridors(env=Constant), group_size=2, loss_aggregation="episode", **arguments).learn(512)
    columns = model.rollout_buffer._ready.columns
    episodes = played(columns)
    lengths, sums = np.bincount(episodes), np.bincount(episodes, weights=columns["advantages"])
    # Nearly the same entropy everywhere: what an episode adds does not depend on its length.
    assert len(set(lengths)) > 1
    np.testing.assert_allclose(sums, sums.mean(), rtol=0.1)


def test_weights_thin_out_whole_episodes():
    model = GRPO("MlpPolicy", corridors(), group_size=2, advantage="outcome", importance_sampling_level="episode", **SMALL)
    model.learn(32)
    buffer = model.rollout_buffer
    columns = buffer._ready.columns
    columns["weight"][columns["member"] == 0] = 0.25
    episodes, counts = 2 * played(columns) + columns["member"], [0, 0]
    for _ in range(400):
        kept = buffer._whole_episodes(columns)
        for number in np.unique(episodes[kept]):
            assert (episodes[kept] == number).sum() == (episodes == number).sum()
            counts[number % 2] += 1
    # A quarter, within six deviations of 400 tosses per episode.
    assert 0.12 < counts[0] / counts[1] < 0.4


def test_rows_that_wait_are_dated():
    recorder = Recorder()
    model = GRPO("MlpPolicy", corridors(), group_size=2, advantage="outcome", **SMALL)
    model.learn(512, callback=recorder, log_interval=1000)
    ages = [columns["age"].mean() for columns in recorder.updates if columns is not None]
    assert max(ages) > 0.0
    assert model.logger.name_to_value["budget/row_age"] == ages[-1]


def test_a_model_can_be_saved_loaded_and_watched(tmp_path):
    GRPO("MlpPolicy", corridors(), group_size=2, advantage="outcome", **SMALL).learn(128).save(tmp_path / "model")
    loaded = GRPO.load(tmp_path / "model", env=corridors())
    assert (loaded.advantage, loaded.normalize_advantage) == ("outcome", False)
    loaded.learn(128, reset_num_timesteps=False)
    watching = GRPO.load(tmp_path / "model", env=corridors(1))
    assert watching.predict(watching.get_env().reset())[0].shape == (1,)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"advantage": "outcome", "group_size": 1}, "compares the members of a group, and group_size is 1"),
        ({"advantage": "outcome", "normalize_advantage": True}, "normalize_advantage=True has no part in"),
        ({"scale": "std"}, "scale='std' is not one of 'group', 'batch', 'none'"),
        ({"loss_aggregation": "episode"}, "loss_aggregation='episode' has no part in advantage='residual'"),
        ({"loss_aggregation": "token", "advantage": "outcome"}, "loss_aggregation='token' is not one of"),
        ({"std_floor": 0.5}, "std_floor=0.5 has no part in scale=None"),
        (
            {"advantage": "outcome", "zero_variance_shaping": 0.1, "good_return": 0.0, "start_rule": StartPool(5)},
            "which RecycleRule leaves out",
        ),
        ({"advantage": "gae", "remember_peers": 2}, "remember_peers=2 has no part in advantage='gae'"),
        ({"importance_sampling_level": "episode"}, "is for one advantage per episode"),
        ({"importance_sampling_level": "token"}, "is neither 'step' nor 'episode'"),
        ({"beta": -0.1}, "beta=-0.1 must be finite, and not negative"),
        ({"reference_interval": 2}, "reference_interval=2 needs beta > 0"),
        ({"zero_variance_shaping": 0.1, "advantage": "outcome"}, "goes together with good_return"),
        ({"zero_variance_shaping": 0.1, "good_return": 0.0}, "has no part in advantage='residual'"),
        ({"std_floor": -1.0, "scale": "group"}, "std_floor=-1.0 and zero_tolerance=0.0 must not be negative"),
    ],
)
def test_misuse_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        GRPO("MlpPolicy", corridors(), **{"group_size": 2, **arguments}, **SMALL)


def test_shaping_by_an_entropy_that_no_state_changes_is_refused():
    with pytest.raises(ValueError, match="needs an entropy that depends on the state"):
        pendulums(zero_variance_shaping=0.1, good_return=0.0)
