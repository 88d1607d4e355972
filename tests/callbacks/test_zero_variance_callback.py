"""What is logged is what the buffer holds; ranks are of its transitions; targets are exact within the graph."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from stable_baselines3 import DQN, PPO, SAC
from stable_baselines3.common.callbacks import BaseCallback, EveryNTimesteps
from stable_baselines3.common.logger import configure
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from sb3_budget.buffers.zero_variance_replay_buffer import ZeroVarianceNStepReplayBuffer, ZeroVarianceReplayBuffer
from sb3_budget.callbacks.graph_targets import graph_targets
from sb3_budget.callbacks.zero_variance_callback import ZeroVarianceCallback, dqn_td_errors


class Targets(BaseCallback):
    """The targets that were there at the last step."""

    def _on_step(self):
        self.found = self.model.replay_buffer.targets
        return True


class Interrupt(BaseCallback):
    def __init__(self, step):
        super().__init__()
        self.step = step

    def _on_step(self):
        if self.num_timesteps >= self.step:
            raise KeyboardInterrupt
        return True


def make(algorithm=DQN, slippery=False, buffer=None, **kwargs):
    venv = DummyVecEnv([lambda: gym.make("FrozenLake-v1", is_slippery=slippery)] * 2)
    if algorithm is DQN:
        settings = {"learning_starts": 50, "train_freq": 8, "batch_size": 16, "buffer_size": 500}
        kwargs = settings | {"replay_buffer_class": ZeroVarianceReplayBuffer, **kwargs}
        kwargs["replay_buffer_kwargs"] = {"start_after": 50, "min_count": 2, **(buffer or {})}
        if kwargs["replay_buffer_class"] is None:
            del kwargs["replay_buffer_kwargs"]
    return algorithm("MlpPolicy", venv, seed=3, device="cpu", **kwargs)


def test_logged_numbers_are_the_buffers():
    model = make()
    model.learn(200, callback=ZeroVarianceCallback())
    logged, found = model.logger.name_to_value, model.replay_buffer.statistics
    assert logged["budget/replay_pool_size"] == found.size > 0
    assert logged["budget/replay_hit_rate"] == found.hit_rate > 0.5
    assert logged["budget/replay_promoted"] == found.promoted > 0
    assert logged["budget/replay_stochastic"] == found.stochastic == 0
    assert 0.0 < logged["budget/replay_pool_share"] <= 0.25


def test_logging_changes_no_parameter():
    with_it = make().learn(200, callback=ZeroVarianceCallback())
    without = make().learn(200)
    pairs = zip(with_it.policy.parameters(), without.policy.parameters(), strict=True)
    assert all(th.equal(one, other) for one, other in pairs)


def test_temporal_differences_by_hand():
    model = make(gamma=0.5, buffer={"start_after": 0})
    model.learn(100)
    buffer = model.replay_buffer
    samples = buffer.read_pool(np.arange(len(buffer.pool)))
    errors = dqn_td_errors(model, samples)
    for row in range(len(errors)):
        with th.no_grad():
            value = model.q_net(samples.observations[row : row + 1])[0, samples.actions[row, 0]]
            future = model.q_net_target(samples.next_observations[row : row + 1]).max()
        target = samples.rewards[row, 0] + (1 - samples.dones[row, 0]) * 0.5 * future
        assert errors[row] == pytest.approx(abs(float(target - value)), abs=1e-6)


def by_action(model, samples):
    return samples.actions.flatten().numpy()


@pytest.mark.parametrize("rank", [by_action, None])
def test_a_ranked_pool_has_the_ranks_of_its_transitions(rank):
    model = make(buffer={"eviction": "priority", "capacity": 6})
    model.learn(600, callback=ZeroVarianceCallback(rank=rank, refresh_every=64))
    pool = model.replay_buffer.pool
    ranks, known = pool._ranks[:6], np.isfinite(pool._ranks[:6])
    assert len(pool) == 6 and known.any()
    if rank is by_action:
        assert (ranks[known] == pool.take(np.flatnonzero(known))["actions"].ravel()).all()


# ---------------------------------------------------------------------- exact targets


class Line(gym.Env):
    """Cells 0 to 4; action 1 goes right, action 0 stays. The end pays 10, every step costs 1."""

    observation_space = gym.spaces.Box(0.0, 10.0, (1,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cell = 0
        return np.zeros(1, dtype=np.float32), {}

    def step(self, action):
        self.cell += int(action)
        ended = self.cell == 4
        return np.array([self.cell], dtype=np.float32), 10.0 * ended - 1.0, ended, False, {}


def line_model(known=(0, 1, 2, 3), also=(), optimism=None, vec_normalize=False, **buffer):
    """A DQN whose pool has the ways to the right from the known cells, and its callback after a refresh."""
    venv = DummyVecEnv([Line])
    if vec_normalize:
        venv = VecNormalize(venv, norm_obs=False)
        venv.ret_rms.var = 4.0
    kwargs = {"start_after": 0, "min_count": 1, "mix_ratio": 0.5, "capacity": 50, **buffer}
    model = DQN(
        "MlpPolicy", venv, 1e-3, 200, gamma=0.5, seed=0, device="cpu",
        replay_buffer_class=ZeroVarianceReplayBuffer, replay_buffer_kwargs=kwargs,
    )  # fmt: skip
    for cell in known:
        step(model.replay_buffer, cell)
    for one in also:
        step(model.replay_buffer, **one)
    callback = ZeroVarianceCallback("graph", refresh_every=1, optimism=optimism)
    callback.init_callback(model)
    callback.num_timesteps = 10
    model.set_logger(configure(None, []))
    callback._on_rollout_end()
    return model


def step(buffer, cell, action=1, reward=None):
    following = cell + action
    cost = 10.0 * (following == 4) - 1.0 if reward is None else reward
    states = (np.array([[one]], dtype=np.float32) for one in (cell, following))
    buffer.add(*states, np.array([action]), np.array([cost]), np.array([following == 4]), [{}])


def network(model, cell, action=None):
    with th.no_grad():
        values = model.q_net_target(th.full((1, 1), float(cell)))[0]
    return float(values.max() if action is None else values[action])


def targets(model, samples):
    """As DQN computes them."""
    discounts = model.gamma if samples.discounts is None else samples.discounts
    with th.no_grad():
        future = model.q_net_target(samples.next_observations).max(dim=1, keepdim=True).values
        return (samples.rewards + (1 - samples.dones) * discounts * future).flatten().numpy()


def pooled_targets(model, n=128):
    samples = model.replay_buffer.sample_pool(n, model.get_vec_normalize_env())
    pairs = zip(samples.observations.flatten().tolist(), samples.actions.flatten().tolist(), strict=True)
    return dict(zip(pairs, targets(model, samples).tolist(), strict=True))


@pytest.mark.parametrize("vec_normalize", [False, True])
def test_targets_are_exact_where_the_end_is_known(vec_normalize):
    scale = 2.0 if vec_normalize else 1.0
    exact = {(3.0, 1): 9.0, (2.0, 1): 3.5, (1.0, 1): 0.75, (0.0, 1): -0.625}
    found = pooled_targets(line_model(vec_normalize=vec_normalize))
    assert found == pytest.approx({pair: value / scale for pair, value in exact.items()}, abs=1e-5)


def test_the_target_network_speaks_for_a_state_of_which_nothing_is_known():
    model = line_model(known=(0, 1))
    end = network(model, 2)
    assert pooled_targets(model) == pytest.approx({(1.0, 1): -1 + 0.5 * end, (0.0, 1): -1.5 + 0.25 * end}, abs=1e-5)


def test_a_guess_of_the_network_at_what_was_never_tried_does_not_count_and_its_value_of_what_varies_does():
    model = line_model(also=[{"cell": 1, "action": 0, "reward": reward} for reward in (5.0, -5.0)])
    with th.no_grad():
        model.q_net_target.q_net[-1].bias[0] += 1_000.0
    model.replay_buffer.targets = graph_targets(model, model.replay_buffer, None)
    found, varied = pooled_targets(model), network(model, 1, action=0)
    assert varied > 900 and found[0.0, 1] == pytest.approx(-1 + 0.5 * varied, rel=1e-5)
    assert found[1.0, 1] == pytest.approx(0.75, abs=1e-5)


def test_of_a_state_outside_of_the_graph_only_what_was_tried_counts():
    model = line_model(known=(0,), also=[{"cell": 1, "action": 0, "reward": reward} for reward in (5.0, -5.0)])
    with th.no_grad():
        model.q_net_target.q_net[-1].bias[1] += 1_000.0
    model.replay_buffer.targets = graph_targets(model, model.replay_buffer, None)
    assert pooled_targets(model)[0.0, 1] == pytest.approx(-1 + 0.5 * network(model, 1, action=0), abs=1e-5)


def test_optimism_makes_targets_of_what_was_never_tried_and_leads_there():
    model = line_model(known=(0, 1, 3), also=[{"cell": 3, "action": 0}], optimism=8.0)
    expected = {(0.0, 1): 3.0, (0.0, 0): 8.0, (1.0, 1): 3.0, (1.0, 0): 8.0, (3.0, 1): 9.0, (3.0, 0): 3.5}
    assert pooled_targets(model, 512) == pytest.approx(expected, abs=1e-5)
    assert model.logger.name_to_value["budget/replay_untried"] == 2
    assert model.replay_buffer.targets.n_untried == 2


def test_optimism_is_in_the_rewards_of_the_environment_also_where_they_are_normalised():
    kwargs = {"known": (0, 1, 3), "also": [{"cell": 3, "action": 0}], "optimism": 8.0}
    raw, halved = pooled_targets(line_model(**kwargs), 512), pooled_targets(line_model(**kwargs, vec_normalize=True), 512)
    assert halved == pytest.approx({key: value / 2.0 for key, value in raw.items()}, abs=1e-5)


def test_a_batch_with_targets_has_discounts_for_stock_rows_too():
    model = line_model()
    batch = model.replay_buffer.sample(8)
    assert batch.discounts.flatten().tolist() == [0.5] * 4 + [0.0] * 4
    assert (batch.rewards[:4].flatten() == th.where(batch.observations[:4].flatten() == 3, 9.0, -1.0)).all()
    model.train(2, 8)


def test_targets_are_exact_for_a_training_that_takes_the_discount_factor_of_the_model():
    model = line_model(known=(1, 2, 3), optimism=8.0)
    step(model.replay_buffer, 0)
    samples = model.replay_buffer.sample_pool(128)
    assert samples.dones.dtype == th.float32 and 0.0 < samples.dones.mean() < 1.0
    np.testing.assert_array_equal(targets(model, samples._replace(discounts=None)), targets(model, samples))


def test_a_new_transition_has_a_target_of_one_step_and_one_contradiction_drops_all():
    model = line_model(known=(1, 2, 3))
    buffer = model.replay_buffer
    step(buffer, 0)
    one_step = targets(model, buffer.read_pool(buffer.pool.rows(buffer.pool.keys()[-1:])))
    assert pooled_targets(model)[0.0, 1] == pytest.approx(one_step[0], abs=1e-6)
    assert pooled_targets(model)[1.0, 1] == pytest.approx(0.75, abs=1e-6)
    step(buffer, 3, reward=0.0)
    assert buffer.targets is None and buffer.sample(8).discounts is None


@pytest.mark.parametrize("optimism", [None, 1.0])
def test_dqn_trains_on_targets_and_on_none_of_them_in_a_slippery_lake(optimism):
    model = make(buffer={"mix_ratio": 0.5})
    during = Targets()
    model.learn(600, callback=[ZeroVarianceCallback("graph", refresh_every=100, optimism=optimism), during])
    assert during.found is not None
    # Nothing would renew them after that.
    assert model.replay_buffer.targets is None
    kwargs = {"slippery": True, "buffer": {"min_count": 20}}
    ours = make(**kwargs).learn(600, callback=ZeroVarianceCallback("graph", refresh_every=100, optimism=optimism))
    stock = make(slippery=True, replay_buffer_class=None).learn(600)
    pairs = zip(ours.policy.parameters(), stock.policy.parameters(), strict=True)
    assert all(th.equal(one, other) for one, other in pairs)


@pytest.mark.parametrize("others", [[], [ZeroVarianceCallback()]])
@pytest.mark.parametrize("is_loaded", [False, True])
def test_targets_of_an_earlier_training_are_not_trained_on(tmp_path, is_loaded, others):
    model, during = make(buffer={"mix_ratio": 0.5}), Targets()
    graph = ZeroVarianceCallback("graph", refresh_every=100)
    with pytest.raises(KeyboardInterrupt):
        model.learn(600, callback=[graph, Interrupt(500)])
    assert model.replay_buffer.targets is not None
    if is_loaded:
        model.save_replay_buffer(tmp_path / "buffer")
        model = make()
        model.load_replay_buffer(tmp_path / "buffer")
    model.learn(100, callback=[*others, during])
    assert during.found is None


# ---------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("model", "callback", "match"),
    [
        (lambda: make(replay_buffer_class=None), ZeroVarianceCallback, "not ReplayBuffer"),
        (lambda: make(PPO), ZeroVarianceCallback, "not NoneType"),
        (make, lambda: EveryNTimesteps(10, ZeroVarianceCallback()), "inside EveryNTimesteps"),
    ],
)
def test_another_place_is_refused_before_training(model, callback, match):
    with pytest.raises(ValueError, match=match):
        model().learn(100, callback=callback())


@pytest.mark.parametrize(
    ("buffer", "callback", "match"),
    [({"eviction": "priority"}, {}, "rank="), ({}, {"backups": "graph"}, "backups='none'")],
)
def test_what_needs_dqn_is_refused_without_it(buffer, callback, match):
    kwargs = {"replay_buffer_class": ZeroVarianceReplayBuffer, "replay_buffer_kwargs": buffer, "buffer_size": 100}
    model = SAC("MlpPolicy", DummyVecEnv([lambda: gym.make("Pendulum-v1")]), device="cpu", **kwargs)
    with pytest.raises(ValueError, match=match):
        model.learn(10, callback=ZeroVarianceCallback(**callback))


def test_exact_targets_need_a_discount():
    with pytest.raises(ValueError, match=r"gamma < 1, not 1\.0"):
        make(gamma=1.0).learn(10, callback=ZeroVarianceCallback(backups="graph"))


def test_another_discount_factor_than_that_of_an_n_step_buffer_is_refused():
    n_step = {"replay_buffer_class": ZeroVarianceNStepReplayBuffer}
    with pytest.raises(ValueError, match=r"gamma=0\.99, but DQN has 0\.5.*'gamma': 0\.5"):
        make(gamma=0.5, buffer={"gamma": 0.99}, **n_step).learn(10, callback=ZeroVarianceCallback())
    make(gamma=0.5, buffer={"gamma": 0.5}, **n_step).learn(10, callback=ZeroVarianceCallback())


@pytest.mark.parametrize(
    "kwargs", [{"refresh_every": 0}, {"optimism": 1.0}, {"optimism": np.nan, "backups": "graph"}, {"backups": "tree"}]
)
def test_arguments_out_of_range_are_refused(kwargs):
    with pytest.raises(ValueError, match=next(iter(kwargs))):
        ZeroVarianceCallback(**kwargs)


def test_targets_are_renewed_in_a_training_of_many_short_ones():
    model, callback = make(gamma=0.95), ZeroVarianceCallback("graph", refresh_every=160)
    during, found = Targets(), []
    for _ in range(8):
        model.learn(80, callback=[callback, during], reset_num_timesteps=False)
        found.append(during.found is not None)
    # Once it has been due, each training begins with them, one rollout late.
    assert found[3:] == [True] * 5
