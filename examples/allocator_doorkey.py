"""
A key, a locked door, and a goal behind it: nothing pays before the goal. Episodes begin in saved states, such as the one with
the key in hand, where episodes are likeliest to end both ways.
"""

from __future__ import annotations

import argparse

from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

from sb3_budget import BudgetAllocatorCallback, EpisodeControlVecEnv
from sb3_budget.bench.sparse import door_key


def main(total_timesteps: int = 150_000, n_envs: int = 8, size: int = 6, seed: int = 0, verbose: int = 1) -> PPO:
    venv = EpisodeControlVecEnv(make_vec_env(door_key, n_envs=n_envs, seed=seed, env_kwargs={"size": size}))
    settings = {"n_steps": 128, "batch_size": 256, "n_epochs": 4, "learning_rate": 1e-3, "ent_coef": 0.003}
    # Until the first reward advantages are noise, which normalised to unit size would end exploration.
    model = PPO("MlpPolicy", venv, **settings, normalize_advantage=False, seed=seed, verbose=verbose)
    allocator = BudgetAllocatorCallback()
    model.learn(total_timesteps, callback=allocator)
    # New levels, from their own starts. Where the view does not tell all, the likeliest action may turn for ever.
    levels = make_vec_env(door_key, env_kwargs={"size": size})
    mean, _ = evaluate_policy(model, levels, n_eval_episodes=20, deterministic=False)
    print(f"mean return {mean:.2f}; {allocator.archive_starts:.0%} of episodes began in {len(allocator.archive)} saved states")
    return model


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--timesteps", type=int, default=150_000)
    parser.add_argument("--size", type=int, default=6, choices=[5, 6, 8, 16])
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    main(arguments.timesteps, size=arguments.size, seed=arguments.seed)
