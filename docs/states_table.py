"""Writes ``results/states.md``: whether states of every registered environment that can be made here are exact."""

import importlib
import importlib.util
import warnings
from collections.abc import Iterator
from pathlib import Path

import gymnasium as gym

from sb3_budget.states import StateWrapper, find_adapter, self_check

OUT = Path(__file__).parent / "results" / "states.md"
#: Packages that register environments.
PACKAGES = ("ale_py", "minigrid", "gymnasium_robotics")
#: Environments that are natively vectorised, and wrappers of old APIs.
LEFT_OUT = ("phys2d/", "tabular/", "GymV")
#: A few of a hundred games, in their newest version.
GAMES = ("Pong", "Breakout", "Qbert", "Tetris", "MontezumaRevenge", "SpaceInvaders", "Seaquest", "BeamRider")
N_STEPS = 20


def rows() -> Iterator[tuple[str, str, str]]:
    """Id, adapter and what was found, of every environment; of Atari the games above."""
    for env_id in sorted(gym.registry):
        if env_id.startswith(LEFT_OUT) or (env_id.startswith("ALE/") and env_id[4:-3] not in GAMES):
            continue
        if "ale_py" in str(gym.registry[env_id].entry_point) and not env_id.startswith("ALE/"):
            continue
        try:
            env = StateWrapper(gym.make(env_id))
            env.reset(seed=0)
        except Exception as error:  # whatever an environment's package raises
            print(f"left out: {env_id}: {type(error).__name__}: {error}")
            continue
        actions = env.action_space
        actions.seed(0)
        for _ in range(N_STEPS):
            *_, terminated, truncated, _ = env.step(actions.sample())
            if terminated or truncated:
                env.reset()
        found = self_check(env, n_steps=N_STEPS)
        yield env_id, find_adapter(env).name, f"exact, {env.get_state().n_bytes:,} bytes" if found.exact else found.reason
        env.close()


def main() -> None:
    warnings.simplefilter("ignore")
    gym.logger.min_level = gym.logger.ERROR
    for package in PACKAGES:
        if importlib.util.find_spec(package):
            gym.register_envs(importlib.import_module(package))
    lines = ["| Environment | Saved by | Restored |", "|---|---|---|", *(f"| `{a}` | {b} | {c} |" for a, b, c in rows())]
    OUT.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
