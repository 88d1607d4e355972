"""Weighted buffers on unmodified MaskablePPO."""

import numpy as np
import pytest
import torch as th
from gymnasium import spaces

pytest.importorskip("sb3_contrib")

from sb3_contrib import MaskablePPO
from sb3_contrib.common.envs import InvalidActionEnvDiscrete
from stable_baselines3.common.callbacks import BaseCallback

from sb3_budget.buffers.selective_maskable_buffer import (
    SelectiveMaskableDictRolloutBuffer,
    SelectiveMaskableRolloutBuffer,
)

KWARGS = dict(n_steps=32, batch_size=16, n_epochs=2, seed=3, device="cpu")
ACTIONS = spaces.Discrete(3)
BOX = spaces.Box(-1.0, 1.0, (2,), np.float32)
DICT = spaces.Dict(a=BOX)


def make_env() -> InvalidActionEnvDiscrete:
    return InvalidActionEnvDiscrete(dim=6, n_invalid_actions=3)


def filled(n_steps=8, n_envs=2, is_dict=False, **kwargs):
    """A buffer in which the first observation and the action mask of a row hold its flat index."""
    buffer_class = SelectiveMaskableDictRolloutBuffer if is_dict else SelectiveMaskableRolloutBuffer
    buffer = buffer_class(n_steps, DICT if is_dict else BOX, ACTIONS, "cpu", n_envs=n_envs, **kwargs)
    for step in range(n_steps):
        index = np.arange(n_envs) * n_steps + step
        obs = np.stack([index, index], axis=1).astype(np.float32)
        buffer.add(
            {"a": obs} if is_dict else obs,
            np.zeros((n_envs, 1)),
            np.ones(n_envs),
            np.full(n_envs, step == 0),
            th.zeros(n_envs),
            th.zeros(n_envs),
            action_masks=np.repeat(index[:, None], 3, axis=1).astype(np.float32),
        )
    return buffer


def finish(buffer):
    buffer.compute_returns_and_advantage(th.zeros(buffer.n_envs), np.zeros(buffer.n_envs))
    return buffer


class StopSlotAtEveryFifthStep(BaseCallback):
    def _on_step(self) -> bool:
        if self.n_calls % 5 == 0:
            self.model.rollout_buffer.mark_stopped([0])
        return True


def test_off_is_stock_maskable_ppo_bit_for_bit():
    stock = MaskablePPO("MlpPolicy", make_env(), **KWARGS).learn(128)
    ours = MaskablePPO("MlpPolicy", make_env(), rollout_buffer_class=SelectiveMaskableRolloutBuffer, **KWARGS).learn(128)
    for a, b in zip(stock.policy.parameters(), ours.policy.parameters(), strict=True):
        assert th.equal(a, b)


@pytest.mark.parametrize("is_dict", [False, True])
def test_thinning_keeps_masks_with_their_rows(is_dict):
    buffer = filled(is_dict=is_dict, early_weight=0.0, weighting="trajectory", seed=0)
    buffer.stops[5, 1] = True
    finish(buffer)
    rows = []
    for samples in buffer.get(4):
        obs = samples.observations["a"] if is_dict else samples.observations
        assert th.equal(obs[:, 0], samples.action_masks[:, 2])
        assert len(obs) > 1
        rows.extend(obs[:, 0].int().tolist())
    # Slot 1 was stopped at its row 5: its rows up to there weigh nothing, those after it count.
    assert sorted(rows) == [*range(8), 14, 15]


def test_two_rows_stay_where_one_outweighs_all_others():
    buffer = filled(seed=0)
    buffer.factors[:] = 0.0
    buffer.factors[3, 0] = 1.0
    finish(buffer)
    sizes = [len(samples.advantages) for samples in buffer.get(4)]
    assert sizes == [2]


def test_learns_with_thinned_rows_and_stays_finite():
    model = MaskablePPO(
        "MlpPolicy",
        make_env(),
        rollout_buffer_class=SelectiveMaskableRolloutBuffer,
        rollout_buffer_kwargs=dict(early_weight=0.0, seed=1),
        **KWARGS,
    )
    model.learn(128, callback=StopSlotAtEveryFifthStep())
    assert model.rollout_buffer.effective_samples < 32
    assert all(th.isfinite(parameter).all() for parameter in model.policy.parameters())


def test_save_and_load_keep_the_buffer(tmp_path):
    model = MaskablePPO(
        "MlpPolicy",
        make_env(),
        rollout_buffer_class=SelectiveMaskableRolloutBuffer,
        rollout_buffer_kwargs=dict(early_weight=0.5),
        **KWARGS,
    )
    model.learn(32).save(tmp_path / "model")
    loaded = MaskablePPO.load(tmp_path / "model", env=model.get_env(), device="cpu")
    assert isinstance(loaded.rollout_buffer, SelectiveMaskableRolloutBuffer)
    assert loaded.rollout_buffer.early_weight == 0.5
    loaded.learn(32)


def test_observation_spaces_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="use SelectiveMaskableDictRolloutBuffer"):
        SelectiveMaskableRolloutBuffer(8, DICT, ACTIONS)
    with pytest.raises(ValueError, match="use SelectiveMaskableRolloutBuffer"):
        SelectiveMaskableDictRolloutBuffer(8, BOX, ACTIONS)


def test_wrong_weights_are_refused():
    with pytest.raises(ValueError, match=r"early_weight=1\.5"):
        SelectiveMaskableRolloutBuffer(8, BOX, ACTIONS, early_weight=1.5)
