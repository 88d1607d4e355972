"""A2C with staggered resets: its rollouts of 5 steps are the shortest there are, hence the most to gain."""

import argparse

from stable_baselines3 import A2C
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

from sb3_budget import StaggeredResetCallback, StaggeredResetVecEnv


def main(total_timesteps: int = 300_000, env_id: str = "Pendulum-v1", n_envs: int = 16, verbose: int = 1) -> A2C:
    venv = StaggeredResetVecEnv(make_vec_env(env_id, n_envs=n_envs, seed=0), n_steps=5)
    model = A2C("MlpPolicy", VecNormalize(venv), n_steps=5, seed=0, device="cpu", verbose=verbose)
    model.learn(total_timesteps, callback=StaggeredResetCallback())
    return model


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--timesteps", type=int, default=300_000)
    parser.add_argument("--env", default="Pendulum-v1")
    args = parser.parse_args()
    main(args.timesteps, args.env)
