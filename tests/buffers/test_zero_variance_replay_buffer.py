"""Without a pool it is stock SB3 bit for bit; with one, every row is one transition that was added."""

from __future__ import annotations

import pickle

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit
from hypothesis import given, settings
from hypothesis import strategies as st
from stable_baselines3 import DQN, SAC, TD3
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.utils import FloatSchedule, LinearSchedule
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer

from sb3_budget.buffers.zero_variance_replay_buffer import (
    ZeroVarianceBufferMixin,
    ZeroVarianceDictReplayBuffer,
    ZeroVarianceNStepReplayBuffer,
    ZeroVarianceReplayBuffer,
)
from sb3_budget.core import transition_watch
from sb3_budget.core.cells import QuantisedCells

OBS = spaces.Box(-np.inf, np.inf, (1,))
DICT = spaces.Dict({"a": OBS, "b": spaces.Box(0, 255, (1, 2, 2), np.uint8), "c": spaces.Discrete(100)})
ACTION = spaces.Discrete(4)
STOCK = {
    ZeroVarianceReplayBuffer: ReplayBuffer,
    ZeroVarianceDictReplayBuffer: DictReplayBuffer,
    ZeroVarianceNStepReplayBuffer: NStepReplayBuffer,
}


def make(size=64, space=OBS, n_envs=1, cls=None, **kwargs):
    cls = cls or (ZeroVarianceDictReplayBuffer if isinstance(space, spaces.Dict) else ZeroVarianceReplayBuffer)
    if issubclass(cls, ZeroVarianceBufferMixin):
        kwargs = {"start_after": 0, "seed": 0, "min_count": 2, **kwargs}
    if issubclass(cls, NStepReplayBuffer):
        kwargs = {"gamma": 0.99, **kwargs}
    return cls(size, space, ACTION, device="cpu", n_envs=n_envs, **kwargs)


def observe(space, numbers):
    column = np.array(numbers, dtype=np.float32).reshape(-1, 1)
    if not isinstance(space, spaces.Dict):
        return column
    image = np.repeat(column, 4, axis=1).reshape(-1, 1, 2, 2).astype(np.uint8)
    return {"a": column, "b": image, "c": column.ravel().astype(np.int64)}


def put(buffer, states, actions, next_states=None, rewards=None, dones=None, cut=None):
    """Rows that know their place: by default state s and action a lead to s + a + 1 with the reward 10 s + a."""
    states, actions = np.array(states), np.array(actions)
    next_states = states + actions + 1 if next_states is None else next_states
    rewards = 10.0 * states + actions if rewards is None else np.array(rewards)
    dones = np.zeros(len(states)) if dones is None else np.array(dones)
    infos = [{"TimeLimit.truncated": bool(one)} for one in (cut or [False] * len(states))]
    space = buffer.observation_space
    buffer.add(observe(space, states), observe(space, next_states), actions, rewards, dones, infos)


def numbers(observations):
    return (observations["a"] if isinstance(observations, dict) else observations).numpy().ravel()


def rows(samples):
    """Each row as the tuple of what was added, after a check that the entries of an observation belong together."""
    for part in (samples.observations, samples.next_observations):
        if isinstance(part, dict):
            a, b, c = part["a"], part["b"], part["c"]
            assert (b == a.reshape(-1, 1, 1, 1)).all() and (c.flatten() == a.flatten()).all()
    columns = (samples.actions, samples.rewards, samples.dones)
    columns = [numbers(samples.observations), *(one.numpy().ravel() for one in columns), numbers(samples.next_observations)]
    return list(zip(*(column.astype(float).tolist() for column in columns), strict=True))


def assert_same(ours, theirs):
    for a, b in zip(ours, theirs, strict=True):
        pairs = [(a[key], b[key]) for key in a] if isinstance(a, dict) else [(a, b)]
        assert all((x is None and y is None) or (x.dtype == y.dtype and th.equal(x, y)) for x, y in pairs)


# ---------------------------------------------------------------------- off is stock


