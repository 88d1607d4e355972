"""What a callback saves is there again, whatever it is and wherever its tensors were."""

from __future__ import annotations

import pickle
import threading

import pytest
import torch as th
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

from sb3_budget import (
    ActiveVerificationCallback,
    BudgetAllocatorCallback,
    CriticRecyclingCallback,
    EpisodeControlVecEnv,
    SelectiveRolloutCallback,
)
from sb3_budget.callbacks.state_files import read_state, write_state


def test_tensors_functions_and_shared_objects_come_back(tmp_path):
    shared = ["key"]
    write_state(
        tmp_path / "state", BaseCallback, {"weights": th.ones(2), "rule": lambda x: x + 1, "one": shared, "other": shared}
    )
    state = read_state(tmp_path / "state", BaseCallback)
    assert th.equal(state["weights"], th.ones(2)) and state["rule"](1) == 2
    assert state["one"] == shared and state["one"] is state["other"]


def make(kind):
    if kind is not ActiveVerificationCallback:
        return kind()
    return kind(EpisodeControlVecEnv(make_vec_env("CartPole-v1")))


SAVED = [ActiveVerificationCallback, BudgetAllocatorCallback, CriticRecyclingCallback, SelectiveRolloutCallback]


@pytest.mark.parametrize("kind", SAVED)
def test_a_file_of_another_callback_is_refused(tmp_path, kind):
    for other in SAVED:
        make(other).save(tmp_path / other.__name__)
        if other is kind:
            make(kind).load(tmp_path / other.__name__)
            continue
        with pytest.raises(ValueError, match=f"saved by a {other.__name__}, not by a {kind.__name__}"):
            make(kind).load(tmp_path / other.__name__)


@pytest.mark.parametrize("damage", [lambda data: data[:100], lambda data: b"", lambda data: pickle.dumps({"a": 1})])
def test_a_damaged_or_foreign_file_is_refused(tmp_path, damage):
    file = tmp_path / "state"
    write_state(file, BaseCallback, {"weights": th.ones(2)})
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(ValueError, match=r"not a file that BaseCallback.save\(\) wrote"):
        read_state(file, BaseCallback)


def test_what_cannot_be_saved_leaves_an_earlier_file(tmp_path):
    file = tmp_path / "state"
    write_state(file, BaseCallback, 1)
    with pytest.raises(TypeError, match="pickle"):
        write_state(file, BaseCallback, threading.Lock())
    assert read_state(file, BaseCallback) == 1


@pytest.mark.skipif(th.cuda.is_available(), reason="is about a machine without a GPU")
@pytest.mark.parametrize("kind", [CriticRecyclingCallback, SelectiveRolloutCallback])
def test_a_file_from_a_gpu_is_read_without_one(tmp_path, monkeypatch, kind):
    moments = {"exp_avg": th.ones(2)}
    callback, other = make(kind), make(kind)
    if kind is CriticRecyclingCallback:
        callback._critic_state = moments
    else:
        callback.bootstrap.target_state = lambda: moments
    # What a tensor on a GPU is marked as.
    monkeypatch.setattr(th.serialization, "location_tag", lambda storage: "cuda:0")
    callback.save(tmp_path / "callback")
    monkeypatch.undo()
    with pytest.raises(RuntimeError, match="CUDA"):
        th.load(tmp_path / "callback", weights_only=False)
    other.load(tmp_path / "callback")
    found = other._critic_state if kind is CriticRecyclingCallback else other.bootstrap._loaded
    assert th.equal(found["exp_avg"], moments["exp_avg"])
