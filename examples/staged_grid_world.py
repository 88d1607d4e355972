"""
A staged grid world on which synchronous resets forget and staggered ones do not.

Trains the same PPO, with the same hyperparameters, on 64 environments that start their episodes together and on 64
that ``StaggeredResetVecEnv`` shifts against each other, and measures how steady the learnt skills are.

Run it with ``python examples/staged_grid_world.py --seeds 8 --out docs/results/staged_grid_world.json
--plot docs/_static/staged_grid_world.png``. Finished runs in ``--out`` are kept, so an interrupted run goes on.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch as th
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.vec_env import VecEnv

from sb3_budget import StaggeredResetVecEnv
from sb3_budget.core.stability import fluctuation, forgetting_events

ARMS = ("synchronous", "staggered")
N_ENVS = 64
#: The seeds below were used to choose the task and the hyperparameters.
FIRST_SEED = 10
PPO_KWARGS: dict[str, Any] = {
    "n_steps": 8,
    "batch_size": 128,
    "n_epochs": 4,
    "gamma": 0.95,
    "ent_coef": 0.03,
    "policy_kwargs": {"net_arch": [32, 32]},
}
MOVES = np.array([[0, 1], [1, 0], [0, -1], [-1, 0]])


class StagedGridWorld(gym.Env[NDArray[np.float32], np.int64]):
    """
    Rooms that open one after another, each with its own switch and its own sense of direction.

    An episode always lasts ``horizon`` steps, cut into one window per stage. A window begins on a random cell of the
    present room. Whoever stands on the room's switch (a corner) when the window ends enters the next room; whoever
    does not tries the same room again. So late rooms need every earlier skill, and the episode is a success if the
    last switch is held at its end. The four moves are turned by 90 degrees from room to room, hence the same action
    in the same cell is right in one room and wrong in the next, which one small network must tell apart. The fifth
    room is like the first, under another code, and so on. Each step on the switch earns ``1 / window``; the return is
    at most ``n_stages``.

    :param size: Cells along each side of a room.
    :param n_stages: Number of rooms; must divide ``horizon``.
    :param horizon: Length of an episode [steps].
    """

    def __init__(self, size: int = 5, n_stages: int = 8, horizon: int = 200):
        if horizon % n_stages:
            raise ValueError(f"horizon={horizon} cannot be cut into n_stages={n_stages} equal windows")
        self.size, self.n_stages, self.horizon = size, n_stages, horizon
        self.n_cells, self.window = size**2, horizon // n_stages
        self.observation_space = spaces.Box(-1.0, 1.0, (2 + n_stages,), np.float32)
        self.action_space = spaces.Discrete(4)
        rooms = np.arange(n_stages)
        cells = np.stack(np.divmod(np.arange(self.n_cells), size), axis=1)
        corners = np.array([0, self.n_cells - 1, self.n_cells - size, size - 1])
        #: Cell of each room's switch, (n_stages,)
        self.switches = corners[rooms % 4]
        #: Cell that an action leads to; walls stop a move, (n_stages, n_cells, 4)
        turned = MOVES[(rooms[:, None] + np.arange(4)) % 4]
        moved = np.clip(cells[None, :, None] + turned[:, None], 0, size - 1)
        self.next_cells = moved[..., 0] * size + moved[..., 1]
        #: Position in [-1, 1] and one-hot code of the room, (n_stages, n_cells, 2 + n_stages)
        self.observations = np.zeros((n_stages, self.n_cells, 2 + n_stages), dtype=np.float32)
        self.observations[:, :, :2] = cells * 2 / (size - 1) - 1
        self.observations[rooms, :, 2 + rooms] = 1.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.elapsed = self.room = 0
        self.cell = int(self.np_random.integers(self.n_cells))
        return self.observations[self.room, self.cell].copy(), {}

    def step(self, action: np.int64) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        self.cell = int(self.next_cells[self.room, self.cell, int(action)])
        self.elapsed += 1
        on_switch = self.cell == int(self.switches[self.room])
        over = self.elapsed == self.horizon
        info = {"is_success": on_switch and self.room == self.n_stages - 1} if over else {}
        if self.elapsed % self.window == 0 and not over:
            self.room += on_switch
            self.cell = int(self.np_random.integers(self.n_cells))
        return self.observations[self.room, self.cell].copy(), on_switch / self.window, False, over, info


def evaluate_exactly(policy: ActorCriticPolicy, env: StagedGridWorld, deterministic: bool = False) -> NDArray[np.float64]:
    """
    The chance that an episode passes each stage, from the policy's action probabilities in every cell of every room.

    A room is a Markov chain over its cells; the chance to hold its switch at the end of a window is an entry of the
    chain's ``window``-th power. No episode is played, so there is no sampling noise.

    :param policy: The policy to evaluate.
    :param env: The environment.
    :param deterministic: Evaluate the most likely action instead of the stochastic policy.
    :return: Chance to pass stages ``1 .. n_stages``; the last one is the chance of success. (n_stages,)
    """
    obs = th.as_tensor(env.observations.reshape(env.n_stages * env.n_cells, -1), device=policy.device)
    with th.no_grad():
        categorical = policy.get_distribution(obs).distribution
        assert isinstance(categorical, th.distributions.Categorical)
        probs = th.softmax(categorical.logits.double(), dim=1).cpu().numpy()
    if deterministic:
        probs = np.eye(4)[probs.argmax(axis=1)]
    rooms, cells = np.ogrid[: env.n_stages, : env.n_cells]
    transitions = np.zeros((env.n_stages, env.n_cells, env.n_cells))
    for action in range(4):
        # An action leads from each cell to one cell, so no entry is added to twice in one go.
        transitions[rooms, cells, env.next_cells[:, :, action]] += probs[:, action].reshape(env.n_stages, env.n_cells)
    after_window = np.linalg.matrix_power(transitions, env.window)
    return np.cumprod(after_window[np.arange(env.n_stages), :, env.switches].mean(axis=1))


class ExactEvaluation(BaseCallback):
    """Evaluates before each rollout; ``history`` rows are steps, chance to pass each stage, greedy success."""

    def __init__(self, env: StagedGridWorld):
        super().__init__()
        self.env = env
        self.history: list[list[float]] = []

    def _on_rollout_start(self) -> None:
        policy = self.model.policy
        assert isinstance(policy, ActorCriticPolicy)
        passed = evaluate_exactly(policy, self.env)
        greedy = evaluate_exactly(policy, self.env, deterministic=True)[-1]
        self.history.append([self.num_timesteps, *(round(float(chance), 4) for chance in (*passed, greedy))])

    def _on_step(self) -> bool:
        return True


def train(arm: str, seed: int, total_timesteps: int, learning_rate: float) -> list[list[float]]:
    """
    :param arm: ``"synchronous"`` or ``"staggered"``.
    :param seed: Seed of the model and the environments.
    :param total_timesteps: Environment steps.
    :param learning_rate: Learning rate.
    :return: Rows of :class:`ExactEvaluation`.
    """
    venv: VecEnv = make_vec_env(StagedGridWorld, n_envs=N_ENVS)
    env = StagedGridWorld()
    if arm == "staggered":
        venv = StaggeredResetVecEnv(venv, horizon=env.horizon, n_steps=PPO_KWARGS["n_steps"])
    evaluation = ExactEvaluation(env)
    model = PPO("MlpPolicy", venv, learning_rate, seed=seed, device="cpu", **PPO_KWARGS)
    model.learn(total_timesteps, callback=evaluation)
    return evaluation.history


def measure(history: list[list[float]], cycle: int) -> dict[str, float | None]:
    """
    :param history: Rows of :class:`ExactEvaluation`.
    :param cycle: Number of evaluations in which a synchronous batch runs through the horizon once.
    :return: ``fluctuation`` (standard deviation of success around its moving mean over one cycle, last half),
        ``forgetting`` (times that a stage falls more than 0.2 below its best so far), ``steps_to_80`` (first
        evaluation at 80 % success, or None) and the mean success of the last half, stochastic and greedy.
    """
    rows = np.asarray(history)
    steps, passed, greedy = rows[:, 0], rows[:, 1:-1], rows[:, -1]
    success, half = passed[:, -1], len(rows) // 2
    reached = np.flatnonzero(success >= 0.8)
    return {
        "fluctuation": fluctuation(success, cycle, half),
        "forgetting": float(sum(forgetting_events(stage, 0.2) for stage in passed.T)),
        "steps_to_80": float(steps[reached[0]]) if len(reached) else None,
        "success": float(success[half:].mean()),
        "greedy_success": float(greedy[half:].mean()),
    }


def markdown_table(results: dict[str, Any]) -> str:
    """
    :param results: Content of the JSON file.
    :return: Per measure the mean over seeds of both arms, their ratio, and the values per seed.
    """
    rows = {
        "fluctuation": ("fluctuation of success, last half", "{:.4f}"),
        "forgetting": ("forgetting events", "{:.0f}"),
        "steps_to_80": ("steps to 80 % success", "{:,.0f}"),
        "success": ("mean success, last half", "{:.2f}"),
        "greedy_success": ("mean success of the greedy policy, last half", "{:.2f}"),
    }
    lines = ["| Mean over seeds (per seed) | synchronous | staggered | ratio |", "|---|---|---|---|"]
    for key, (label, form) in rows.items():
        means, cells = [], []
        for arm in ARMS:
            found = [run["measures"][key] for run in results["runs"][arm].values()]
            values = [results["settings"]["total_timesteps"] if value is None else value for value in found]
            texts = [("> " if raw is None else "") + form.format(value) for raw, value in zip(found, values, strict=True)]
            means.append(float(np.mean(values)))
            mean_form = "{:.1f}" if key == "forgetting" else form
            cells.append(f"{mean_form.format(means[-1])} ({'; '.join(texts)})")
        ratio = f"{means[1] / means[0]:.2f}" if means[0] > 0 else "-"
        lines.append(f"| {label} | {cells[0]} | {cells[1]} | {ratio} |")
    return "\n".join(lines)


def plot(results: dict[str, Any], path: Path) -> None:
    """
    :param results: Content of the JSON file.
    :param path: Image file to write.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.4), layout="constrained")
    for axes, arm in zip(figure.subplots(1, 2, sharey=True), ARMS, strict=True):
        for seed, run in results["runs"][arm].items():
            rows = np.asarray(run["history"])
            axes.plot(rows[:, 0] / 1e3, rows[:, -2], linewidth=0.9, label=f"seed {seed}")
        axes.set(title=f"{arm} resets", xlabel="thousand steps", ylim=(-0.02, 1.02))
        axes.grid(alpha=0.3)
        axes.label_outer()
    figure.axes[0].set_ylabel("chance of success")
    figure.axes[1].legend(loc="lower right", fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def main(
    total_timesteps: int = 150_000,
    seeds: int = 8,
    out: str | None = None,
    plot_to: str | None = None,
    learning_rate: float = 3e-3,
) -> dict[str, Any]:
    """
    :param total_timesteps: Environment steps per run.
    :param seeds: Number of seeds, from ``FIRST_SEED`` on.
    :param out: JSON file; runs in it with the same settings are not repeated.
    :param plot_to: Image file.
    :param learning_rate: Learning rate of both arms.
    :return: Settings, and per arm and seed the history and its measures.
    """
    horizon = StagedGridWorld().horizon
    arguments = {"total_timesteps": total_timesteps, "learning_rate": learning_rate}
    settings = {**arguments, "n_envs": N_ENVS, "horizon": horizon, **PPO_KWARGS}
    results: dict[str, Any] = {"settings": settings, "runs": {arm: {} for arm in ARMS}}
    if out is not None and Path(out).exists():
        stored = json.loads(Path(out).read_text())
        if stored["settings"] != settings:
            raise ValueError(f"{out} was made with other settings; give another --out or delete it")
        results = stored
    for seed in map(str, range(FIRST_SEED, FIRST_SEED + seeds)):
        for arm in ARMS:
            if seed not in results["runs"][arm]:
                history = train(arm, int(seed), total_timesteps, learning_rate)
                cycle = horizon // PPO_KWARGS["n_steps"]
                results["runs"][arm][seed] = {"measures": measure(history, cycle), "history": history}
                print(arm, "seed", seed, results["runs"][arm][seed]["measures"], flush=True)
                if out is not None:
                    Path(out).parent.mkdir(parents=True, exist_ok=True)
                    Path(out).write_text(json.dumps(results))
    if plot_to is not None:
        plot(results, Path(plot_to))
    print(markdown_table(results))
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Synchronous against staggered resets on a staged grid world.")
    parser.add_argument("--timesteps", type=int, default=150_000, help="environment steps per run")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--out", help="JSON file with every run; finished runs in it are kept")
    parser.add_argument("--plot", help="image file, e.g. a PNG")
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    args = parser.parse_args()
    main(args.timesteps, args.seeds, args.out, args.plot, args.learning_rate)
