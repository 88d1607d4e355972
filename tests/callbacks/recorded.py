"""A logger that keeps what it is told."""

from typing import Any


class RecordingLogger:
    """Stands in for SB3's logger where a callback is called by hand."""

    def __init__(self) -> None:
        self.records: dict[str, Any] = {}

    def record(self, key: str, value: Any, exclude: Any = None) -> None:
        self.records[key] = value
