"""One run of the benchmark: one env, one arm, one seed."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from gymnasium import spaces
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecNormalize

from sb3_budget.bench import arms, replay_arms
from sb3_budget.bench.arms import Reference
from sb3_budget.bench.envs import make_envs
from sb3_budget.bench.recorder import Recorder
from sb3_budget.bench.settings import Settings, algorithm_arguments
from sb3_budget.callbacks.selective_rollout_callback import SelectiveRolloutCallback

WARMUP = 0.1
#: Settings that the oldest results were made with; what came later counts where it is used.
N_FIRST_SETTINGS = 7
# Slots of an evaluation are seeded one by one from here on, far enough apart for no two seeds to share a start.
_FIRST_EVALUATION_SEED, _EVALUATION_SEEDS_PER_RUN = 10_000, 1000


class Job(NamedTuple):
    """
    :param env_id: id of the env
    :param arm: name of the arm
    :param seed: seed of everything in the run
    :param settings: hyperparameters
    :param steps: budget in simulator steps
    :param evals: evaluations after the one before training
    :param eval_episodes: episodes of each
    :param reference: what a control copies
    :param stochastic: whether evaluations draw their actions from the policy
    """

    env_id: str
    arm: str
    seed: int
    settings: Settings
    steps: int
    evals: int = 10
    eval_episodes: int = 8
    reference: Reference | None = None
    stochastic: bool = False

    @property
    def name(self) -> str:
        """File name of its result, without the ending."""
        return f"{self.env_id.replace('/', '-')}__{self.arm}__{self.seed}"

    @property
    def settings_hash(self) -> str:
        """Equal for runs that may stand in one mean: all but the seed and what follows from it."""
        # Without arguments for what came later the hash is that of runs from before there was any.
        settings: tuple[Any, ...] = self.settings
        while len(settings) > N_FIRST_SETTINGS and not settings[-1]:
            settings = settings[:-1]
        drawn = ["stochastic"] if self.stochastic else []
        return _digest([self.env_id, self.arm, settings, self.steps, self.evals, self.eval_episodes, *drawn])

    @property
    def run_hash(self) -> str:
        """Equal for runs with the same result."""
        return _digest([self.settings_hash, self.seed, self.reference])


def evaluation_seed(job: Job) -> int:
    """
    :param job: a run
    :return: seed of its evaluations: the same for all arms
    """
    return _FIRST_EVALUATION_SEED + _EVALUATION_SEEDS_PER_RUN * job.seed


def _digest(data: Any) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True, default=str).encode()).hexdigest()[:16]


def build(job: Job) -> tuple[PPO | DQN, SelectiveRolloutCallback | None, list[BaseCallback]]:
    """
    :param job: the run
    :return: the untrained model on its training env, the gate of the arm, and all its callbacks
    """
    settings = job.settings
    venv = make_envs(job.env_id, settings.n_envs, job.seed, settings.env_kwargs)
    venv = arms.wrap(job.arm, venv, settings, job.seed)
    replay = arms.split(job.arm)[0].replay
    arguments = algorithm_arguments(settings.ppo)
    if settings.normalize:
        options = settings.normalize if isinstance(settings.normalize, dict) else {}
        gamma = (settings.ppo if replay is None else settings.dqn).get("gamma", 0.99)
        venv = VecNormalize(venv, **{"gamma": gamma, **options})
    if replay is not None:
        off_policy, added = replay_arms.build(replay, venv, settings, job.seed)
        return off_policy, None, added
    policy = "MultiInputPolicy" if isinstance(venv.observation_space, spaces.Dict) else "MlpPolicy"
    arguments.update(arms.buffer(job.arm, settings, venv.observation_space))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "You have specified a mini-batch size")
        algorithm, own = arms.algorithm(job.arm, job.seed)
        model = algorithm(arguments.pop("policy", policy), venv, seed=job.seed, device="cpu", **own, **arguments)
    selective = arms.callback(job.arm, settings, job.seed, job.reference)
    allocator = arms.allocator(job.arm, settings, job.seed)
    return model, selective, [callback for callback in (selective, allocator) if callback is not None]


def run(job: Job, progress: Callable[[int], None]) -> dict[str, Any]:
    """
    Train and evaluate. Uses one thread, so that runs side by side do not disturb each other.

    :param job: the run
    :param progress: called with the number of new simulator steps
    :return: JSON-ready result; ``points`` holds rows of ledger steps, seconds, processor seconds, mean return, its spread
    """
    torch.set_num_threads(1)
    model, selective, callbacks = build(job)
    eval_env = make_envs(job.env_id, job.eval_episodes, env_kwargs=job.settings.env_kwargs)
    recorder = Recorder(eval_env, job.steps, job.evals, WARMUP, evaluation_seed(job), progress, not job.stochastic)
    model.learn(job.steps, callback=[*callbacks, recorder])
    result = {
        "env": job.env_id,
        "arm": job.arm,
        "seed": job.seed,
        "settings": {
            **job.settings._asdict(),
            "steps": job.steps,
            "evals": job.evals,
            "eval_episodes": job.eval_episodes,
            "stochastic": job.stochastic,
        },
        "settings_hash": job.settings_hash,
        "run_hash": job.run_hash,
        "reference": None if job.reference is None else job.reference._asdict(),
        "points": recorder.points,
        "ledger": {**recorder.ledger.as_dict(), "seconds": recorder.points[-1][1], "cpu_seconds": recorder.points[-1][2]},
        "mean_length": recorder.mean_length,
        "episodes": dict(recorder.reasons),
        "looks": 0 if selective is None else selective.n_looks,
        "stops": 0 if selective is None else selective.n_stops,
        "rejections": 0 if selective is None else selective.n_rejections,
        "log": recorder.last_log,
    }
    eval_env.close()
    model.get_env().close()  # type: ignore[union-attr]  # built above with an env
    return result


def reference(result: dict[str, Any]) -> Reference:
    """
    :param result: a finished run
    :return: what a control copies from it: the audit spares the control's episodes as it spared those of the run
    """
    looks, length = result["looks"], result["mean_length"]
    if not looks or not length:
        raise ValueError(
            f"{result['arm']} on {result['env']}, seed {result['seed']}, has nothing that a control could copy: it is too "
            "short, or its gate has waited throughout (see min_survival)"
        )
    return Reference(result["rejections"] / looks, length)
