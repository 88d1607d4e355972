"""One count of everything that a run has spent."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter
from typing import Any


@dataclass
class Ledger:
    """
    What a run has spent: steps of the simulator by purpose, resets and seconds.

    Two ledgers are equal if their counts are. The clock stands still while a ledger is saved.

    :param learning_steps: steps whose transitions went to the learner
    :param warmup_steps: steps taken only to bring environments to their phase
    :param verification_steps: steps taken only to check something: values, restored states, outcomes
    :param resets: resets of single environments
    :param started: reading of ``time.perf_counter`` from which seconds are counted
    """

    learning_steps: int = 0
    warmup_steps: int = 0
    verification_steps: int = 0
    resets: int = 0
    started: float = field(default_factory=perf_counter, compare=False)

    def __post_init__(self) -> None:
        for name in ("learning_steps", "warmup_steps", "verification_steps", "resets"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")

    @property
    def total_steps(self) -> int:
        """Steps of the simulator, whatever they were for."""
        return self.learning_steps + self.warmup_steps + self.verification_steps

    @property
    def seconds(self) -> float:
        """Wall-clock seconds since the start."""
        return perf_counter() - self.started

    def as_dict(self) -> dict[str, float]:
        """
        The counts, their total and the seconds so far, for logs and result files.

        :return: value by name
        """
        return {
            "learning_steps": self.learning_steps,
            "warmup_steps": self.warmup_steps,
            "verification_steps": self.verification_steps,
            "total_steps": self.total_steps,
            "resets": self.resets,
            "seconds": self.seconds,
        }

    def __add__(self, other: Ledger) -> Ledger:
        """
        The ledger of two runs side by side: counts add up, and the clock runs from the earlier start.

        :param other: ledger to add
        :return: a new ledger
        """
        if not isinstance(other, Ledger):
            return NotImplemented
        return Ledger(
            learning_steps=self.learning_steps + other.learning_steps,
            warmup_steps=self.warmup_steps + other.warmup_steps,
            verification_steps=self.verification_steps + other.verification_steps,
            resets=self.resets + other.resets,
            started=min(self.started, other.started),
        )

    def __getstate__(self) -> dict[str, Any]:
        # A reading of perf_counter means nothing in another process; the seconds so far do.
        state = dict(self.__dict__)
        del state["started"]
        return {**state, "seconds": self.seconds}

    def __setstate__(self, state: dict[str, Any]) -> None:
        counts = dict(state)
        seconds = counts.pop("seconds")
        self.__dict__.update(counts, started=perf_counter() - seconds)
