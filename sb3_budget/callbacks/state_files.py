"""Files of what callbacks have learnt."""

from __future__ import annotations

import pickle
from io import BytesIO
from pathlib import Path
from typing import Any

import cloudpickle  # type: ignore[import-untyped]  # it ships no types
import torch as th
from stable_baselines3.common.callbacks import BaseCallback


def write_state(path: str | Path, kind: type[BaseCallback], state: Any) -> None:
    """
    :param path: File to write. What cannot be saved leaves an earlier file as it is.
    :param kind: Class of the callback that has learnt it.
    :param state: What to keep: anything, functions and tensors on any device among it.
    """
    file = BytesIO()
    th.save((kind.__name__, state), file, pickle_module=cloudpickle)
    Path(path).write_bytes(file.getbuffer())


def read_state(path: str | Path, kind: type[BaseCallback]) -> Any:
    """
    :param path: File that :func:`write_state` wrote, on this machine or on one with other devices.
    :param kind: Class of the callback that is to go on with it.
    :return: What was kept, its tensors on the CPU.
    :raises ValueError: if the file is damaged or was written for another class.
    """
    try:
        saved = th.load(Path(path), map_location="cpu", weights_only=False)
    except (EOFError, RuntimeError, pickle.UnpicklingError) as error:
        raise ValueError(f"{path} is not a file that {kind.__name__}.save() wrote, or it is damaged") from error
    if not (isinstance(saved, tuple) and len(saved) == 2 and isinstance(saved[0], str)):
        raise ValueError(f"{path} is not a file that {kind.__name__}.save() wrote")
    if saved[0] != kind.__name__:
        raise ValueError(f"{path} was saved by a {saved[0]}, not by a {kind.__name__}")
    return saved[1]
