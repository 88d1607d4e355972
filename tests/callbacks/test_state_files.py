"""What a callback saves is there again, whatever it is and wherever its tensors were."""

from __future__ import annotations

import pytest
import torch as th

from sb3_budget import CriticRecyclingCallback, QuantileGate, SelectiveRolloutCallback
from sb3_budget.callbacks.state_files import read_state, write_state


def test_tensors_functions_and_shared_objects_come_back(tmp_path):
    shared = ["key"]
    write_state(tmp_path / "state", {"weights": th.ones(2), "rule": lambda x: x + 1, "one": shared, "other": shared})
    state = read_state(tmp_path / "state")
    assert th.equal(state["weights"], th.ones(2)) and state["rule"](1) == 2
    assert state["one"] == shared and state["one"] is state["other"]


@pytest.mark.skipif(th.cuda.is_available(), reason="is about a machine without a GPU")
@pytest.mark.parametrize("kind", ["recycling", "gate"])
def test_a_file_from_a_gpu_is_read_without_one(tmp_path, monkeypatch, kind):
    moments = {"exp_avg": th.ones(2)}
    if kind == "recycling":
        make = CriticRecyclingCallback
        callback, other = make(), make()
        callback._critic_state = moments
    else:
        make = lambda: SelectiveRolloutCallback(QuantileGate(0.4))  # noqa: E731  # one for each
        callback, other = make(), make()
        callback.bootstrap.target_state = lambda: moments
    # What a tensor on a GPU is marked as.
    monkeypatch.setattr(th.serialization, "location_tag", lambda storage: "cuda:0")
    callback.save(tmp_path / "callback")
    monkeypatch.undo()
    with pytest.raises(RuntimeError, match="CUDA"):
        th.load(tmp_path / "callback", weights_only=False)
    other.load(tmp_path / "callback")
    found = other._critic_state if kind == "recycling" else other.bootstrap._loaded
    assert th.equal(found["exp_avg"], moments["exp_avg"])