@pytest.mark.parametrize("cls", STOCK)
@pytest.mark.parametrize("kwargs", [{"mix_ratio": 0.0}, {"start_after": 10_000}, {"min_count": 1_000}])
def test_without_a_share_batches_are_stock_down_to_the_global_generator(cls, kwargs):
    space = DICT if cls is ZeroVarianceDictReplayBuffer else OBS
    drawn = []
    for one in (make(space=space, n_envs=2, cls=cls, **kwargs), make(space=space, n_envs=2, cls=STOCK[cls])):
        np.random.seed(7)  # noqa: NPY002  # SB3 draws from the global generator
        batches = []
        for step in range(50):
            put(one, [step % 3, step % 5], [step % 2, 0], dones=[step % 7 == 0, 0])
            batches.append(one.sample(8))
        drawn.append((batches, np.random.random()))  # noqa: NPY002  # as above
    for ours, theirs in zip(drawn[0][0], drawn[1][0], strict=True):
        assert_same(ours, theirs)
    assert drawn[0][1] == drawn[1][1]


def test_the_pool_draws_nothing_from_the_global_generator():
    buffer = make()
    for step in range(20):
        put(buffer, [step % 2], [0])
    np.random.seed(7)  # noqa: NPY002  # SB3 draws from the global generator
    buffer.sample_pool(10)
    make(seed=None)
    first = np.random.random()  # noqa: NPY002  # as above
    np.random.seed(7)  # noqa: NPY002  # as above
    assert first == np.random.random()  # noqa: NPY002  # as above


def test_without_a_seed_the_pool_follows_the_run():
    draws = []
    for seed in (1, 1, 2):
        np.random.seed(seed)  # noqa: NPY002  # SB3 seeds the global generator
        buffer = make(seed=None)
        for step in range(40):
            put(buffer, [step % 8], [0])
        draws.append(rows(buffer.sample_pool(20)))
    assert draws[0] == draws[1] != draws[2]


def learn(env, steps=600, algorithm=DQN, **kwargs):
    settings = {"learning_starts": 50, "train_freq": 4, "batch_size": 16, "buffer_size": 500, "seed": 3, "device": "cpu"}
    settings |= {"policy_kwargs": {"net_arch": [8]}} | kwargs
    policy = "MultiInputPolicy" if isinstance(env.observation_space, spaces.Dict) else "MlpPolicy"
    return algorithm(policy, env, **settings).learn(steps)


def parameters(model):
    return [parameter.detach().numpy().copy() for parameter in model.policy.parameters()]


def frozen_lake(slippery, n_envs=2):
    return DummyVecEnv([lambda: gym.make("FrozenLake-v1", is_slippery=slippery)] * n_envs)


def equal_parameters(one, other):
    return all(np.array_equal(a, b) for a, b in zip(parameters(one), parameters(other), strict=True))


def test_a_share_of_zero_gives_the_parameters_of_stock_dqn():
    ours = learn(
        frozen_lake(False),
        replay_buffer_class=ZeroVarianceReplayBuffer,
        replay_buffer_kwargs={"mix_ratio": 0.0, "start_after": 100},
    )
    assert len(ours.replay_buffer.pool) > 5
    assert equal_parameters(ours, learn(frozen_lake(False)))


def test_a_slippery_lake_gives_the_parameters_of_stock_dqn_and_another_one_does_not():
    kwargs = {"mix_ratio": 0.5, "start_after": 100, "min_count": 20}
    for slippery in (True, False):
        ours = learn(frozen_lake(slippery), replay_buffer_class=ZeroVarianceReplayBuffer, replay_buffer_kwargs=kwargs)
        assert (len(ours.replay_buffer.pool) == 0) == slippery
        assert equal_parameters(ours, learn(frozen_lake(slippery))) == slippery


# ---------------------------------------------------------------------- what is pooled


