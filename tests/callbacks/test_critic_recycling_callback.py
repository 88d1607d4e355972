"""Without a pool it is stock SB3 bit for bit; with one, the critic learns from it and the actor only through the critic."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit
from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.callbacks import BaseCallback, EveryNTimesteps
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecNormalize

from sb3_budget import GRPO, CriticRecyclingCallback, EpisodeControlVecEnv
from sb3_budget.core import transition_watch
from sb3_budget.core.cells import QuantisedCells


class Corridor(gym.Env):
    """Five cells; only the way to the right ends, with a reward of 1."""

    def __init__(self, kind="discrete"):
        self.kind = kind
        self.action_space = spaces.Box(-1.0, 1.0, (1,)) if kind == "continuous" else spaces.Discrete(2)
        self.observation_space = {
            "discrete": spaces.Discrete(5),
            "box": spaces.Box(0.0, 5.0, (1,)),
            "continuous": spaces.Box(0.0, 5.0, (1,)),
            "image": spaces.Box(0, 255, (1, 36, 36), np.uint8),
            "dict": spaces.Dict({"cell": spaces.Discrete(5), "place": spaces.Box(0.0, 5.0, (2,))}),
        }[kind]

    def observe(self):
        place = np.array([self.cell], dtype=np.float32)
        return {
            "discrete": self.cell,
            "box": place,
            "continuous": place,
            "image": np.full((1, 36, 36), 50 * self.cell, dtype=np.uint8),
            "dict": {"cell": self.cell, "place": place.repeat(2)},
        }[self.kind]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cell = 0
        return self.observe(), {}

    def step(self, action):
        right = np.asarray(action).item() > 0
        self.cell = min(self.cell + 1, 4) if right else max(self.cell - 1, 0)
        return self.observe(), float(self.cell == 4), self.cell == 4, False, {}


def corridor(kind="discrete", limit=20, n_envs=4):
    return DummyVecEnv([lambda: TimeLimit(Corridor(kind), limit)] * n_envs)


def lake(slippery):
    return DummyVecEnv([lambda: gym.make("FrozenLake-v1", is_slippery=slippery)] * 4)


def make(env=None, algorithm=PPO, **kwargs):
    env = corridor() if env is None else env
    if algorithm is not A2C:
        kwargs = {"batch_size": 32, "n_epochs": 2, **kwargs}
    kwargs = {"n_steps": 32, "seed": 3, "device": "cpu", "policy_kwargs": {"net_arch": [8]}, **kwargs}
    policy = "MultiInputPolicy" if isinstance(env.observation_space, spaces.Dict) else "MlpPolicy"
    return algorithm(policy, env, **kwargs)


def learn(model, callback, steps=512):
    # Nothing is dumped, so that what was logged is there at the end.
    return model.learn(steps, callback=callback, log_interval=10**6)


def same_parameters(one, other):
    pairs = zip(one.policy.state_dict().values(), other.policy.state_dict().values(), strict=True)
    return all(th.equal(a, b) for a, b in pairs)


# ---------------------------------------------------------------------- off is stock


@pytest.mark.parametrize("algorithm", [PPO, A2C])
@pytest.mark.parametrize(
    "kwargs", [{"mix_ratio": 0.0, "variance_every": 1}, {"min_count": 10_000, "tau": 0.5}, {"start_after": 10_000}]
)
def test_without_a_share_or_a_pool_parameters_are_those_of_stock(algorithm, kwargs):
    recycling = CriticRecyclingCallback(**kwargs)
    ours = learn(make(algorithm=algorithm), recycling)
    assert recycling.n_updates == 0
    assert (len(recycling.watch.pool) > 3) == ("min_count" not in kwargs)
    assert same_parameters(ours, learn(make(algorithm=algorithm), None))


@pytest.mark.parametrize("algorithm", [PPO, A2C])
def test_with_a_pool_they_are_others(algorithm):
    recycling = CriticRecyclingCallback(batch_size=16)
    ours = learn(make(algorithm=algorithm), recycling)
    assert recycling.n_updates > 0 and not same_parameters(ours, learn(make(algorithm=algorithm), None))


def test_a_slippery_lake_is_stock_and_another_one_is_not():
    for slippery in (True, False):
        recycling = CriticRecyclingCallback(min_count=20)
        ours = learn(make(lake(slippery)), recycling)
        assert (len(recycling.watch.pool) == 0) == slippery
        assert same_parameters(ours, learn(make(lake(slippery)), None)) == slippery


def test_where_nothing_repeats_it_switches_itself_off_with_one_warning(monkeypatch):
    monkeypatch.setattr(transition_watch, "TRIAL", 200)
    recycling = CriticRecyclingCallback()
    env = DummyVecEnv([lambda: gym.make("CartPole-v1")] * 4)
    with pytest.warns(
        UserWarning, match="CriticRecyclingCallback switched itself off: of 200 transitions, 0 repeated"
    ) as found:
        ours = learn(make(env), recycling)
    assert len(found) == 1 and not recycling.watch.enabled
    assert same_parameters(ours, learn(make(DummyVecEnv([lambda: gym.make("CartPole-v1")] * 4)), None))


# ---------------------------------------------------------------------- what is pooled


def assert_corridor(pool, kind="discrete", scale=1.0):
    """Every row is a step of the corridor."""
    taken = pool.take(np.arange(len(pool)))
    part = ".cell" if kind == "dict" else ""
    before, after = (taken[f"{name}{part}"].reshape(len(pool), -1)[:, 0] for name in ("observations", "next_observations"))
    before, after = before / scale, after / scale
    expected = np.clip(before + np.where(taken["actions"][:, 0] > 0, 1, -1), 0, 4)
    assert (after == expected).all()
    assert (taken["rewards"] == (after == 4)).all() and (taken["dones"] == (after == 4)).all()
    return len(pool)


@pytest.mark.parametrize("kind", ["discrete", "box", "dict", "image"])
def test_pooled_rows_are_steps_of_the_environment(kind):
    recycling = CriticRecyclingCallback()
    model = make(corridor(kind))
    learn(model, recycling)
    assert assert_corridor(recycling.watch.pool, kind, 50 if kind == "image" else 1) == 8
    assert recycling.watch.detector.n_stochastic == 0 and recycling.n_updates > 0


@pytest.mark.parametrize("kind", ["box", "dict"])
def test_under_vecnormalize_raw_rows_are_kept_and_normalised_ones_trained_on(kind):
    recycling = CriticRecyclingCallback()
    venv = VecNormalize(corridor(kind), norm_obs_keys=["place"] if kind == "dict" else None)
    model = make(venv)
    learn(model, recycling)
    assert assert_corridor(recycling.watch.pool, kind) == 8 and recycling.watch.detector.n_stochastic == 0
    columns = recycling.watch.pool.take(np.arange(8))
    batch = recycling._reader.batch(columns)
    name = "observations.place" if kind == "dict" else "observations"
    seen = batch.observations["place"] if kind == "dict" else batch.observations
    rms = venv.obs_rms["place"] if kind == "dict" else venv.obs_rms
    assert seen.numpy() == pytest.approx((columns[name] - rms.mean) / np.sqrt(rms.var + 1e-8), abs=1e-4)
    assert batch.rewards.numpy() == pytest.approx(columns["rewards"] / np.sqrt(venv.ret_rms.var + 1e-8), abs=1e-4)


def test_what_a_time_limit_or_a_stop_cut_is_no_termination_and_its_reward_is_the_environments():
    class Stop(BaseCallback):
        def _on_step(self):
            if self.num_timesteps % 12 == 0:
                self.training_env.request_stop([0, 1])
            return True

    recycling = CriticRecyclingCallback()
    model = make(EpisodeControlVecEnv(corridor(limit=6)))
    learn(model, [recycling, Stop()])
    assert_corridor(recycling.watch.pool)
    assert len(recycling.watch.pool) >= 6 and recycling.watch.detector.n_stochastic == 0


def test_continuous_actions_repeat_in_cells_and_are_kept_as_they_were_given():
    recycling = CriticRecyclingCallback(cells=QuantisedCells(bins_per_std=1.0), start_after=128, min_count=3)
    model = make(corridor("continuous"), policy_kwargs={"net_arch": [8], "log_std_init": 1.0})
    learn(model, recycling, 1024)
    taken = recycling.watch.pool.take(np.arange(len(recycling.watch.pool)))
    assert len(taken["actions"]) > 0 and recycling.n_updates > 0
    assert (np.clip(taken["policy_actions"], -1, 1) == taken["actions"]).all()
    assert np.abs(taken["policy_actions"]).max() > 1.0


def test_old_rows_leave_by_age_and_small_errors_by_priority():
    aged = CriticRecyclingCallback(max_age=1)
    learn(make(), aged)
    assert len(aged.watch.pool) <= 4
    ranked, seen = CriticRecyclingCallback(eviction="priority", capacity=4), []

    class Look(BaseCallback):
        def _on_step(self):
            return True

        def _on_rollout_start(self):
            pool = ranked.watch.pool
            drawn = np.flatnonzero(np.isfinite(pool._ranks[: len(pool)]))
            seen.append(len(drawn))
            batch = ranked._reader.batch(pool.take(drawn))
            if len(drawn):
                errors = ranked._critic.errors(batch).abs().numpy()
                assert pool._ranks[drawn] == pytest.approx(errors, abs=0.05)

    learn(make(), [ranked, Look()])
    assert seen[-1] == 4


# ---------------------------------------------------------------------- what is trained


@pytest.mark.parametrize("share", [0.25, 0.5])
def test_the_pool_gives_its_share_of_all_rows(share):
    recycling, seen = CriticRecyclingCallback(share, batch_size=10), []

    class Count(BaseCallback):
        def _on_step(self):
            return True

        def _on_rollout_end(self):
            seen.append(recycling.n_updates)

    learn(make(), [recycling, Count()], 128 * 12)
    # The first rollout has trained before there was a pool; two epochs of 128 rows each come from a rollout.
    pooled = 10 * sum(seen[1:])
    assert pooled / (pooled + 11 * 256) == pytest.approx(share, abs=0.01)


def test_extra_steps_leave_the_actor_and_the_optimizer_of_the_policy_alone():
    found = []

    class Look(BaseCallback):
        def _on_step(self):
            return True

        def _on_rollout_start(self):
            policy = self.model.policy
            with th.no_grad():
                logits = policy.get_distribution(th.arange(5)).distribution.logits.clone()
                values = policy.predict_values(th.arange(5))
            moments = [state["exp_avg"].clone() for state in policy.optimizer.state.values()]
            found.append((logits, values, moments))

    learn(make(), [Look(), recycling := CriticRecyclingCallback(), Look()], 256)
    assert recycling.n_updates > 0
    (logits, values, moments), (after, new_values, new_moments) = found[-2:]
    assert th.equal(logits, after) and not th.equal(values, new_values)
    assert moments and all(th.equal(one, other) for one, other in zip(moments, new_moments, strict=True))


def test_a_schedule_follows_the_progress():
    recycling, seen = CriticRecyclingCallback(lambda progress: 0.5 if progress < 0.5 else 0.0), []

    class Count(BaseCallback):
        def _on_step(self):
            return True

        def _on_rollout_start(self):
            seen.append(recycling.n_updates > 0)

    learn(make(), [recycling, Count()], 128 * 8)
    assert seen == [False] * 5 + [True] * 3


@pytest.mark.parametrize("algorithm", ["TRPO", "MaskablePPO", GRPO])
def test_other_on_policy_algorithms_recycle(algorithm):
    kwargs, env = {}, corridor()
    if isinstance(algorithm, str):
        algorithm = getattr(pytest.importorskip("sb3_contrib"), algorithm)
        if algorithm.__name__ == "TRPO":
            kwargs["n_epochs"] = None
    kwargs = {"batch_size": 32, "n_epochs": 2} | kwargs
    settings = {name: value for name, value in kwargs.items() if value is not None}
    settings |= {"n_steps": 32, "seed": 3, "device": "cpu", "policy_kwargs": {"net_arch": [8]}}
    if algorithm.__name__ == "MaskablePPO":
        env = DummyVecEnv([lambda: Masked()] * 4)
    recycling = CriticRecyclingCallback()
    learn(algorithm("MlpPolicy", env, **settings), recycling)
    assert recycling.n_updates > 0 and assert_corridor(recycling.watch.pool) == 8


class Masked(TimeLimit):
    def __init__(self):
        super().__init__(Corridor(), 20)

    def action_masks(self):
        return np.ones(2, dtype=bool)


# ---------------------------------------------------------------------- the actor


def test_policy_recycling_uses_young_rows_with_what_they_were_worth():
    recycling, checked = CriticRecyclingCallback(policy_recycling=True, max_policy_age=1, seed=0), []

    class Look(BaseCallback):
        def _on_step(self):
            return True

        def _on_rollout_end(self):
            buffer, pool = self.model.rollout_buffer, recycling.watch.pool
            taken = pool.take(np.arange(len(pool)))
            for row in np.flatnonzero(pool.version_ages(recycling._version) == 1):
                states, actions = buffer.observations[..., 0], buffer.actions[..., 0]
                same = (states == taken["observations"][row]) & (actions == taken["actions"][row, 0])
                step, slot = np.argwhere(same)[-1]
                assert taken["log_probs"][row] == buffer.log_probs[step, slot]
                assert taken["advantages"][row] == buffer.advantages[step, slot]
                checked.append(row)

    model = make()
    learn(model, [recycling, Look()], 128 * 6)
    assert len(checked) > 8
    logged = model.logger.name_to_value
    low, mean, high = (logged[f"budget/recycle_ratio_{name}"] for name in ("min", "mean", "max"))
    assert 0.0 < low < mean < high and mean == pytest.approx(1.0, abs=0.3)
    other = learn(make(), CriticRecyclingCallback(seed=0), 128 * 6)
    assert not same_parameters(model, other)


def test_policy_recycling_leaves_out_what_is_old_or_has_no_advantage_yet():
    recycling = CriticRecyclingCallback(policy_recycling=True, max_policy_age=1)
    model = make()
    learn(model, recycling, 256)
    policy, pool = recycling._policy, recycling.watch.pool
    before = {name: value.clone() for name, value in model.policy.state_dict().items()}
    policy.train(pool, recycling._version + 1, 5, 8, 0.1, np.random.default_rng(0))
    assert policy.ratios is None
    pool.write(pool.keys(), {"advantages": np.full(len(pool), np.nan)})
    policy.train(pool, recycling._version, 5, 8, 0.1, np.random.default_rng(0))
    assert policy.ratios is None
    assert all(th.equal(value, before[name]) for name, value in model.policy.state_dict().items())


# ---------------------------------------------------------------------- logs


def test_logged_numbers_are_those_of_the_pool():
    recycling = CriticRecyclingCallback(variance_every=2)
    model = learn(make(), recycling, 512)
    logged, pool = model.logger.name_to_value, recycling.watch.pool
    assert logged["budget/recycle_pool_size"] == len(pool) == 8
    assert logged["budget/recycle_promoted"] == 8 and logged["budget/recycle_stochastic"] == 0
    assert logged["budget/recycle_hit_rate"] == recycling.watch.detector.hit_rate > 0.9
    assert logged["budget/recycle_updates"] == recycling.n_updates > 0
    assert logged["budget/recycle_use"] == recycling.n_updates * 32 / 8
    assert logged["budget/recycle_turnover"] == 0.0
    assert logged["budget/recycle_grad_var_online"] > 0.0 and logged["budget/recycle_grad_var_mixed"] > 0.0


def test_errors_are_root_mean_squares_over_the_latest_steps_and_over_the_pool():
    recycling = CriticRecyclingCallback(mix_ratio=0.0)
    # Many episodes are cut, whose rewards collect_rollouts adds a value to.
    model = make(corridor(limit=6), learning_rate=0.0, gamma=0.5)
    with th.no_grad():
        model.policy.value_net.weight.zero_()
        model.policy.value_net.bias.fill_(1.0)
    learn(model, recycling, 256)
    logged = model.logger.name_to_value
    # Every target is 0.5 but at the end, where it is 1: errors of -0.5 and 0.
    steps = np.concatenate([step["dones"] for step in recycling._latest])
    assert logged["budget/recycle_error_online"] == pytest.approx(0.5 * np.sqrt(1 - steps.mean()), abs=1e-6)
    n = len(recycling.watch.pool)
    taken = recycling.watch.pool.take(np.arange(n))
    with th.no_grad():
        chance = model.policy.get_distribution(th.as_tensor(taken["observations"])).distribution.probs.numpy()
    weights = chance[np.arange(n), taken["actions"][:, 0]]
    expected = np.sqrt((weights * 0.25 * (1 - taken["dones"])).sum() / weights.sum())
    assert logged["budget/recycle_error_pool"] == pytest.approx(expected, abs=1e-6)


# ---------------------------------------------------------------------- save and resume


def test_a_resumed_run_goes_on_as_the_one_that_was_saved(tmp_path):
    def resumed(model, recycling):
        model.set_random_seed(5)
        model.get_env().reset()
        model.learn(512, callback=recycling)
        return model

    kwargs = {"tau": 0.5, "policy_recycling": True, "batch_size": 24}
    recycling, again = CriticRecyclingCallback(**kwargs), CriticRecyclingCallback(**kwargs)
    model = learn(make(), recycling)
    model.save(tmp_path / "model")
    recycling.save(tmp_path / "recycling")
    loaded = PPO.load(tmp_path / "model", env=corridor(), device="cpu")
    again.load(tmp_path / "recycling")
    fresh = PPO.load(tmp_path / "model", env=corridor(), device="cpu")
    resumed(model, recycling)
    assert same_parameters(resumed(loaded, again), model)
    assert not same_parameters(resumed(fresh, CriticRecyclingCallback(**kwargs)), model)


def test_two_trainings_are_one():
    whole, halves = CriticRecyclingCallback(), CriticRecyclingCallback()
    one = make().learn(512, callback=whole)
    other = make().learn(256, callback=halves)
    assert not same_parameters(one, other)
    other.learn(256, callback=halves, reset_num_timesteps=False)
    assert same_parameters(one, other)


@pytest.mark.parametrize("kind", ["discrete", "dict"])
@pytest.mark.parametrize("resets", [False, True])
def test_what_happened_after_a_training_that_a_callback_ended_begins_where_the_environment_is(kind, resets):
    class End(BaseCallback):
        def _on_step(self):
            return self.n_calls % 61 != 0

    recycling = CriticRecyclingCallback(min_count=1)
    model = make(corridor(kind))
    for _ in range(6):
        learn(model, [recycling, End()], 10_000)
        model.learn(128, callback=recycling, reset_num_timesteps=resets)
    # A step that Stable-Baselines3 has forgotten would lead two cells on.
    assert recycling.watch.detector.n_stochastic == 0


# ---------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("kwargs", "match"),
    [
        ({"mix_ratio": 1.0}, "mix_ratio=1.0"),
        ({"mix_ratio": float("nan")}, "mix_ratio=nan"),
        ({"mix_ratio": lambda progress: -1.0}, "mix_ratio=-1.0"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"min_count": 0}, "min_count=0"),
        ({"epsilon": -1.0}, "epsilon=-1"),
        ({"capacity": 0}, "capacity=0"),
        ({"eviction": "random"}, "eviction='random'"),
        ({"max_age": 0}, "max_age=0"),
        ({"max_policy_age": 0}, "max_policy_age=0"),
        ({"start_after": -1}, "start_after=-1"),
        ({"cells": QuantisedCells()}, "start_after=0"),
        ({"weighting": "none"}, "weighting='none'"),
        ({"tau": 0.0}, "tau=0.0"),
        ({"clip_range": 0.0}, "clip_range=0.0"),
        ({"learning_rate": 0.0}, "learning_rate=0.0"),
        ({"variance_every": -1}, "variance_every=-1"),
    ],
)
def test_arguments_out_of_range_are_refused(kwargs, match):
    with pytest.raises(ValueError, match=match):
        CriticRecyclingCallback(**kwargs)


def test_what_does_not_fit_is_refused_before_training():
    with pytest.raises(ValueError, match="needs an on-policy algorithm, not DQN"):
        DQN("MlpPolicy", corridor(), buffer_size=100).learn(10, callback=CriticRecyclingCallback())
    with pytest.raises(ValueError, match="inside EveryNTimesteps"):
        make().learn(10, callback=EveryNTimesteps(10, CriticRecyclingCallback()))
    with pytest.raises(ValueError, match=r"write VecNormalize\(VecFrameStack\(venv\)\)"):
        make(VecFrameStack(VecNormalize(corridor("box")), 2)).learn(10, callback=CriticRecyclingCallback())
    with pytest.raises(ValueError, match="uses no critic"):
        make(algorithm=GRPO, advantage="outcome").learn(10, callback=CriticRecyclingCallback())
    recycling = CriticRecyclingCallback()
    learn(make(), recycling, 128)
    with pytest.raises(ValueError, match="belongs to one kind of environment"):
        make(corridor("box")).learn(10, callback=recycling)


@pytest.mark.parametrize(
    "other",
    [
        lambda: make(policy_kwargs={"net_arch": [9]}),
        lambda: make(policy_kwargs={"net_arch": [8, 8]}),
        lambda: make(algorithm=A2C),
    ],
)
def test_the_moments_of_another_policy_are_refused_before_training(other):
    recycling, model, refused = CriticRecyclingCallback(), make(), other()
    learn(model, recycling)
    with pytest.raises(ValueError, match="a callback belongs to one policy"):
        learn(refused, recycling)
    assert refused.num_timesteps == 0
    learn(model, recycling)
    assert recycling.n_updates > 0


def test_masks_and_recurrent_policies_are_refused_where_they_cannot_work():
    contrib = pytest.importorskip("sb3_contrib")
    kwargs = {"n_steps": 32, "batch_size": 32, "device": "cpu"}
    with pytest.raises(ValueError, match="masks of actions, which MaskablePPO has"):
        model = contrib.MaskablePPO("MlpPolicy", DummyVecEnv([lambda: Masked()] * 4), **kwargs)
        model.learn(10, callback=CriticRecyclingCallback(policy_recycling=True))
    with pytest.raises(ValueError, match="hidden states"):
        contrib.RecurrentPPO("MlpLstmPolicy", corridor("box"), **kwargs).learn(10, callback=CriticRecyclingCallback())


@pytest.mark.gpu
@pytest.mark.skipif(not th.cuda.is_available(), reason="needs a CUDA device")
def test_it_recycles_on_a_gpu():
    recycling = CriticRecyclingCallback(policy_recycling=True, variance_every=1, tau=0.5)
    model = learn(make(device="cuda"), recycling)
    assert recycling.n_updates > 0 and model.logger.name_to_value["budget/recycle_grad_var_mixed"] > 0.0


# ---------------------------------------------------------------------- what shows only in some trainings


class OneHot(gym.Env):
    """A way of which each place is a direction of its own, so that the end is rare and VecNormalize clips it."""

    action_space = spaces.Discrete(2)
    observation_space = spaces.Box(0.0, 1.0, (6,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return np.eye(6, dtype=np.float32)[0], {}

    def step(self, action):
        self.place = max(0, self.place + (1 if action else -1))
        return np.eye(6, dtype=np.float32)[self.place], float(self.place == 5), self.place == 5, False, {}


def test_ends_that_vec_normalize_clips_contradict_nothing():
    env = DummyVecEnv([lambda: TimeLimit(OneHot(), 15)] * 4)
    recycling = CriticRecyclingCallback()
    learn(make(VecNormalize(env, clip_obs=2.0)), recycling, 4096)
    assert recycling.watch.detector.n_stochastic == 0
    assert recycling.watch.pool.take(np.arange(len(recycling.watch.pool)))["dones"].sum() == 1


def test_actions_of_several_switches():
    class Switches(Corridor):
        def __init__(self):
            super().__init__()
            self.action_space = spaces.MultiBinary(2)

        def step(self, action):
            return super().step(action[0])

    recycling = CriticRecyclingCallback(min_count=2, policy_recycling=True)
    learn(make(DummyVecEnv([lambda: TimeLimit(Switches(), 20)] * 4)), recycling)
    assert recycling.n_updates > 0


def test_the_ratio_of_a_clipped_action_is_that_of_the_action_itself():
    recycling = CriticRecyclingCallback(min_count=2, policy_recycling=True, max_policy_age=100, learning_rate=1e-12)
    model = make(corridor("continuous"), learning_rate=0.0, policy_kwargs={"net_arch": [8], "log_std_init": 1.0})
    learn(model, recycling, 1024)
    assert (np.abs(recycling.watch.pool.take(np.arange(len(recycling.watch.pool)))["actions"]) == 1.0).any()
    np.testing.assert_allclose(recycling._policy.ratios, 1.0, atol=1e-4)
    with pytest.raises(ValueError, match="policy_recycling needs exact keys"):
        CriticRecyclingCallback(policy_recycling=True, cells=QuantisedCells(), start_after=10)


def test_ages_and_statistics_go_on_when_the_count_of_steps_begins_again():
    recycling = CriticRecyclingCallback(cells=QuantisedCells(), start_after=2, max_age=256)
    model = make(corridor("box"))
    learn(model, recycling)
    before = recycling.watch.detector.n_observed
    assert before > 0
    learn(model, recycling)
    assert recycling.watch.detector.n_observed > 1.9 * before
    assert recycling.watch.pool.ages(recycling._n_watched).max() <= 256 + 128
