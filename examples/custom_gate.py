"""A gate of one's own in ten lines: any callable from a RolloutView to a mask of slots will do."""

from __future__ import annotations

import argparse

import numpy as np
from numpy.typing import NDArray
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

from sb3_budget import RolloutView, SelectiveRolloutCallback, StaggeredResetCallback, StaggeredResetVecEnv


class FallingValueGate:
    """Stops an episode whose value fell some standard deviations (over slots) below its best so far."""

    def __init__(self, deviations: float = 1.0):
        self.deviations, self.best = deviations, np.array(-np.inf)

    def __call__(self, view: RolloutView) -> NDArray[np.bool_]:
        best_before = np.where(view.lengths == 0, -np.inf, self.best)
        self.best = np.maximum(best_before, view.values)
        return view.look & (self.best - view.values > self.deviations * view.values.std())


def main(
    total_timesteps: int = 100_000, env_id: str = "Pendulum-v1", n_envs: int = 32, verbose: int = 1
) -> SelectiveRolloutCallback:
    venv = StaggeredResetVecEnv(make_vec_env(env_id, n_envs=n_envs, seed=0), n_steps=16)
    model = PPO("MlpPolicy", venv, n_steps=16, batch_size=128, n_epochs=4, seed=0, verbose=verbose)
    selective = SelectiveRolloutCallback(gate=FallingValueGate())
    model.learn(total_timesteps, callback=[StaggeredResetCallback(), selective])
    return selective


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--timesteps", type=int, default=100_000)
    parser.add_argument("--env", default="Pendulum-v1")
    args = parser.parse_args()
    main(args.timesteps, args.env)
