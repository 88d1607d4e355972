"""Verification promotes and contradicts before a pair comes again, pays for it, and leaves the training alone."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit
from stable_baselines3 import DQN, PPO, SAC
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnvWrapper, VecFrameStack, VecNormalize

from sb3_budget import (
    ActiveVerificationCallback,
    CriticRecyclingCallback,
    EpisodeControlVecEnv,
    StateWrapper,
    ZeroVarianceReplayBuffer,
)
from sb3_budget.core.cells import QuantisedCells

#: 8 steps to get somewhere, 8 that are repeated, 3 elsewhere, and 8 again.
STEPS_OF_A_CHECK = 19 + 8


def lake(slippery=False, n_envs=2, wrapper=lambda env: env, venv=DummyVecEnv):
    make = lambda: wrapper(gym.make("FrozenLake-v1", is_slippery=slippery))  # noqa: E731  # one for each slot
    return EpisodeControlVecEnv(venv([make] * n_envs), seed=0)


def dqn(env=None, buffer=None, algorithm=DQN, **kwargs):
    settings = {"learning_starts": 50, "train_freq": 8, "batch_size": 16, "buffer_size": 500, "seed": 3, "device": "cpu"}
    settings |= {"policy_kwargs": {"net_arch": [8]}, "replay_buffer_class": ZeroVarianceReplayBuffer}
    settings["replay_buffer_kwargs"] = {"start_after": 0, "min_count": 5, **(buffer or {})}
    return algorithm("MlpPolicy", lake() if env is None else env, **settings | kwargs)


def same_parameters(one, other):
    pairs = zip(one.policy.parameters(), other.policy.parameters(), strict=True)
    return all(th.equal(a, b) for a, b in pairs)


def test_a_lake_that_does_not_slip_is_known_after_far_fewer_visits():
    plain, verified = dqn().learn(112), dqn()
    verification = ActiveVerificationCallback(lake(n_envs=4), verify_share=1.0)
    verified.learn(112, callback=verification)
    few, many = plain.replay_buffer.detector, verified.replay_buffer.detector
    assert many.n_promoted >= 2 * few.n_promoted > 0
    assert many.n_observed == few.n_observed == 112 and many.n_stochastic == 0
    assert verification.n_promoted > 0 and verification.n_contradicted == 0
    # What was promoted at its first visit is in the pool as training has seen it.
    table = gym.make("FrozenLake-v1", is_slippery=False).unwrapped.P
    taken = verified.replay_buffer.pool.take(np.arange(len(verified.replay_buffer.pool)))
    assert len(taken["rewards"]) == many.n_promoted
    for row in range(len(taken["rewards"])):
        ((_, following, reward, ended),) = table[taken["observations"][row, 0]][taken["actions"][row, 0]]
        found = taken["next_observations"][row, 0], taken["rewards"][row], bool(taken["dones"][row])
        assert found == (following, reward, ended)


def test_a_slippery_lake_is_contradicted_and_never_pooled_for_long():
    plain, verified = dqn(lake(True), learning_starts=500).learn(48), dqn(lake(True), learning_starts=500)
    verification = ActiveVerificationCallback(lake(True, n_envs=4), verify_share=1.0)
    verified.learn(48, callback=verification)
    few, many = plain.replay_buffer.detector, verified.replay_buffer.detector
    assert many.n_stochastic > few.n_stochastic > 0 and many.n_candidates < few.n_candidates
    assert verification.n_contradicted > 3 * verification.n_promoted


def test_steps_are_in_the_ledger_and_keep_to_their_share():
    # Random actions, so that there is always something to find out.
    model, verify_env = dqn(learning_starts=500), lake(n_envs=4)
    verification = ActiveVerificationCallback(verify_env, verify_share=0.2)
    model.learn(208, callback=verification)
    ledger = model.get_env().ledger
    # One verification is 4 steps, begun as soon as there is credit for it.
    assert 20 <= verification.n_steps <= 0.2 * 208 and verification.n_steps == verify_env.ledger.total_steps
    # The first state that is saved in a process is checked, which takes steps too.
    assert ledger.verification_steps - verification.n_steps in (0, STEPS_OF_A_CHECK)
    assert ledger.learning_steps == 208 and ledger.total_steps == 208 + ledger.verification_steps
    assert model.logger.name_to_value["budget/verify_steps"] == verification.n_steps
    assert model.logger.name_to_value["budget/verify_promoted"] == verification.n_promoted > 0
    assert model.logger.name_to_value["budget/verify_contradicted"] == 0


@pytest.mark.parametrize(("share", "mix_ratio"), [(0.0, 0.5), (1.0, 0.0)])
def test_the_training_goes_on_as_if_nothing_had_happened_but_for_the_pool(share, mix_ratio):
    kwargs = {"mix_ratio": mix_ratio}
    verified = dqn(buffer=kwargs)
    verified.learn(200, callback=ActiveVerificationCallback(lake(n_envs=4), verify_share=share))
    assert same_parameters(verified, dqn(buffer=kwargs).learn(200))
    if share == 0.0:
        assert verified.get_env().ledger.verification_steps < 100


def test_it_verifies_for_a_critic_in_any_order_of_callbacks():
    def run(order):
        recycling = CriticRecyclingCallback(min_count=5)
        verification = ActiveVerificationCallback(lake(n_envs=4), recycling, verify_share=1.0)
        model = PPO("MlpPolicy", lake(), n_steps=32, batch_size=32, n_epochs=1, seed=3, device="cpu")
        callbacks = [recycling, verification] if verifies else [recycling]
        model.learn(64, callback=callbacks[::order])
        return len(recycling.watch.pool), recycling.watch.detector.n_observed

    verifies = True
    with_it, against = run(1), run(-1)
    verifies = False
    without = run(1)
    assert with_it == against and with_it[0] > 2 * without[0] and with_it[1] == without[1] == 64


class Noisy(gym.Env):
    """A point that goes where it is pushed, with noise of the given size. An action beyond 1 counts as 1."""

    observation_space = spaces.Box(-10.0, 10.0, (1,))
    action_space = spaces.Box(-2.0, 2.0, (1,))

    def __init__(self, noise):
        self.noise = noise

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0.0
        return np.zeros(1, dtype=np.float32), {}

    def step(self, action):
        self.place += float(action[0]) + self.noise * self.np_random.normal()
        return np.array([self.place], dtype=np.float32), float(action[0]), abs(self.place) > 5.0, False, {}


def point(noise, n_envs=2):
    return EpisodeControlVecEnv(DummyVecEnv([lambda: TimeLimit(Noisy(noise), 10)] * n_envs), seed=0)


@pytest.mark.parametrize("noise", [0.0, 0.1])
@pytest.mark.parametrize("on_policy", [False, True])
def test_continuous_actions_are_repeated_as_they_were_given(noise, on_policy):
    verify_env = point(noise, 4)
    recycling = CriticRecyclingCallback(batch_size=8) if on_policy else None
    verification = ActiveVerificationCallback(verify_env, recycling, verify_share=1.0)
    if on_policy:
        policy_kwargs = {"net_arch": [8], "log_std_init": 1.0}
        model = PPO("MlpPolicy", VecNormalize(point(noise)), n_steps=32, batch_size=32, seed=0, policy_kwargs=policy_kwargs)
        watch_of = lambda: recycling.watch  # noqa: E731  # it comes with the training
        callbacks = [recycling, verification]
    else:
        model = dqn(point(noise), algorithm=SAC)
        watch_of, callbacks = (lambda: model.replay_buffer.watch), [verification]
    model.learn(128, callback=callbacks)
    watch = watch_of()
    assert watch.detector.n_hits < 10
    if noise:
        # Nobody goes on from where an episode terminated, so that noise there is none.
        assert verification.n_contradicted > 10 and watch.pool.take(np.arange(len(watch.pool)))["dones"].all()
    else:
        assert verification.n_promoted > 10 and verification.n_contradicted == 0
        assert len(watch.pool) > 5


@pytest.mark.parametrize("algorithm", [SAC, PPO])
def test_actions_of_several_dimensions_are_repeated_as_they_were_given(algorithm):
    class Square(Noisy):
        action_space = spaces.Box(-2.0, 1.0, (2, 2))

        def step(self, action):
            assert self.action_space.contains(action)
            return super().step(action[1, :1])

    def square(n_envs=2):
        return EpisodeControlVecEnv(DummyVecEnv([lambda: TimeLimit(Square(0.0), 10)] * n_envs), seed=0)

    recycling = CriticRecyclingCallback(batch_size=8) if algorithm is PPO else None
    verification = ActiveVerificationCallback(square(4), recycling, verify_share=1.0)
    if algorithm is PPO:
        PPO("MlpPolicy", square(), n_steps=32, batch_size=32, seed=0).learn(64, callback=[recycling, verification])
    else:
        dqn(square(), algorithm=SAC).learn(64, callback=verification)
    assert verification.n_promoted > 5 and verification.n_contradicted == 0


def test_in_other_processes_states_come_through_a_state_wrapper():
    model = dqn(lake(wrapper=StateWrapper, venv=SubprocVecEnv))
    verification = ActiveVerificationCallback(lake(n_envs=4, wrapper=StateWrapper), verify_share=1.0)
    model.learn(60, callback=verification)
    model.get_env().close()
    assert verification.n_promoted > 3 and verification.n_contradicted == 0


def test_where_all_actions_are_settled_no_state_is_saved(monkeypatch):
    model = dqn(buffer={"whitelist": lambda observations, actions: np.ones(len(actions), dtype=bool)})
    saved, original = [], EpisodeControlVecEnv.get_states
    monkeypatch.setattr(EpisodeControlVecEnv, "get_states", lambda self, slots: saved.extend(slots) or original(self, slots))
    verification = ActiveVerificationCallback(lake(n_envs=4), verify_share=1.0)
    model.learn(400, callback=verification)
    before = len(saved)
    assert before > 10 and verification.n_steps == 0
    watch = model.replay_buffer.watch
    pairs = np.indices((16, 4)).reshape(2, -1, 1)
    columns = {"observations": pairs[0], "next_observations": pairs[0], "actions": pairs[1]}
    columns |= {"rewards": np.zeros(64), "dones": np.zeros(64)}
    watch.add(columns, [False] * 64, 400)
    saved.clear()
    assert verification._credit > 4.0 and verification._hold() == {} and saved == []


def test_counts_and_credit_survive(tmp_path):
    verification = ActiveVerificationCallback(lake(n_envs=4), verify_share=0.5)
    model = dqn().learn(60, callback=verification)
    verification.save(tmp_path / "verification")
    again = ActiveVerificationCallback(lake(n_envs=4), verify_share=0.5)
    again.load(tmp_path / "verification")
    assert again.n_steps == verification.n_steps > 0 and again._credit == verification._credit
    assert again._rng.random() == verification._rng.random()
    assert model.replay_buffer.watch.listener is None


def mixed(**kwargs):
    return PPO("MlpPolicy", lake(), n_steps=32, batch_size=32, device="cpu", **kwargs)


class Untouchable(gym.Env):
    """Its file cannot be saved."""

    observation_space = spaces.Discrete(2)
    action_space = spaces.Discrete(2)

    def __init__(self):
        self.lock = open("/dev/null")  # held as long as the environment

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        return 0, 0.0, False, False, {}

    def close(self):
        self.lock.close()


class TenfoldRewards(VecEnvWrapper):
    def reset(self):
        return self.venv.reset()

    def step_wait(self):
        observations, rewards, dones, infos = self.venv.step_wait()
        return observations, 10.0 * rewards, dones, infos


def test_what_cannot_work_is_refused_before_training():
    with pytest.raises(ValueError, match=r"verify_env must be an EpisodeControlVecEnv\(make_vec_env"):
        ActiveVerificationCallback(VecNormalize(lake(), norm_obs=False))
    with pytest.raises(ValueError, match=r"verify_share=1\.5"):
        ActiveVerificationCallback(lake(), verify_share=1.5)
    with pytest.raises(ValueError, match="nothing to verify for in this PPO"):
        mixed().learn(10, callback=ActiveVerificationCallback(lake()))
    with pytest.raises(ValueError, match=r"learn\(callback=\[recycling, verification\]\)"):
        mixed().learn(10, callback=ActiveVerificationCallback(lake(), CriticRecyclingCallback()))
    with pytest.raises(ValueError, match="put EpisodeControlVecEnv around the base VecEnv"):
        bare = DummyVecEnv([lambda: gym.make("FrozenLake-v1")])
        dqn(bare).learn(10, callback=ActiveVerificationCallback(lake()))
    env = lake()
    with pytest.raises(ValueError, match="verify_env is the environment that is trained on"):
        dqn(env).learn(8, callback=ActiveVerificationCallback(env))
    with pytest.raises(ValueError, match="verify_env has the observations"):
        dqn().learn(10, callback=ActiveVerificationCallback(point(0.0)))
    with pytest.raises(ValueError, match="lack what VecFrameStack does"):
        dqn(VecFrameStack(point(0.0), 2), algorithm=SAC).learn(10, callback=ActiveVerificationCallback(point(0.0)))
    with pytest.raises(ValueError, match="nothing to do with min_count=1"):
        dqn(lake(), buffer={"min_count": 1}).learn(10, callback=ActiveVerificationCallback(lake()))
    with pytest.raises(ValueError, match="Two ActiveVerificationCallback"):
        dqn(lake()).learn(10, callback=[ActiveVerificationCallback(lake()), ActiveVerificationCallback(lake())])
    # Outcomes without what it does would contradict all that training sees.
    with pytest.raises(ValueError, match="lack what TenfoldRewards does"):
        dqn(TenfoldRewards(lake())).learn(10, callback=ActiveVerificationCallback(lake()))


def test_an_environment_whose_states_cannot_be_saved_is_refused_with_advice():
    def make():
        return EpisodeControlVecEnv(DummyVecEnv([Untouchable]))

    training, verify = make(), make()
    with pytest.raises(ValueError, match=r"cannot do its work here: .*register_adapter.*whitelist= names"):
        dqn(training).learn(10, callback=ActiveVerificationCallback(verify))
    for env in (training, verify):
        env.close()
    with pytest.raises(ValueError, match=r"cannot do its work here: States in a SubprocVecEnv need a StateWrapper"):
        model = dqn(lake(venv=SubprocVecEnv))
        try:
            model.learn(10, callback=ActiveVerificationCallback(lake()))
        finally:
            model.get_env().close()


def test_cells_are_verified_once_they_are_frozen():
    model = dqn(
        point(0.0), buffer={"cells": QuantisedCells(bins_per_std=2.0), "start_after": 20, "epsilon": 4.0}, algorithm=SAC
    )
    verification = ActiveVerificationCallback(point(0.0, 4), verify_share=1.0)
    model.learn(100, callback=verification)
    assert verification.n_promoted > 3 and verification.n_contradicted == 0


def test_a_training_that_was_broken_off_verifies_nothing_in_the_next():
    class Interrupt(BaseCallback):
        def _on_step(self):
            if self.num_timesteps >= 300:
                raise KeyboardInterrupt
            return True

    model = dqn()
    verification = ActiveVerificationCallback(lake())
    with pytest.raises(KeyboardInterrupt):
        model.learn(2000, callback=[verification, Interrupt()])
    assert verification.n_steps > 0
    before = verification.n_steps
    model.learn(300)
    assert verification.n_steps == before and model.replay_buffer.watch.listener is None
