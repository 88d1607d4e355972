"""
A maze whose goal a random walk never finds: with ``BudgetAllocatorCallback`` episodes begin in saved states half-way.

The frozen lake of 16 by 16 does not slip, and only its goal pays. PPO alone sees no reward; try ``--priority none``.
"""

from __future__ import annotations

import argparse

from gymnasium.envs.toy_text.frozen_lake import generate_random_map
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

from sb3_budget import BudgetAllocatorCallback, EpisodeControlVecEnv

LAKE = {"desc": generate_random_map(16, p=0.85, seed=3), "is_slippery": False, "max_episode_steps": 192}


def main(total_timesteps: int = 60_000, priority: str = "contrast", seed: int = 0, verbose: int = 1) -> PPO:
    venv = EpisodeControlVecEnv(make_vec_env("FrozenLake-v1", n_envs=8, seed=seed, env_kwargs=LAKE))
    # Until the first reward advantages are noise, which normalised to unit size would end exploration.
    settings = {"n_steps": 64, "learning_rate": 1e-3, "ent_coef": 0.003, "normalize_advantage": False}
    model = PPO("MlpPolicy", venv, **settings, seed=seed, verbose=verbose)
    allocator = None if priority == "none" else BudgetAllocatorCallback(priority)
    model.learn(total_timesteps, callback=allocator)
    # From the lake's own start, as always.
    reached, _ = evaluate_policy(model, make_vec_env("FrozenLake-v1", env_kwargs=LAKE), n_eval_episodes=1)
    begun = 0.0 if allocator is None else allocator.archive_starts
    print(f"goal reached: {'yes' if reached else 'no'}; episodes that began in saved states: {begun:.0%}")
    return model


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--timesteps", type=int, default=60_000)
    parser.add_argument("--priority", default="contrast", choices=["contrast", "novelty", "advantage", "uniform", "none"])
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    main(arguments.timesteps, arguments.priority, arguments.seed)
