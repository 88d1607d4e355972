"""What the package relies on inside Stable-Baselines3. Where an upgrade breaks something, a test here says what."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.buffers import DictRolloutBuffer, RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback, CallbackList, EveryNTimesteps
from stable_baselines3.common.vec_env import DummyVecEnv


class Counter(gym.Env):
    """Observes its age; a step pays 1."""

    observation_space = spaces.Box(0.0, 100.0, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.age = 0
        return np.zeros(1, dtype=np.float32), {}

    def step(self, action):
        self.age += 1
        return np.array([self.age], dtype=np.float32), 1.0, False, False, {}


EVENTS: list[str] = []


class SpyBuffer(RolloutBuffer):
    def reset(self):
        EVENTS.append("reset")
        super().reset()

    def add(self, *args, **kwargs):
        EVENTS.append("add")
        super().add(*args, **kwargs)

    def compute_returns_and_advantage(self, last_values, dones):
        EVENTS.append("compute")
        super().compute_returns_and_advantage(last_values, dones)

    def get(self, batch_size=None):
        EVENTS.append("get")
        yield from super().get(batch_size)


class SpyCallback(BaseCallback):
    def __init__(self, at_step=None):
        super().__init__()
        self.at_step = at_step

    def _on_training_start(self):
        EVENTS.append("training_start")

    def _on_rollout_start(self):
        EVENTS.append("rollout_start")

    def _on_step(self):
        EVENTS.append("step")
        if self.at_step is not None:
            self.at_step(self)
        return True

    def _on_rollout_end(self):
        EVENTS.append("rollout_end")


def learn(callback, n_steps=3, limit=2, n_rollouts=1, n_envs=1, algorithm=PPO, **kwargs):
    venv = DummyVecEnv([lambda: TimeLimit(Counter(), limit) for _ in range(n_envs)])
    if algorithm is PPO:
        kwargs = {"n_epochs": 2, "batch_size": n_steps * n_envs, **kwargs}
    model = algorithm("MlpPolicy", venv, n_steps=n_steps, device="cpu", rollout_buffer_class=SpyBuffer, **kwargs)
    predict = model.policy.predict_values
    model.policy.predict_values = lambda obs: EVENTS.append("predict_values") or predict(obs)
    EVENTS.clear()
    return model.learn(n_steps * n_rollouts * n_envs, callback=callback)


@pytest.mark.filterwarnings("ignore:You have specified a mini-batch size")
def test_the_order_of_events():
    learn(SpyCallback())
    collected = ["step", "add", "step", "predict_values", "add", "step", "add", "predict_values", "compute"]
    assert EVENTS == ["training_start", "reset", "rollout_start", *collected, "rollout_end", "get", "get"]


def test_a2c_asks_for_everything_at_once():
    learn(SpyCallback(), algorithm=A2C)
    assert EVENTS.count("get") == 1


def test_what_a_callback_finds_at_a_step():
    seen = []

    def look(callback):
        found, model = callback.locals, callback.model
        assert isinstance(found["values"], th.Tensor) and found["values"].shape == (2, 1)
        assert isinstance(found["rewards"], np.ndarray) and found["dones"].dtype == bool
        assert found["infos"][0].get("TimeLimit.truncated", False) == found["dones"][0]
        # The values are of the observations that were acted on; the row of this step is not written yet.
        assert th.equal(found["values"], model.policy.value_net(model.policy.mlp_extractor(obs(model))[1]))
        seen.append((model._last_obs[0].item(), found["new_obs"][0].item(), model.rollout_buffer.pos, model.num_timesteps))

    def obs(model):
        return th.as_tensor(model._last_obs)

    learn(SpyCallback(look), n_envs=2)
    assert seen == [(0.0, 1.0, 0, 2), (1.0, 0.0, 1, 4), (0.0, 1.0, 2, 6)]


def test_rewards_edited_in_place_reach_the_buffer():
    def edit(callback):
        callback.locals["rewards"][0] += 10.0
        callback.locals["infos"][0]["TimeLimit.truncated"] = False

    model = learn(SpyCallback(edit))
    assert model.rollout_buffer.rewards.ravel().tolist() == [11.0] * 3
    assert EVENTS.count("predict_values") == 1


def test_a_truncated_episode_is_completed_with_the_critics_value():
    values = []

    def look(callback):
        if callback.locals["dones"][0]:
            with th.no_grad():
                terminal = callback.locals["infos"][0]["terminal_observation"]
                values.append(callback.model.policy.predict_values(th.as_tensor(terminal)[None]).item())

    model = learn(SpyCallback(look), gamma=0.5)
    assert model.rollout_buffer.rewards.ravel().tolist() == pytest.approx([1.0, 1.0 + 0.5 * values[0], 1.0])


def test_dones_become_the_next_episode_starts():
    model = learn(SpyCallback(), n_steps=4)
    assert model.rollout_buffer.episode_starts.ravel().tolist() == [1.0, 0.0, 1.0, 0.0]
    assert model._last_episode_starts.tolist() == [True]


def test_the_rollout_length_is_read_anew_for_each_rollout():
    class Shorten(SpyCallback):
        def _on_rollout_end(self):
            self.model.n_steps = 2
            self.model.rollout_buffer.next_size = 2

    class Resizable(SpyBuffer):
        next_size = None

        def reset(self):
            self.buffer_size = self.next_size or self.buffer_size
            super().reset()

    venv = DummyVecEnv([Counter])
    model = PPO("MlpPolicy", venv, n_steps=4, batch_size=4, device="cpu", rollout_buffer_class=Resizable)
    model.learn(6, callback=Shorten())
    assert model.num_timesteps == 6 and model.rollout_buffer.rewards.shape == (2, 1)


def test_a_callback_inside_an_event_callback_hears_of_no_rollouts():
    child = SpyCallback()
    learn(EveryNTimesteps(1, child))
    assert EVENTS.count("training_start") == 1 and EVENTS.count("step") == 3
    assert "rollout_start" not in EVENTS and "rollout_end" not in EVENTS


def test_a_list_tells_its_children_of_their_parent_before_training_starts():
    parents = []

    class Child(SpyCallback):
        def _on_training_start(self):
            parents.append(self.parent)

    outer = EveryNTimesteps(1, CallbackList([Child()]))
    learn(outer)
    assert parents == [outer]


def test_training_starts_after_the_reset_with_callbacks_initialised_in_order():
    order = []

    class Child(SpyCallback):
        def _init_callback(self):
            order.append((self.name, self.model._last_obs is not None, self.model._total_timesteps))

    first, second = Child(), Child()
    first.name, second.name = "first", "second"
    learn([first, second])
    assert order == [("first", True, 3), ("second", True, 3)]


def test_rows_are_flattened_slot_by_slot_when_first_asked():
    buffer = RolloutBuffer(3, Counter.observation_space, Counter.action_space, "cpu", n_envs=2)
    for t in range(3):
        zeros = th.zeros(2)
        buffer.add(np.array([[t], [10 + t]]), np.zeros((2, 1)), np.zeros(2), np.zeros(2), zeros, zeros)
    buffer.compute_returns_and_advantage(th.zeros(2), np.zeros(2))
    assert not buffer.generator_ready
    state = np.random.get_state()[1].tolist()  # noqa: NPY002  # SB3 draws from the global generator
    assert len(next(buffer.get(1)).returns) == 1 and buffer.generator_ready
    assert np.random.get_state()[1].tolist() != state or np.random.get_state()[2] != 624  # noqa: NPY002  # as above
    assert buffer.observations.ravel().tolist() == [0, 1, 2, 10, 11, 12]
    assert buffer.episode_starts.shape == buffer.rewards.shape == (3, 2)


def test_the_arguments_of_a_buffer_class():
    model = learn(SpyCallback(), gamma=0.5, gae_lambda=0.25)
    buffer = model.rollout_buffer
    assert (buffer.gamma, buffer.gae_lambda, buffer.n_envs, buffer.buffer_size) == (0.5, 0.25, 1, 3)
    assert issubclass(DictRolloutBuffer, RolloutBuffer)