def test_a_pair_enters_the_pool_at_its_nth_equal_outcome_and_leaves_at_a_contradiction():
    buffer = make(min_count=3)
    for expected in (0, 0, 1, 1):
        put(buffer, [1], [0])
        assert len(buffer.pool) == expected
    put(buffer, [1], [0], next_states=[9])
    assert len(buffer.pool) == 0 and buffer.statistics.stochastic == 1
    for _ in range(10):
        put(buffer, [1], [0])
    assert len(buffer.pool) == 0


def test_slots_share_their_evidence():
    buffer = make(n_envs=4, min_count=4, size=80)
    put(buffer, [1, 1, 1, 1], [0, 0, 0, 0])
    assert len(buffer.pool) == 1
    put(buffer, [1, 1, 2, 2], [0, 0, 0, 0], rewards=[10.0, 11.0, 0.0, 0.0])
    assert len(buffer.pool) == 0


@pytest.mark.parametrize("handle", [True, False])
def test_a_cut_transition_is_no_outcome(handle):
    buffer = make(handle_timeout_termination=handle, mix_ratio=1.0)
    for _ in range(3):
        # Where it led to is not known: VecNormalize may have clipped it.
        put(buffer, [1], [0], [7], dones=[1], cut=[True])
    assert len(buffer.pool) == 0 == buffer.detector.n_observed
    for _ in range(buffer.detector.min_count):
        put(buffer, [1], [0])
    assert len(buffer.pool) == 1
    put(buffer, [1], [0], [7], dones=[1], cut=[True])
    assert rows(buffer.sample_pool(3)) == [(1.0, 0.0, 10.0, 0.0, 2.0)] * 3


def test_a_termination_is_pooled_as_one_and_contradicts_a_continuation():
    buffer = make()
    for _ in range(2):
        put(buffer, [1], [0], dones=[1])
    assert rows(buffer.sample_pool(1)) == [(1.0, 0.0, 10.0, 1.0, 2.0)]
    put(buffer, [1], [0])
    assert len(buffer.pool) == 0


def test_the_pool_has_each_pair_once_whatever_the_ring_holds():
    buffer = make(size=6, capacity=10)
    for step in range(60):
        put(buffer, [step % 3], [step % 2])
    assert len(buffer.pool) == 6
    pairs = [(state, action) for state in range(3) for action in range(2)]
    assert sorted(set(rows(buffer.sample_pool(200)))) == [(s, a, 10.0 * s + a, 0.0, s + a + 1.0) for s, a in pairs]


