"""Files of callbacks that hold tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cloudpickle  # type: ignore[import-untyped]  # it ships no types
import torch as th


def write_state(path: str | Path, state: Any) -> None:
    """
    :param path: File to write.
    :param state: What to keep: anything, functions and tensors on any device among it.
    """
    th.save(state, Path(path), pickle_module=cloudpickle)


def read_state(path: str | Path) -> Any:
    """
    :param path: File that :func:`write_state` wrote, on this machine or on one with other devices.
    :return: What was kept, its tensors on the CPU.
    """
    return th.load(Path(path), map_location="cpu", weights_only=False)
