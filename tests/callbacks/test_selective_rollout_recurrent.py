"""The gate with a recurrent policy, whose values need hidden states."""

import numpy as np
import pytest
from stable_baselines3.common.env_util import make_vec_env

from sb3_budget import RandomGate, SelectiveRecurrentPPO, SelectiveRolloutCallback, StaggeredResetVecEnv


@pytest.mark.parametrize("early_weight", [1.0, 0.5])
def test_stops_and_audits_with_hidden_states(early_weight):
    venv = StaggeredResetVecEnv(make_vec_env("Pendulum-v1", n_envs=4, seed=0), horizon=200)
    model = SelectiveRecurrentPPO(
        "MlpLstmPolicy",
        venv,
        n_steps=64,
        batch_size=64,
        n_epochs=1,
        seed=0,
        device="cpu",
        policy_kwargs=dict(lstm_hidden_size=8, net_arch=[8]),
        rollout_buffer_kwargs=dict(early_weight=early_weight),
    )
    gate = SelectiveRolloutCallback(RandomGate(0.5), check_interval=10, grace=10, warmup=0, audit_fraction=0.5, seed=0)
    model.learn(2048, callback=gate)
    assert gate.n_stops > 0
    assert gate._audit.statistics().n > 0
    assert np.isfinite([parameter.detach().numpy().sum() for parameter in model.policy.parameters()]).all()
