"""GRPO on procedurally generated levels: the members of a group play the same ones."""

import argparse

from stable_baselines3.common.env_util import make_vec_env

from sb3_budget import GRPO
from sb3_budget.bench.levels import LevelsEnv


def main(total_timesteps: int = 100_000, n_envs: int = 64, group_size: int = 4, verbose: int = 1) -> GRPO:
    # A level is decided by the seed of a reset, and GRPO gives all members of a group the same seed.
    venv = make_vec_env(LevelsEnv, n_envs=n_envs, seed=0)
    hyperparameters = {"n_steps": 32, "batch_size": 512, "n_epochs": 4, "learning_rate": 1e-3, "ent_coef": 0.01}
    model = GRPO("MlpPolicy", venv, group_size=group_size, seed=0, verbose=verbose, **hyperparameters)
    return model.learn(total_timesteps)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--timesteps", type=int, default=100_000)
    main(parser.parse_args().timesteps)
