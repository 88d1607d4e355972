"""Views of slots in groups, made by hand."""

from __future__ import annotations

import numpy as np

from sb3_budget.core.scores import RolloutView


def group_view(values, lengths, episodes=0, group_size=4, look=None, **given) -> RolloutView:
    """:return: A view without rewards so far, so that the estimated return is the value."""
    values = np.asarray(values, dtype=np.float64)
    n_envs = len(values)
    fields = {
        "returns": np.zeros(n_envs),
        "discounts": np.ones(n_envs),
        "initial_values": np.zeros(n_envs),
        "value_heads": None,
        "obs": None,
        "infos": [{} for _ in range(n_envs)],
        "progress_remaining": 1.0,
        "rng": np.random.default_rng(0),
        "due": None,
        **given,
    }
    return RolloutView(
        values=values,
        lengths=np.broadcast_to(lengths, n_envs).copy(),
        episodes=np.broadcast_to(episodes, n_envs).copy(),
        group_size=group_size,
        members=np.arange(n_envs) % group_size,
        look=np.ones(n_envs, bool) if look is None else np.array(look, dtype=bool),
        **fields,
    )
