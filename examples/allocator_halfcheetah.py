"""
The allocator where rewards are dense, for those who want to try it there: half of the episodes begin in saved states of the
simulator with large advantages, and run 32 steps at first, longer where there was more to learn. No gain is promised.
A share of the steps tells how far the critic is from what happens.
"""

from __future__ import annotations

import argparse

from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecNormalize

from sb3_budget import BudgetAllocatorCallback, EpisodeControlVecEnv, StaggeredResetVecEnv, ValueAuditCallback

ENV = "HalfCheetah-v5"


def main(total_timesteps: int = 300_000, n_envs: int = 64, audit_every: int = 50_000, seed: int = 0, verbose: int = 1) -> PPO:
    # Staggered, so that episodes end, and others begin, all the time.
    venv = VecNormalize(StaggeredResetVecEnv(make_vec_env(ENV, n_envs=n_envs, seed=seed)))
    model = PPO("MlpPolicy", venv, n_steps=16, batch_size=256, n_epochs=4, seed=seed, verbose=verbose)
    allocator = BudgetAllocatorCallback("advantage", floor=0.5, horizon="adaptive")
    audit = ValueAuditCallback(
        EpisodeControlVecEnv(make_vec_env(ENV, n_envs=16, seed=seed + 1)), audit_every, n_continuations=4, max_steps=100
    )
    model.learn(total_timesteps, callback=[allocator, audit])
    # Whole episodes from the environment's own starts.
    eval_env = VecNormalize(make_vec_env(ENV, n_envs=2), training=False, norm_reward=False)
    eval_env.obs_rms = venv.obs_rms
    mean, _ = evaluate_policy(model, eval_env, n_eval_episodes=2)
    print(f"mean return {mean:.0f}; episodes that began in saved states: {allocator.archive_starts:.0%}")
    return model


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--timesteps", type=int, default=300_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    main(arguments.timesteps, seed=arguments.seed)