def test_the_capacity_is_a_tenth_of_the_buffer_and_the_oldest_leave():
    buffer = make(size=40)
    assert buffer.pool.capacity == 4
    for step in range(20):
        put(buffer, [step // 2], [0])
    assert {row[0] for row in rows(buffer.sample_pool(100))} == {6.0, 7.0, 8.0, 9.0}


def test_what_does_not_happen_again_leaves_at_max_age():
    buffer = make(max_age=20)
    for _ in range(2):
        put(buffer, [1], [0])
    for step in range(30):
        put(buffer, [2], [0])
        buffer.sample(4)
        assert (len(buffer.pool.rows([1])) and {row[0] for row in rows(buffer.sample_pool(50))} >= {2.0}) or step < 1
    assert {row[0] for row in rows(buffer.sample_pool(50))} == {2.0}


def test_a_whitelist_needs_no_count_and_is_still_contradicted():
    buffer = make(min_count=50, whitelist=lambda observations, actions: observations[:, 0] < 5)
    put(buffer, [1], [0])
    put(buffer, [7], [0])
    assert [row[0] for row in rows(buffer.sample_pool(3))] == [1.0] * 3
    put(buffer, [1], [0], rewards=[0.0])
    assert len(buffer.pool) == 0


def test_cells_make_neighbours_one_pair_once_their_statistics_are_frozen():
    buffer = make(cells=QuantisedCells(bins_per_std=1.0), start_after=10, epsilon=0.1)
    for step in range(10):
        put(buffer, [-1.0 if step % 2 else 1.0], [0], rewards=[0.0], next_states=[0.0])
    assert buffer.detector.n_observed == 0 and len(buffer.pool) == 0
    put(buffer, [0.05], [0], rewards=[0.0], next_states=[0.1])
    put(buffer, [-0.05], [0], rewards=[0.0], next_states=[-0.1])
    ((state, *_),) = rows(buffer.sample_pool(1))
    assert state == pytest.approx(-0.05)


def test_cells_have_statistics_of_one_step_at_least():
    buffer = make(cells=QuantisedCells(), start_after=1, n_envs=4, size=80)
    for _ in range(3):
        put(buffer, [1, 2, 3, 4], [0, 0, 0, 0])
    assert buffer.detector.n_observed == 8 and len(buffer.pool) == 4


def test_a_buffer_in_which_nothing_repeats_switches_itself_off_once(monkeypatch):
    monkeypatch.setattr(transition_watch, "TRIAL", 100)
    buffer = make(size=400, n_envs=2)
    for step in range(49):
        put(buffer, [2 * step, 2 * step + 1], [0, 0])
    with pytest.warns(UserWarning, match="switched itself off: of 100 transitions, 0 repeated"):
        put(buffer, [98, 99], [0, 0])
    assert not buffer.enabled
    for _ in range(60):
        put(buffer, [1, 1], [0, 0])
    assert len(buffer.sample(8).rewards) == 8 and len(buffer.pool) == 0


def test_a_buffer_in_which_enough_repeats_stays_on(monkeypatch):
    monkeypatch.setattr(transition_watch, "TRIAL", 100)
    buffer = make(size=400)
    for step in range(200):
        put(buffer, [step % 90], [0])
    assert buffer.enabled and buffer.statistics.hit_rate == pytest.approx(110 / 200)


# ---------------------------------------------------------------------- what is sampled


def known(n_envs=1, n_states=8, **kwargs):
    buffer = make(size=400, n_envs=n_envs, capacity=40, **kwargs)
    for step in range(4 * n_states):
        put(buffer, [step % n_states] * n_envs, [0] * n_envs)
    return buffer


def rising(n_added):
    return min(1.0, n_added / 8)


def falling(n_added):
    return max(0.0, 1.0 - n_added)


def of_the_progress(n_added):
    return 0.3 * n_added


@pytest.mark.parametrize(("ratio", "expected"), [(0.25, 4), (0.1, 2), (0.4, 6), (1.0, 8), (rising, 8), (falling, 0)])
def test_the_pool_gives_its_share_and_never_more_rows_than_it_has(ratio, expected):
    buffer = known(mix_ratio=ratio)
    reference = known(mix_ratio=0.0)
    np.random.seed(1)  # noqa: NPY002  # SB3 draws from the global generator
    batch = buffer.sample(16)
    assert len(batch.rewards) == 16 and buffer.statistics.share == expected / 16
    np.random.seed(1)  # noqa: NPY002  # as above
    stock = reference.sample(16 - expected)
    assert rows(batch)[: 16 - expected] == rows(stock)


def test_a_function_that_leaves_its_range_is_refused():
    with pytest.raises(ValueError, match=r"mix_ratio=.* must lie in \[0, 1\].*number of transitions"):
        known(mix_ratio=of_the_progress).sample(4)


def test_the_pool_is_filled_but_not_used_before_its_start():
    buffer = make(start_after=10)
    for step in range(20):
        put(buffer, [1], [0])
        buffer.sample(4)
        assert (buffer.statistics.share > 0) == (step >= 10)
        assert (len(buffer.pool) > 0) == (step >= 1)


def test_pooled_rows_are_drawn_evenly():
    buffer = known(n_states=4)
    counts = np.bincount(numbers(buffer.sample_pool(4_000).observations).astype(int), minlength=4)
    # Chi-square with 3 degrees of freedom: above 25 with probability 1e-5.
    assert ((counts - 1_000) ** 2 / 1_000).sum() < 25


@pytest.mark.parametrize("space", [OBS, spaces.Dict({"a": OBS})])
def test_pooled_rows_are_normalised_like_all_others(space):
    class Walk(gym.Env):
        observation_space = space
        action_space = ACTION

    venv = VecNormalize(DummyVecEnv([Walk]))
    rms = venv.obs_rms["a"] if isinstance(venv.obs_rms, dict) else venv.obs_rms
    rms.mean[:], rms.var[:], venv.ret_rms.var = 3.0, 4.0, 25.0
    buffer = make(space=space, mix_ratio=1.0)
    for _ in range(3):
        column = np.full((1, 1), 5.0, dtype=np.float32)
        obs, next_obs = ({"a": column}, {"a": column + 2}) if isinstance(space, spaces.Dict) else (column, column + 2)
        buffer.add(obs, next_obs, np.zeros(1), np.array([10.0]), np.zeros(1), [{}])
    pooled = buffer.sample_pool(1, venv)
    assert_same(pooled, buffer._get_samples(np.array([0]), env=venv))
    assert numbers(pooled.observations)[0] == pytest.approx(1.0) and pooled.rewards.item() == pytest.approx(2.0)
    assert numbers(buffer.sample_pool(1).observations)[0] == 5.0


def test_rows_of_n_steps_are_joined_with_pooled_ones_of_one_step():
    buffer = make(cls=ZeroVarianceNStepReplayBuffer, n_steps=3, gamma=0.5, mix_ratio=0.5)
    for step in range(30):
        put(buffer, [step % 8], [0])
    batch = buffer.sample(8)
    assert batch.discounts.shape == batch.rewards.shape == (8, 1)
    assert batch.discounts[4:].flatten().tolist() == [0.5] * 4
    assert (batch.next_observations[4:] - batch.observations[4:] == 1).all()


#: State, action, whether the outcome is another one, whether the episode is cut. A buffer of as many rows as there are pairs
#: of state and action, 8, forgets no evidence.
STEPS = st.tuples(st.integers(0, 3), st.integers(0, 1), st.sampled_from([0, 0, 0, 0, 1]), st.booleans())
OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["add"] * 4 + ["sample", "pickle"]), st.lists(STEPS, min_size=2, max_size=2)), max_size=50
)


