"""GRPO under domain randomisation: masses, friction and the scale of the rewards are others in every episode."""

import argparse

import gymnasium as gym
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

from sb3_budget import GRPO, EpisodeControlVecEnv, HiddenContextWrapper


def randomised(env: gym.Env) -> gym.Env:
    # Drawn at each reset, and shown by no observation: the members of a group share them.
    return HiddenContextWrapper(env, mass=(0.5, 1.5), friction=(0.5, 1.5), reward_scale=(0.2, 2.0))


def main(total_timesteps: int = 120_000, n_envs: int = 64, group_size: int = 4, verbose: int = 1) -> GRPO:
    venv = EpisodeControlVecEnv(make_vec_env("HalfCheetah-v5", n_envs=n_envs, seed=0, wrapper_class=randomised))
    hyperparameters = {"n_steps": 32, "batch_size": 512, "n_epochs": 6, "learning_rate": 1e-3, "gamma": 0.98}
    venv = VecNormalize(venv, gamma=0.98)
    model = GRPO("MlpPolicy", venv, group_size=group_size, gae_lambda=0.92, seed=0, verbose=verbose, **hyperparameters)
    return model.learn(total_timesteps)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--timesteps", type=int, default=120_000)
    main(parser.parse_args().timesteps)
