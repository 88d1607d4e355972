"""GRPO in a PPO script: another class and a group size."""

import argparse

from stable_baselines3.common.env_util import make_vec_env

from sb3_budget import GRPO


def main(total_timesteps: int = 60_000, n_envs: int = 32, group_size: int = 4, verbose: int = 1) -> GRPO:
    # Expect no gain: CartPole shows all that there is to know, and members that fall at different times meet few peers.
    venv = make_vec_env("CartPole-v1", n_envs=n_envs, seed=0)
    hyperparameters = {"n_steps": 32, "batch_size": 256, "n_epochs": 8, "learning_rate": 1e-3, "gamma": 0.98}
    model = GRPO("MlpPolicy", venv, group_size=group_size, gae_lambda=0.9, seed=0, verbose=verbose, **hyperparameters)
    return model.learn(total_timesteps)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--timesteps", type=int, default=60_000)
    main(parser.parse_args().timesteps)
