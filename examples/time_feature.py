"""PPO that sees the time, with slots shifted anew every second episode and a penalty on the critic's time input."""

import argparse

from sb3_contrib.common.wrappers import TimeFeatureWrapper
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

from sb3_budget import PhasePenaltyCallback, StaggeredResetCallback, StaggeredResetVecEnv


def main(total_timesteps: int = 300_000, env_id: str = "Pendulum-v1", n_envs: int = 64, verbose: int = 1) -> PPO:
    # The wrapper appends the share of the episode that is left to the observation: the last input of the networks.
    venv = make_vec_env(env_id, n_envs=n_envs, seed=0, wrapper_class=TimeFeatureWrapper)
    # A slot that keeps its offset meets each state at one time only, and the time then stands for the state.
    venv = VecNormalize(StaggeredResetVecEnv(venv, n_steps=16, reassign_every=2))
    model = PPO("MlpPolicy", venv, n_steps=16, batch_size=256, n_epochs=4, seed=0, verbose=verbose)
    model.learn(total_timesteps, callback=[StaggeredResetCallback(), PhasePenaltyCallback(features=-1, coef=1e-3)])
    return model


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--timesteps", type=int, default=300_000)
    parser.add_argument("--env", default="Pendulum-v1")
    args = parser.parse_args()
    main(args.timesteps, args.env)
