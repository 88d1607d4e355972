"""What Box2D's environments need so that their past decides their state."""

from __future__ import annotations

from typing import Any


def renew_world(env: Any) -> None:
    """
    To be called before a reset. Environments that keep one world for all episodes go on in one that bears traces of
    the bodies that were in it, and the same seed and actions then end in slightly different states.

    :param env: A ``BipedalWalker`` or ``CarRacing``.
    """
    env._destroy()
    listener = env.world.contactListener
    env.world = type(env.world)(gravity=env.world.gravity)
    if listener is not None:
        env.world.contactListener = listener