@settings(max_examples=60, deadline=None)
@given(OPERATIONS, st.sampled_from(["fifo", "lru", "priority"]), st.sampled_from([OBS, DICT]), st.integers(8, 20))
def test_every_sampled_row_is_one_transition_that_was_added(operations, eviction, space, size):
    buffer = make(size, space, n_envs=2, capacity=3, eviction=eviction, mix_ratio=0.5, max_age=30)
    added, contradicted, outcome_of = set(), set(), {}
    for operation, pair in operations:
        if operation == "add":
            states, actions, others, cut = (list(column) for column in zip(*pair, strict=True))
            next_states = [s + a + 1 + 10 * o for s, a, o in zip(states, actions, others, strict=True)]
            rewards = [100.0 * s + 10 * a + o for s, a, o in zip(states, actions, others, strict=True)]
            put(buffer, states, actions, next_states, rewards, [float(one) for one in cut], cut)
            for s, a, n, r, o, was_cut in zip(states, actions, next_states, rewards, others, cut, strict=True):
                added.add((float(s), float(a), float(r), 0.0, float(n)))
                if not was_cut and outcome_of.setdefault((s, a), o) != o:
                    contradicted.add((float(s), float(a)))
        elif operation == "pickle":
            buffer = pickle.loads(pickle.dumps(buffer))
        elif added:
            assert set(rows(buffer.sample(6))) <= added
        if len(buffer.pool):
            pooled = set(rows(buffer.sample_pool(20)))
            assert pooled <= added and not {row[:2] for row in pooled} & contradicted


# ---------------------------------------------------------------------- the pool as a whole


