"""Evaluation from shifted starts: does a policy act well in states that its own episodes do not begin in?"""

import argparse
from collections.abc import Callable

import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize, sync_envs_normalization

from sb3_budget import StaggeredResetVecEnv


def rewards_by_offset(
    model: PPO, env_id: str, n_slots: int, warmup_actions: str | Callable[[np.ndarray], np.ndarray], seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """
    Run one episode per slot; slot i is first stepped ``i * horizon / n_slots`` times, and those rewards do not count.

    :param model: A model on normalised envs.
    :param env_id: Id of the env.
    :param n_slots: Number of slots.
    :param warmup_actions: ``"random"``, ``"noop"`` or a function of the raw observations.
    :param seed: Seed of the envs and of random actions.
    :return: Offsets [steps] and mean reward per step from there on, each of shape (n_slots,).
    """
    base = make_vec_env(env_id, n_envs=n_slots, seed=seed)
    shifted = StaggeredResetVecEnv(base, mode="warmup", warmup_actions=warmup_actions, seed=seed)
    venv = VecNormalize(shifted, training=False, norm_reward=False)
    sync_envs_normalization(model.get_env(), venv)
    obs, running = venv.reset(), np.ones(n_slots, dtype=bool)
    totals, steps = np.zeros(n_slots), np.zeros(n_slots)
    while running.any():
        actions, _ = model.predict(obs, deterministic=True)
        obs, rewards, dones, _ = venv.step(actions)
        totals += rewards * running
        steps += running
        running &= ~dones
    venv.close()
    return shifted.offsets, totals / steps


def main(total_timesteps: int = 300_000, env_id: str = "Pendulum-v1", n_slots: int = 10, verbose: int = 1) -> dict[str, float]:
    venv = VecNormalize(StaggeredResetVecEnv(make_vec_env(env_id, n_envs=64, seed=0), n_steps=16), gamma=0.9)
    model = PPO("MlpPolicy", venv, 1e-3, n_steps=16, batch_size=256, n_epochs=4, gamma=0.9, seed=0, verbose=verbose)
    model.learn(total_timesteps)

    def policy(obs: np.ndarray) -> np.ndarray:
        return model.predict(venv.normalize_obs(obs), deterministic=True)[0]

    result = {}
    for name, warmup_actions in (("its own", policy), ("random", "random")):
        offsets, rewards = rewards_by_offset(model, env_id, n_slots, warmup_actions)
        result[name] = float(rewards[1:].mean())
        if verbose:
            print(f"mean reward per step after warm-up by {name} actions:")
            print(
                "\n".join(f"  from step {offset:5d}: {reward:8.3f}" for offset, reward in zip(offsets, rewards, strict=True))
            )
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--timesteps", type=int, default=300_000)
    parser.add_argument("--env", default="Pendulum-v1")
    args = parser.parse_args()
    main(args.timesteps, args.env)
