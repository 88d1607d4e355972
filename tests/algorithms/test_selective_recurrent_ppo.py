"""RecurrentPPO with a weighted buffer."""

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium import spaces

pytest.importorskip("sb3_contrib")

from sb3_contrib import RecurrentPPO
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

from sb3_budget.algorithms.selective_recurrent_ppo import SelectiveRecurrentPPO
from sb3_budget.buffers.selective_recurrent_buffer import (
    SelectiveRecurrentDictRolloutBuffer,
    SelectiveRecurrentRolloutBuffer,
)

KWARGS = dict(
    n_steps=16, batch_size=16, n_epochs=2, seed=3, device="cpu", policy_kwargs=dict(lstm_hidden_size=8, net_arch=[8])
)


class DictCorridor(gym.Env):
    """Ten steps of one number."""

    observation_space = spaces.Dict(place=spaces.Box(0.0, 10.0, (1,), np.float32))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return self.observe(), {}

    def step(self, action):
        self.place += 1
        return self.observe(), float(action), self.place == 10, False, {}

    def observe(self):
        return {"place": np.array([self.place], dtype=np.float32)}


class StopFirstSlotOften(BaseCallback):
    def _on_step(self) -> bool:
        if self.n_calls % 5 == 0:
            self.model.rollout_buffer.mark_stopped([0])
        return True


def make_cartpoles():
    return make_vec_env("CartPole-v1", n_envs=2, seed=0)


def assert_same_parameters(first, second):
    for a, b in zip(first.policy.parameters(), second.policy.parameters(), strict=True):
        assert th.equal(a, b)


def test_off_is_stock_recurrent_ppo_bit_for_bit():
    stock = RecurrentPPO("MlpLstmPolicy", make_cartpoles(), **KWARGS).learn(96)
    ours = SelectiveRecurrentPPO("MlpLstmPolicy", make_cartpoles(), **KWARGS).learn(96)
    assert isinstance(ours.rollout_buffer, SelectiveRecurrentRolloutBuffer)
    assert_same_parameters(stock, ours)


def test_thinned_rows_change_the_result_reproducibly_and_keep_it_finite():
    def learn(early_weight):
        buffer_kwargs = dict(early_weight=early_weight, seed=5)
        model = SelectiveRecurrentPPO("MlpLstmPolicy", make_cartpoles(), rollout_buffer_kwargs=buffer_kwargs, **KWARGS)
        return model.learn(64, callback=StopFirstSlotOften())

    trusting, first, second = learn(1.0), learn(0.0), learn(0.0)
    assert_same_parameters(first, second)
    pairs = list(zip(trusting.policy.parameters(), first.policy.parameters(), strict=True))
    assert any(not th.equal(a, b) for a, b in pairs)
    assert all(th.isfinite(b).all() for _, b in pairs)


def test_dict_observations_get_their_buffer():
    model = SelectiveRecurrentPPO("MultiInputLstmPolicy", DictCorridor(), **KWARGS).learn(32)
    assert isinstance(model.rollout_buffer, SelectiveRecurrentDictRolloutBuffer)


def test_positional_arguments_are_those_of_recurrent_ppo():
    model = SelectiveRecurrentPPO("MlpLstmPolicy", "CartPole-v1", 1e-3, 8, 4)
    assert (model.learning_rate, model.n_steps, model.batch_size) == (1e-3, 8, 4)


def test_save_and_load_keep_the_buffer(tmp_path):
    class Custom(SelectiveRecurrentRolloutBuffer):
        pass

    for buffer_class in (None, Custom):
        model = SelectiveRecurrentPPO(
            "MlpLstmPolicy",
            make_cartpoles(),
            rollout_buffer_class=buffer_class,
            rollout_buffer_kwargs=dict(early_weight=0.5, weighting="trajectory"),
            **KWARGS,
        )
        model.learn(32).save(tmp_path / "model")
        loaded = SelectiveRecurrentPPO.load(tmp_path / "model", env=model.get_env(), device="cpu")
        assert_same_parameters(model, loaded)
        assert type(loaded.rollout_buffer).__name__ == type(model.rollout_buffer).__name__
        assert (loaded.rollout_buffer.early_weight, loaded.rollout_buffer.weighting) == (0.5, "trajectory")
        loaded.learn(32, callback=StopFirstSlotOften())


def test_loading_for_another_number_of_envs_makes_a_buffer_of_that_size(tmp_path):
    SelectiveRecurrentPPO("MlpLstmPolicy", make_cartpoles(), **KWARGS).save(tmp_path / "model")
    env = make_vec_env("CartPole-v1", n_envs=3)
    assert SelectiveRecurrentPPO.load(tmp_path / "model", env=env, device="cpu").rollout_buffer.n_envs == 3


def test_a_buffer_without_hidden_states_is_refused():
    with pytest.raises(ValueError, match="does not hold hidden states"):
        SelectiveRecurrentPPO("MlpLstmPolicy", "CartPole-v1", rollout_buffer_class=RolloutBuffer)


def test_wrong_buffer_arguments_are_refused_at_construction():
    with pytest.raises(ValueError, match="early_weight=2"):
        SelectiveRecurrentPPO("MlpLstmPolicy", "CartPole-v1", rollout_buffer_kwargs=dict(early_weight=2.0))
