"""RL Zoo configuration with a selective buffer: a class, which YAML cannot hold, a Python file can."""

from sb3_budget import SelectiveRolloutBuffer

hyperparams = {
    "Pendulum-v1": {
        "n_envs": 64,
        "n_timesteps": 3e5,
        "policy": "MlpPolicy",
        "normalize": True,
        "n_steps": 16,
        "batch_size": 256,
        "n_epochs": 4,
        "gamma": 0.95,
        "rollout_buffer_class": SelectiveRolloutBuffer,
        "rollout_buffer_kwargs": {"early_weight": 0.5},
        "vec_env_wrapper": [{"sb3_budget.StaggeredResetVecEnv": {"enabled": False}}],
        "callback": ["sb3_budget.StaggeredResetCallback", {"sb3_budget.SelectiveRolloutCallback": {"gate": 0.4}}],
    }
}
