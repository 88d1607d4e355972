"""EvalCallback with VecNormalize: the evaluation environment carries the same wrappers, with staggering switched off."""

import argparse

from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

from sb3_budget import SelectiveRolloutCallback, StaggeredResetCallback, StaggeredResetVecEnv


def main(
    total_timesteps: int = 300_000,
    env_id: str = "Pendulum-v1",
    n_envs: int = 64,
    eval_freq: int = 500,
    n_eval_episodes: int = 5,
    log_path: str | None = None,
    verbose: int = 1,
) -> EvalCallback:
    venv = VecNormalize(StaggeredResetVecEnv(make_vec_env(env_id, n_envs=n_envs, seed=0), n_steps=16))
    # EvalCallback copies the normalisation statistics wrapper by wrapper, so both chains must have the same shape.
    # With enabled=False the wrapper passes everything through: evaluation episodes are whole, from the env's own start.
    eval_venv = StaggeredResetVecEnv(make_vec_env(env_id, n_envs=n_eval_episodes, seed=1_000), enabled=False)
    evaluation = EvalCallback(
        VecNormalize(eval_venv, training=False, norm_reward=False),
        n_eval_episodes=n_eval_episodes,
        eval_freq=eval_freq,
        log_path=log_path,
        best_model_save_path=log_path,
        verbose=verbose,
    )
    model = PPO("MlpPolicy", venv, n_steps=16, batch_size=256, n_epochs=4, seed=0, verbose=verbose)
    model.learn(total_timesteps, callback=[StaggeredResetCallback(), SelectiveRolloutCallback(0.4), evaluation])
    return evaluation


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--timesteps", type=int, default=300_000)
    parser.add_argument("--env", default="Pendulum-v1")
    parser.add_argument("--log-path", help="folder for evaluations.npz and best_model.zip")
    args = parser.parse_args()
    main(args.timesteps, args.env, log_path=args.log_path)
