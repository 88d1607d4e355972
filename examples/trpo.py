"""TRPO of sb3-contrib with staggered resets, a gate, and less weight for the episodes that it stopped."""

import argparse

from sb3_contrib import TRPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

from sb3_budget import SelectiveRolloutBuffer, SelectiveRolloutCallback, StaggeredResetCallback, StaggeredResetVecEnv


def main(total_timesteps: int = 300_000, env_id: str = "Pendulum-v1", n_envs: int = 64, verbose: int = 1) -> TRPO:
    venv = StaggeredResetVecEnv(make_vec_env(env_id, n_envs=n_envs, seed=0), n_steps=16)
    model = TRPO(
        "MlpPolicy",
        VecNormalize(venv),
        n_steps=16,
        batch_size=256,
        rollout_buffer_class=SelectiveRolloutBuffer,
        rollout_buffer_kwargs={"early_weight": 0.5},
        seed=0,
        device="cpu",
        verbose=verbose,
    )
    model.learn(total_timesteps, callback=[StaggeredResetCallback(), SelectiveRolloutCallback(0.25)])
    return model


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--timesteps", type=int, default=300_000)
    parser.add_argument("--env", default="Pendulum-v1")
    args = parser.parse_args()
    main(args.timesteps, args.env)
