"""The sub-command ``train``: one model, trained as an arm of the benchmark trains it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from stable_baselines3.common.logger import configure

from sb3_budget.bench.envs import make_envs
from sb3_budget.bench.recorder import evaluate
from sb3_budget.bench.run import Job, build, evaluation_seed


def train(job: Job, out: Path, tensorboard: str | None) -> str:
    """
    Train, print SB3's log, and save ``model.zip`` and, with normalisation, ``vecnormalize.pkl``.

    :param job: the run
    :param out: folder of the model; after Ctrl-C it holds the model as it was
    :param tensorboard: folder of TensorBoard's logs
    :return: a sentence with the evaluated return
    """
    if tensorboard is not None and importlib.util.find_spec("tensorboard") is None:
        raise ValueError("--tensorboard needs TensorBoard: pip install 'sb3-budget[tensorboard]'")
    model, _, callbacks = build(job)
    model.set_logger(configure(tensorboard, ["stdout"] if tensorboard is None else ["stdout", "tensorboard"]))
    bar = sys.stdout.isatty() and all(importlib.util.find_spec(name) is not None for name in ("tqdm", "rich"))
    out.mkdir(parents=True, exist_ok=True)
    try:
        model.learn(job.steps, callback=callbacks, log_interval=10, progress_bar=bar)
    finally:
        model.save(out / "model.zip")
        normalizer = model.get_vec_normalize_env()
        if normalizer is not None:
            normalizer.save(str(out / "vecnormalize.pkl"))
    eval_env = make_envs(job.env_id, job.eval_episodes, env_kwargs=job.settings.env_kwargs)
    returns = evaluate(model, eval_env, evaluation_seed(job))
    eval_env.close()
    return f"return {returns.mean():.1f} +/- {returns.std():.1f} over {len(returns)} episodes; saved in {out}"