def test_exported_transitions_are_copies_of_what_was_added():
    buffer = known(n_states=3)
    exported = list(buffer.export())
    assert [one["observations"].item() for one in exported] == [0.0, 1.0, 2.0]
    exported[0]["observations"][:] = 77.0
    assert {row[0] for row in rows(buffer.sample_pool(50))} == {0.0, 1.0, 2.0}


def test_buffers_of_two_processes_share_what_they_know():
    one, other = make(min_count=4), make(min_count=4)
    for _ in range(2):
        put(one, [1], [0])
        put(other, [1], [0])
    for _ in range(4):
        put(one, [2], [0])
        put(other, [2], [0], rewards=[0.0])
        put(other, [3], [0])
    one.merge_pool(other)
    assert [row[0] for row in rows(one.sample_pool(5))] == [3.0] * 5
    put(one, [1], [0])
    assert {row[0] for row in rows(one.sample_pool(50))} == {1.0, 3.0}


def test_what_the_receiver_has_contradicted_takes_no_room_in_its_pool():
    one, other = (make(min_count=1, capacity=3) for _ in range(2))
    for state in (11, 12, 13):
        put(one, [state], [0], rewards=[0.0])
        put(one, [state], [0], rewards=[1.0])
        put(other, [state], [0])
    for state in (1, 2, 3):
        put(one, [state], [0])
    one.merge_pool(other)
    assert {row[0] for row in rows(one.sample_pool(50))} == {1.0, 2.0, 3.0}


def test_merged_transitions_keep_their_ages_whichever_run_is_longer():
    for n_mine, n_theirs in ((0, 500), (500, 0)):
        one, other = (make(min_count=1, max_age=100) for _ in range(2))
        for buffer, n in ((one, n_mine), (other, n_theirs)):
            for step in range(n):
                put(buffer, [50], [0], rewards=[step])
        put(other, [1], [0])
        for _ in range(9):
            put(other, [50], [0])
        one.merge_pool(other)
        assert one.pool.ages(one.n_added).tolist() == [9]


@pytest.mark.parametrize("other", [{"min_count": 1}, {"epsilon": 0.5}])
def test_a_buffer_with_another_rule_of_promotion_is_refused(other):
    with pytest.raises(ValueError, match="must be the same"):
        known().merge_pool(make(**other))


def test_a_stop_is_never_stored_as_a_terminal_state():
    buffer = make(handle_timeout_termination=False)
    with pytest.raises(ValueError, match="handle_timeout_termination=False"):
        buffer.add(
            *(observe(OBS, [n]) for n in (1, 2)), np.zeros(1), np.zeros(1), np.ones(1), [{"sb3_budget": {"reason": "stopped"}}]
        )
    assert buffer.size() == 0


def test_an_n_step_buffer_needs_the_discount_factor():
    with pytest.raises(ValueError, match="gamma"):
        ZeroVarianceNStepReplayBuffer(8, OBS, ACTION, device="cpu", n_steps=3)


def test_a_buffer_of_other_observations_is_refused_and_nothing_is_counted():
    one, other = known(), make(space=DICT, min_count=1)
    put(other, [1], [0])
    before = one.statistics
    with pytest.raises(ValueError, match="cannot take over"):
        one.merge_pool(other)
    assert one.statistics == before


def test_a_reset_forgets_all():
    buffer = known()
    buffer.reset()
    assert buffer.statistics[:4] == (0, 0.0, 0, 0)


