"""Numbers that must lie in a range."""

from __future__ import annotations


def require_share(name: str, value: float) -> None:
    """
    :param name: name of an argument
    :param value: what was given
    :raises ValueError: if it does not lie in [0, 1]
    """
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{name}={value} must lie in [0, 1]")
