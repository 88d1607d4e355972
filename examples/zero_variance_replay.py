"""DQN on a frozen lake whose ice does not slip: a share of each batch comes from what always has the same outcome."""

import argparse

import gymnasium as gym
from stable_baselines3 import DQN
from stable_baselines3.common.env_util import make_vec_env

from sb3_budget import ZeroVarianceCallback, ZeroVarianceReplayBuffer


def main(
    total_timesteps: int = 20_000,
    slippery: bool = False,
    mix_ratio: float = 0.25,
    min_count: int = 5,
    backups: str = "none",
    optimism: float | None = None,
    seed: int = 0,
    verbose: int = 1,
) -> DQN:
    model = DQN(
        "MlpPolicy",
        make_vec_env(lambda: gym.make("FrozenLake-v1", is_slippery=slippery), n_envs=4, seed=seed),
        learning_rate=1e-3,
        buffer_size=20_000,
        learning_starts=500,
        batch_size=64,
        train_freq=1,
        target_update_interval=500,
        exploration_fraction=0.5,
        replay_buffer_class=ZeroVarianceReplayBuffer,
        replay_buffer_kwargs={"mix_ratio": mix_ratio, "min_count": min_count},
        seed=seed,
        verbose=verbose,
    )
    return model.learn(total_timesteps, callback=ZeroVarianceCallback(backups, refresh_every=200, optimism=optimism))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--timesteps", type=int, default=20_000)
    parser.add_argument("--slippery", action="store_true", help="little is deterministic then, and the pool stays empty")
    parser.add_argument("--mix-ratio", type=float, default=0.25, help="0 is stock DQN")
    parser.add_argument("--min-count", type=int, default=5)
    parser.add_argument("--backups", choices=["none", "graph"], default="none")
    parser.add_argument("--optimism", type=float, default=None, help="with graph: what untried actions are held to be worth")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    model = main(args.timesteps, args.slippery, args.mix_ratio, args.min_count, args.backups, args.optimism, args.seed)
    print(model.replay_buffer.statistics)