def test_a_file_with_a_full_pool_is_little_larger_than_stock():
    kinds = {"floats": spaces.Box(-np.inf, np.inf, (16,)), "image": spaces.Box(0, 255, (4, 84, 84), np.uint8)}
    for space in kinds.values():
        n = 40
        stock, ours = (cls(10 * n, space, ACTION, device="cpu") for cls in (ReplayBuffer, ZeroVarianceReplayBuffer))
        for step in range(5 * n):
            here, there = (np.full((1, *space.shape), place % 200, dtype=space.dtype) for place in (step // 5, step // 5 + 1))
            ours.add(here, there, np.zeros(1), np.zeros(1), np.zeros(1), [{}])
        assert len(ours.pool) == n
        # Up to what does not depend on the number of transitions.
        assert len(pickle.dumps(ours)) < 1.2 * len(pickle.dumps(stock)) + 4_000


def test_a_failing_draw_leaves_tensors_behind(monkeypatch):
    buffer = known()
    with monkeypatch.context() as patched:
        patched.setattr(buffer, "_get_samples", lambda *args, **kwargs: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            buffer.sample(8)
    assert all(isinstance(one, th.Tensor) for one in ReplayBuffer.sample(buffer, 8) if one is not None)


# ---------------------------------------------------------------------- algorithms


class Corridor(gym.Env):
    """Five cells; only the way to the right ends, with a reward of 1."""

    def __init__(self, kind="discrete"):
        self.kind = kind
        self.action_space = spaces.Box(-1.0, 1.0, (1,)) if kind == "continuous" else spaces.Discrete(2)
        image = spaces.Box(0, 255, (1, 36, 36), np.uint8)
        self.observation_space = {
            "discrete": spaces.Discrete(5),
            "continuous": spaces.Box(0.0, 5.0, (1,)),
            "image": image,
            "dict": spaces.Dict({"image": image, "cell": spaces.Discrete(5)}),
        }[kind]

    def observe(self):
        image = np.full((1, 36, 36), 50 * self.cell, dtype=np.uint8)
        return {
            "discrete": self.cell,
            "continuous": np.array([self.cell], dtype=np.float32),
            "image": image,
            "dict": {"image": image, "cell": self.cell},
        }[self.kind]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cell = 0
        return self.observe(), {}

    def step(self, action):
        right = np.asarray(action).item() > 0
        self.cell = min(self.cell + 1, 4) if right else max(self.cell - 1, 0)
        return self.observe(), float(self.cell == 4), self.cell == 4, False, {}


def corridor(kind="discrete", n_envs=2):
    return DummyVecEnv([lambda: TimeLimit(Corridor(kind), 20)] * n_envs)


POOLED = {"mix_ratio": 0.5, "start_after": 100, "min_count": 3}


@pytest.mark.parametrize("kind", ["discrete", "image", "dict"])
def test_dqn_learns_from_the_pool(kind):
    cls = ZeroVarianceDictReplayBuffer if kind == "dict" else ZeroVarianceReplayBuffer
    kwargs = {"policy_kwargs": {"net_arch": [8]}, "replay_buffer_class": cls, "replay_buffer_kwargs": POOLED}
    model = learn(corridor(kind), 300, train_freq=20, **kwargs)
    found = model.replay_buffer.statistics
    assert found.size >= 4 and found.stochastic == 0 and 0.0 < found.share <= 0.5 and found.hit_rate > 0.9
    assert all(np.isfinite(one).all() for one in parameters(model))


def test_other_discrete_algorithms_learn_from_the_pool():
    contrib = pytest.importorskip("sb3_contrib")
    kwargs = {"replay_buffer_class": ZeroVarianceReplayBuffer, "replay_buffer_kwargs": POOLED}
    model = learn(corridor(), 200, contrib.QRDQN, train_freq=20, **kwargs)
    assert model.replay_buffer.statistics.share > 0.0


def test_n_step_dqn_learns_from_the_pool():
    kwargs = {**POOLED, "n_steps": 3, "gamma": 0.99}
    model = learn(corridor(), 200, replay_buffer_class=ZeroVarianceNStepReplayBuffer, replay_buffer_kwargs=kwargs)
    assert model.replay_buffer.statistics.share > 0.0


@pytest.mark.parametrize("algorithm", [SAC, TD3, "TQC"])
def test_continuous_actions_repeat_in_cells(algorithm):
    if isinstance(algorithm, str):
        algorithm = getattr(pytest.importorskip("sb3_contrib"), algorithm)
    kwargs = {**POOLED, "cells": QuantisedCells(bins_per_std=2.0)}
    model = learn(
        corridor("continuous"),
        400,
        algorithm,
        train_freq=8,
        replay_buffer_class=ZeroVarianceReplayBuffer,
        replay_buffer_kwargs=kwargs,
    )
    found = model.replay_buffer.statistics
    assert found.size >= 2 and found.share > 0.0
    assert all(np.isfinite(one).all() for one in parameters(model))


def test_a_resumed_run_goes_on_as_the_one_that_was_saved(tmp_path):
    kwargs = {"replay_buffer_class": ZeroVarianceReplayBuffer, "replay_buffer_kwargs": POOLED}
    model = learn(corridor(), 300, **kwargs)
    model.save(tmp_path / "model")
    model.save_replay_buffer(tmp_path / "buffer")
    again = DQN.load(tmp_path / "model", env=corridor(), device="cpu")
    again.load_replay_buffer(tmp_path / "buffer")
    assert again.replay_buffer.statistics == model.replay_buffer.statistics
    for one in (model, again):
        one.set_random_seed(5)
        one.get_env().reset()
        one.learn(200)
    assert again.replay_buffer.statistics == model.replay_buffer.statistics
    assert equal_parameters(again, model)


# ---------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("kwargs", "match"),
    [
        ({"mix_ratio": 1.5}, "mix_ratio=1.5"),
        ({"mix_ratio": lambda n: -1.0}, "mix_ratio=-1"),
        ({"mix_ratio": LinearSchedule(0.0, 0.25, 0.5)}, "of the progress remaining"),
        ({"mix_ratio": FloatSchedule(LinearSchedule(0.25, 0.0, 1.0))}, "of the progress remaining"),
        ({"min_count": 0}, "min_count=0"),
        ({"epsilon": -1.0}, "epsilon=-1"),
        ({"capacity": 0}, "capacity=0"),
        ({"max_age": 0}, "max_age=0"),
        ({"start_after": -1}, "start_after=-1"),
        ({"start_after": 0, "cells": QuantisedCells()}, "start_after=0"),
        ({"mix_ratio": float("nan")}, "mix_ratio=nan"),
        ({"eviction": "random"}, "eviction='random'"),
        ({"optimize_memory_usage": True}, "optimize_memory_usage"),
        ({"n_steps": 3}, "ZeroVarianceNStepReplayBuffer"),
        ({"mix_ratio": "lin_0.25"}, "mix_ratio='lin_0.25'"),
        ({"cells": 3, "start_after": 1}, "cells=3"),
        ({"space": DICT, "cls": ZeroVarianceReplayBuffer}, "ZeroVarianceDictReplayBuffer"),
        ({"cls": ZeroVarianceDictReplayBuffer}, "ZeroVarianceReplayBuffer"),
    ],
)
def test_wrong_arguments_are_refused_with_the_fix(kwargs, match):
    with pytest.raises(ValueError, match=match):
        make(**kwargs)


def test_a_whitelist_of_another_length_is_refused():
    with pytest.raises(ValueError, match="2 slots, got 1"):
        put(make(n_envs=2, whitelist=lambda observations, actions: [True]), [1, 2], [0, 0])


def test_her_is_refused():
    class Both(ZeroVarianceBufferMixin, HerReplayBuffer):
        pass

    with pytest.raises(ValueError, match="HerReplayBuffer"):
        make(space=DICT, cls=Both, env=None)


def test_an_empty_pool_has_nothing_to_sample():
    with pytest.raises(ValueError, match="empty"):
        make().sample_pool(1)


@pytest.mark.gpu
@pytest.mark.skipif(not th.cuda.is_available(), reason="needs a CUDA device")
def test_dqn_learns_from_the_pool_on_a_gpu():
    model = learn(corridor(), 300, device="cuda", replay_buffer_class=ZeroVarianceReplayBuffer, replay_buffer_kwargs=POOLED)
    assert model.replay_buffer.sample(16).rewards.device.type == "cuda" and model.replay_buffer.statistics.share > 0.0
