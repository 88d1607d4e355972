"""A progress bar over simulator steps, or plain lines without tqdm."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any


class Progress:
    """
    :param total_steps: steps of all runs
    """

    def __init__(self, total_steps: int) -> None:
        try:
            from tqdm import tqdm
        except ImportError:
            self._bar: Any = None
        else:
            interval = 0.5 if sys.stderr.isatty() else 60.0
            self._bar = tqdm(
                total=total_steps, unit="step", unit_scale=True, smoothing=0.05, mininterval=interval, maxinterval=interval
            )

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.close()

    def update(self, n_steps: int) -> None:
        """
        :param n_steps: new simulator steps
        """
        if self._bar is not None and n_steps:
            self._bar.update(n_steps)

    def line(self, text: str) -> None:
        """
        Print above the bar.

        :param text: one line
        """
        if self._bar is None:
            print(text, flush=True)
        else:
            self._bar.write(text)
