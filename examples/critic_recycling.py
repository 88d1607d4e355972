"""PPO where dynamics are a table: how far the critic is from the true values, with and without recycled transitions."""

import argparse
import itertools

import gymnasium as gym
import numpy as np
import torch as th
from gymnasium.wrappers import TimeLimit
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

from sb3_budget import CriticRecyclingCallback

ENVS = {
    "lake": lambda: gym.make("FrozenLake-v1", is_slippery=False),
    "slippery-lake": lambda: gym.make("FrozenLake-v1", is_slippery=True),
    "cliff": lambda: TimeLimit(gym.make("CliffWalking-v1"), 100),
}


class Numbered:
    """Cells in which nothing repeats: the pool is then the latest transitions, each as often as it happened."""

    def __init__(self):
        self.counter = itertools.count()

    def observe(self, observations):
        pass

    def freeze(self):
        pass

    def keys(self, observations):
        return [next(self.counter) for _ in observations]


ARMS = {
    "stock": lambda ratio: None,
    "recycled": lambda ratio: CriticRecyclingCallback(ratio),
    "uniform": lambda ratio: CriticRecyclingCallback(ratio, weighting="uniform"),
    # The control: as many extra steps of the critic, on whatever happened lately.
    "recent": lambda ratio: CriticRecyclingCallback(
        ratio,
        capacity=1_024,
        cells=Numbered(),
        start_after=1,
        whitelist=lambda observations, actions: np.ones(len(actions), dtype=bool),
        weighting="uniform",
    ),
}


class TrueValues(BaseCallback):
    """Compares the critic with the values of the present policy, which a table of the dynamics gives exactly."""

    def __init__(self, env):
        super().__init__()
        self.table = env.unwrapped.P
        self.errors, self.returns = [], []

    def _on_step(self):
        self.returns += [info["episode"]["r"] for info in self.locals["infos"] if "episode" in info]
        return True

    def _on_rollout_end(self):
        states = th.arange(len(self.table))
        with th.no_grad():
            policy = self.model.policy.get_distribution(states).distribution.probs.double().numpy()
            critic = self.model.policy.predict_values(states).flatten().double().numpy()
        moves, rewards = np.zeros((len(states), len(states))), np.zeros(len(states))
        for state, action in np.ndindex(*policy.shape):
            for chance, following, reward, terminated in self.table[state][action]:
                rewards[state] += policy[state, action] * chance * reward
                moves[state, following] += policy[state, action] * chance * (not terminated)
        true = np.linalg.solve(np.eye(len(states)) - self.model.gamma * moves, rewards)
        visited = self.model.rollout_buffer.observations.astype(int).ravel()
        self.errors.append(np.sqrt(np.mean((critic - true)[visited] ** 2)))


def main(env="lake", arm="recycled", total_timesteps=20_480, mix_ratio=0.25, seed=0, verbose=0):
    venv = make_vec_env(ENVS[env], n_envs=8, seed=seed)
    model = PPO(
        "MlpPolicy", venv, learning_rate=1e-3, n_steps=64, batch_size=128, n_epochs=4, ent_coef=0.01, gae_lambda=0.9,
        seed=seed, device="cpu", verbose=verbose,
    )  # fmt: skip
    measure, recycling = TrueValues(ENVS[env]()), ARMS[arm](mix_ratio)
    model.learn(total_timesteps, callback=[measure] if recycling is None else [measure, recycling])
    return measure


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", choices=list(ENVS), default="lake")
    parser.add_argument("--arm", choices=list(ARMS), default="recycled")
    parser.add_argument("--timesteps", type=int, default=20_480)
    parser.add_argument("--mix-ratio", type=float, default=0.25)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    found = main(args.env, args.arm, args.timesteps, args.mix_ratio, args.seed)
    quarter = len(found.errors) // 4
    print(f"error of the critic: {np.mean(found.errors):.3f} on average, {np.mean(found.errors[-quarter:]):.3f} at the end")
    latest = found.returns[-100:]
    print(f"mean return: {np.mean(found.returns):.2f} of all episodes, {np.mean(latest):.2f} of the last {len(latest)}")
