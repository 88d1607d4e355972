"""MaskablePPO of sb3-contrib with staggered resets, a gate and the maskable selective buffer."""

import argparse

from sb3_contrib import MaskablePPO
from sb3_contrib.common.envs import InvalidActionEnvDiscrete
from stable_baselines3.common.env_util import make_vec_env

from sb3_budget import (
    SelectiveMaskableRolloutBuffer,
    SelectiveRolloutCallback,
    StaggeredResetCallback,
    StaggeredResetVecEnv,
)


def main(total_timesteps: int = 50_000, n_envs: int = 32, verbose: int = 1) -> MaskablePPO:
    horizon = 100
    env_kwargs = {"dim": 20, "n_invalid_actions": 10, "ep_length": horizon}
    venv = make_vec_env(InvalidActionEnvDiscrete, n_envs=n_envs, seed=0, env_kwargs=env_kwargs)
    model = MaskablePPO(
        "MlpPolicy",
        # The environment counts its steps itself and has no TimeLimit, so the horizon is given.
        StaggeredResetVecEnv(venv, horizon=horizon, n_steps=16),
        n_steps=16,
        batch_size=128,
        n_epochs=4,
        rollout_buffer_class=SelectiveMaskableRolloutBuffer,
        rollout_buffer_kwargs={"early_weight": 0.5},
        seed=0,
        device="cpu",
        verbose=verbose,
    )
    model.learn(total_timesteps, callback=[StaggeredResetCallback(), SelectiveRolloutCallback(0.25, horizon=horizon)])
    return model


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--timesteps", type=int, default=50_000)
    args = parser.parse_args()
    main(args.timesteps)
