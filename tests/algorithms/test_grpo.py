"""GRPO is PPO on groups with equal starts: what they share is taken off, and nothing else changes."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback, EvalCallback, StopTrainingOnMaxEpisodes
from stable_baselines3.common.env_util import make_atari_env, make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecMonitor, VecNormalize

from sb3_budget import (
    GRPO,
    DiscardRule,
    EnsembleActorCriticPolicy,
    EpisodeControlVecEnv,
    GroupDictRolloutBuffer,
    GroupRolloutBuffer,
    RandomGate,
    SelectiveRolloutCallback,
    StaggeredResetVecEnv,
    Start,
    StartPool,
    ThreadVecEnv,
)
from sb3_budget.vec_env.group_starts import GroupStarts

SMALL = {"n_steps": 32, "batch_size": 64, "n_epochs": 2, "seed": 0, "device": "cpu", "policy_kwargs": {"net_arch": [8]}}


class Context(gym.Env):
    """Every reset draws an offset of the reward that no observation shows; episodes have lengths of their own."""

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, seeded: bool = True):
        self.seeded = seeded

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        rng = self.np_random if self.seeded else np.random.default_rng()
        self.offset, self.place, self.steps = 10.0 * rng.normal(), rng.uniform(-0.5, 0.5), 0
        return self._observe(), {}

    def _observe(self):
        return np.array([self.place, 0.01 * self.steps], dtype=np.float32)

    def step(self, action):
        self.steps += 1
        self.place += 0.01 * (2 * action - 1)
        terminated = bool(self.np_random.random() < 0.05)
        return self._observe(), self.offset + self.place, terminated, self.steps == 20, {}


def contexts(n_envs=8, vec_env_cls=DummyVecEnv, **kwargs):
    return make_vec_env(Context, n_envs, seed=0, vec_env_cls=vec_env_cls, env_kwargs=kwargs)


class Recorder(BaseCallback):
    """Copies of what the buffer holds at the end of each rollout, and of what is logged."""

    def __init__(self):
        super().__init__()
        self.rollouts, self.logs, self.starts = [], [], []

    def _on_step(self):
        self.starts += [info["sb3_budget"]["start_id"] for info in self.locals["infos"] if "sb3_budget" in info]
        return True

    def _on_rollout_end(self):
        buffer = self.model.rollout_buffer
        names = ("observations", "advantages", "returns", "values", "episodes", "times", "episode_starts")
        self.rollouts.append({name: getattr(buffer, name).copy() for name in names})

    def _on_rollout_start(self):
        self.logs.append(dict(self.logger.name_to_value))


def parameters(model):
    return th.cat([parameter.detach().flatten() for parameter in model.policy.parameters()]).numpy()


def test_a_group_of_one_is_ppo():
    venv = EpisodeControlVecEnv(contexts(4))
    ours = GRPO("MlpPolicy", venv, group_size=1, **SMALL).learn(512)
    control = EpisodeControlVecEnv(contexts(4))
    stock = PPO("MlpPolicy", control, **SMALL)
    control.set_start_sampler(GroupStarts(4, 1, ours._starts.seed))
    np.testing.assert_array_equal(parameters(ours), parameters(stock.learn(512)))
    # What is less the mean of a group is less that of the slot then.
    alone = GRPO("MlpPolicy", contexts(4), group_size=1, advantage="gae", **SMALL).learn(128)
    np.testing.assert_allclose(alone.rollout_buffer.advantages.mean(), 0.0, atol=1e-5)


def test_members_begin_alike_in_every_episode_however_long_they_are():
    recorder = Recorder()
    GRPO("MlpPolicy", contexts(8), group_size=4, **SMALL).learn(2048, callback=recorder)
    assert_one_start_per_episode(recorder.rollouts, group_size=4)
    assert {group for group, _ in recorder.starts} == {0, 1}


def test_what_a_group_shares_is_taken_off_and_the_critic_keeps_its_targets():
    ours, plain = Recorder(), Recorder()
    GRPO("MlpPolicy", contexts(8), group_size=4, **SMALL).learn(256, callback=ours)
    GRPO("MlpPolicy", contexts(8), group_size=4, advantage="gae", **SMALL).learn(256, callback=plain)
    first, other = ours.rollouts[0], plain.rollouts[0]
    np.testing.assert_array_equal(first["returns"], other["returns"])
    gae = first["returns"] - first["values"]
    assert np.abs(first["advantages"]).mean() < 0.7 * np.abs(gae).mean()


def test_the_coefficient_and_the_peers_are_logged():
    recorder = Recorder()
    GRPO("MlpPolicy", contexts(8), group_size=4, **SMALL).learn(1024, callback=recorder, log_interval=1000)
    logged = recorder.logs[-1]
    assert logged["budget/group_coefficient"] > 0.5
    assert 0.5 < logged["budget/group_peers"] <= 3.0


@pytest.mark.parametrize("vec_env_cls", [SubprocVecEnv, ThreadVecEnv])
def test_kinds_of_vec_env_make_no_difference(vec_env_cls):
    expected = GRPO("MlpPolicy", contexts(4), group_size=2, **SMALL).learn(256)
    model = GRPO("MlpPolicy", contexts(4, vec_env_cls), group_size=2, **SMALL).learn(256)
    np.testing.assert_array_equal(parameters(model), parameters(expected))
    model.get_env().close()


def test_with_equal_seeds_runs_are_equal():
    runs = [parameters(GRPO("MlpPolicy", contexts(4), group_size=2, **SMALL).learn(512)) for _ in range(2)]
    np.testing.assert_array_equal(*runs)


def test_it_can_be_saved_and_goes_on_with_new_starts(tmp_path):
    recorder = Recorder()
    model = GRPO("MlpPolicy", contexts(4), group_size=2, **SMALL).learn(512, callback=recorder)
    model.save(tmp_path / "model")
    loaded = GRPO.load(tmp_path / "model", env=contexts(4))
    np.testing.assert_array_equal(parameters(loaded), parameters(model))
    assert (loaded.group_size, loaded.advantage) == (2, "residual")
    later = Recorder()
    loaded.learn(512, reset_num_timesteps=False, callback=later)
    assert set(recorder.starts).isdisjoint(later.starts)
    first = later.rollouts[0]
    np.testing.assert_array_equal(first["observations"][0, ::2], first["observations"][0, 1::2])
    assert loaded.num_timesteps == 1024


def test_a_second_training_puts_members_together_again():
    model = GRPO("MlpPolicy", contexts(4), group_size=4, **SMALL)
    model.learn(300)
    assert len(set(model._starts.episodes.tolist())) > 1
    recorder = Recorder()
    model.learn(128, callback=recorder)
    assert len(set(recorder.rollouts[0]["episodes"][0].tolist())) == 1
    assert (recorder.rollouts[0]["observations"][0] == recorder.rollouts[0]["observations"][0, 0]).all()


class Levels(Context):
    """Options say where an episode begins, and the seed what nobody sees."""

    def reset(self, *, seed=None, options=None):
        _, info = super().reset(seed=seed)
        if options:
            self.place = options["place"]
        return self._observe(), info

    def step(self, action):
        *outcome, info = super().step(action)
        return (*outcome, {**info, "offset": self.offset})


def test_starts_may_follow_a_rule_and_share_what_their_seed_decides():
    asked = []

    def rule(group, episode, rng):
        asked.append((group, episode))
        return Start(f"level {group}", options={"place": 0.1 * group})

    recorder, offsets = Recorder(), {}

    class Offsets(BaseCallback):
        def _on_step(self):
            episodes, _ = self.model._starts.before(self.locals["dones"])
            for slot, info in enumerate(self.locals["infos"]):
                offsets.setdefault((slot // 2, int(episodes[slot])), set()).add(info["offset"])
            return True

    model = GRPO("MlpPolicy", make_vec_env(Levels, 4, seed=0), group_size=2, start_rule=rule, **SMALL)
    model.learn(1024, callback=[recorder, Offsets()])
    assert set(recorder.starts) == {"level 0", "level 1"}
    np.testing.assert_allclose(recorder.rollouts[0]["observations"][0, :, 0], [0.0, 0.0, 0.1, 0.1])
    assert len(offsets) > 20 and all(len(found) == 1 for found in offsets.values())
    assert len(set.union(*offsets.values())) == len(offsets)
    assert len(asked) == len(set(asked))


def test_a_rule_that_changes_its_mind_gives_all_members_one_start():
    counter = iter(range(10**6))
    recorder = Recorder()
    model = GRPO("MlpPolicy", contexts(4), group_size=4, start_rule=lambda g, e, rng: Start(e, seed=next(counter)), **SMALL)
    model.learn(1024, callback=recorder)
    assert_one_start_per_episode(recorder.rollouts, group_size=4)


def assert_one_start_per_episode(rollouts, group_size):
    starts: dict[tuple[int, int], set] = {}
    for rollout in rollouts:
        for row, slot in np.argwhere(rollout["episode_starts"] > 0):
            place = (int(slot) // group_size, int(rollout["episodes"][row, slot]))
            starts.setdefault(place, set()).add(rollout["observations"][row, slot].tobytes())
            assert rollout["times"][row, slot] == 0
    assert all(len(observations) == 1 for observations in starts.values())
    assert len(set.union(*starts.values())) == len(starts) > 10


def test_after_a_callback_has_ended_a_training_rows_still_find_their_episode():
    recorder = Recorder()
    model = GRPO("MlpPolicy", contexts(4), group_size=4, **SMALL)
    model.learn(10**5, callback=[recorder, StopTrainingOnMaxEpisodes(7)])
    for _ in range(3):
        model.learn(256, callback=recorder, reset_num_timesteps=False)
    assert_one_start_per_episode(recorder.rollouts, group_size=4)


def test_after_a_callback_has_ended_a_training_rows_know_their_age():
    class Break(BaseCallback):
        """Ends the training at the step after an end of slot 0."""

        def _on_training_start(self):
            self.ended = False

        def _on_step(self):
            ended, self.ended = self.ended, bool(self.locals["dones"][0]) and self.num_timesteps > 100
            return not ended

    model = GRPO("MlpPolicy", contexts(4), group_size=4, advantage="outcome", **SMALL)
    model.learn(10**5, callback=Break())
    assert (model._control.ages > 0).any()
    ages, times, add = [], [], model.rollout_buffer.add

    def noted(*args):
        add(*args)
        times.append(model.rollout_buffer.times[model.rollout_buffer.pos - 1].copy())
        ages.append(model._control.ages.copy())

    model.rollout_buffer.add = noted
    model.learn(64, reset_num_timesteps=False)
    # The step that a row is of has made its slot one older, or has ended the episode.
    np.testing.assert_array_equal(np.where(np.array(ages) > 0, np.array(ages) - 1, np.array(times)), np.array(times))


def test_it_works_under_normalisation_with_a_gate_and_an_ensemble():
    venv = VecNormalize(EpisodeControlVecEnv(make_vec_env("Pendulum-v1", 8, seed=0)))
    arguments = {**SMALL, "batch_size": 128}
    model = GRPO("EnsembleMlpPolicy", venv, group_size=4, **arguments)
    gate = SelectiveRolloutCallback(0.4, warmup=0)
    model.learn(8 * 32 * 8, callback=gate)
    assert isinstance(model.policy, EnsembleActorCriticPolicy)
    assert gate.n_stops > 0 and np.isfinite(parameters(model)).all()


class Named(Context):
    """The same with two observations."""

    observation_space = spaces.Dict({"a": Context.observation_space, "b": Context.observation_space})

    def _observe(self):
        return {"a": super()._observe(), "b": -super()._observe()}


def test_dict_observations():
    model = GRPO("MultiInputPolicy", make_vec_env(Named, 4, seed=0), group_size=2, **SMALL).learn(128)
    assert isinstance(model.rollout_buffer, GroupDictRolloutBuffer)


def test_a_single_env_is_wrapped():
    model = GRPO("MlpPolicy", Context(), group_size=1, **{**SMALL, "batch_size": 32}).learn(64)
    assert isinstance(model.get_env(), EpisodeControlVecEnv)


def test_a_loaded_model_can_have_other_groups_or_none(tmp_path):
    GRPO("MlpPolicy", contexts(4), group_size=2, **SMALL).learn(128).save(tmp_path / "model")
    recorder = Recorder()
    wider = GRPO.load(tmp_path / "model", env=contexts(8), group_size=4)
    wider.learn(256, callback=recorder, reset_num_timesteps=False)
    assert wider.rollout_buffer.group_size == 4
    first = recorder.rollouts[0]["observations"][0].reshape(2, 4, -1)
    assert (first == first[:, :1]).all()
    assert GRPO.load(tmp_path / "model", env=contexts(4), advantage="gae").rollout_buffer.advantage == "gae"
    watching = GRPO.load(tmp_path / "model", env=contexts(1))
    assert watching.predict(watching.get_env().reset())[0].shape == (1,)
    with pytest.raises(ValueError, match="n_envs=1 must be a multiple of group_size=2"):
        watching.learn(32)


def test_a_new_env_is_seeded_with_the_model():
    def run():
        model = GRPO("MlpPolicy", contexts(4), group_size=2, **SMALL)
        model.set_env(contexts(4))
        return parameters(model.learn(256))

    np.testing.assert_array_equal(run(), run())


def test_evaluation_in_the_same_wrappers():
    venv = VecNormalize(EpisodeControlVecEnv(contexts(4)))
    evaluation = VecNormalize(EpisodeControlVecEnv(contexts(1), enabled=False), training=False)
    callback = EvalCallback(evaluation, eval_freq=32, n_eval_episodes=2, verbose=0)
    GRPO("MlpPolicy", venv, group_size=2, **SMALL).learn(256, callback=callback)
    assert np.isfinite(callback.last_mean_reward)


class Picture(Context):
    observation_space = spaces.Box(0, 255, (36, 36, 1), np.uint8)
    action_space = spaces.MultiDiscrete([2, 3])

    def _observe(self):
        return np.full((36, 36, 1), int(100 + 100 * self.place), dtype=np.uint8)

    def step(self, action):
        return super().step(int(action[0]))


def test_images_and_several_discrete_actions():
    arguments = {**SMALL, "policy_kwargs": {"net_arch": [4], "features_extractor_kwargs": {"features_dim": 8}}}
    model = GRPO("CnnPolicy", make_vec_env(Picture, 4, seed=0), group_size=2, **arguments).learn(128)
    assert np.isfinite(parameters(model)).all()


def test_games_of_one_life_are_refused():
    pytest.importorskip("ale_py")
    pytest.importorskip("cv2")
    venv = make_atari_env("ALE/Breakout-v5", n_envs=2, env_kwargs={"frameskip": 1})
    model = GRPO("CnnPolicy", venv, group_size=2, **{**SMALL, "policy_kwargs": None})
    with pytest.raises(ValueError, match="no second life is ever played"):
        model.learn(64)


def test_misuse_is_refused():
    with pytest.raises(ValueError, match="n_envs=6 must be a multiple of group_size=4"):
        GRPO("MlpPolicy", contexts(6), **SMALL)
    with pytest.raises(ValueError, match=r"write VecMonitor\(EpisodeControlVecEnv\(venv\)\)"):
        GRPO("MlpPolicy", VecMonitor(DummyVecEnv([Context] * 4)), **SMALL)
    with pytest.raises(ValueError, match="RolloutBuffer knows no groups with advantage='residual': use GroupRolloutBuffer"):
        GRPO("MlpPolicy", contexts(4), rollout_buffer_class=RolloutBuffer, **SMALL)
    with pytest.raises(ValueError, match="advantage='best' is not one of 'residual', 'gae', 'outcome', 'return_to_go'"):
        GRPO("MlpPolicy", contexts(4), advantage="best", **SMALL)
    model = GRPO("MlpPolicy", contexts(4, seeded=False), **SMALL)
    for again in (True, False):
        with pytest.raises(ValueError, match="does not honour"):
            model.learn(128, reset_num_timesteps=again)
    with pytest.raises(ValueError, match="StaggeredResetVecEnv shifts slots: use EpisodeControlVecEnv"):
        GRPO("MlpPolicy", StaggeredResetVecEnv(contexts(4), horizon=20), **SMALL)
    with pytest.raises(ValueError, match="enabled=False"):
        GRPO("MlpPolicy", EpisodeControlVecEnv(contexts(4), enabled=False), **SMALL)
    with pytest.raises(ValueError, match="advantage of the buffer are arguments of GRPO itself"):
        GRPO("MlpPolicy", contexts(4), rollout_buffer_kwargs={"advantage": "gae"}, **SMALL)
    for arguments, message in (
        ({"group_size": 1, "start_rule": StartPool(4)}, "group_size is 1"),
        ({"beta": float("nan")}, "beta=nan"),
        ({"zero_tolerance": float("inf")}, "zero_tolerance=inf"),
        ({"remember_peers": 2.5}, "remember_peers=2.5 must be a number"),
        ({"clip_range_high": -0.5}, "clip_range_high=-0.5"),
    ):
        with pytest.raises(ValueError, match=message):
            GRPO("MlpPolicy", contexts(4), **arguments, **SMALL)
    with pytest.raises(ValueError, match="use GroupDictRolloutBuffer"):
        GroupRolloutBuffer(8, Named.observation_space, spaces.Discrete(2), n_envs=4)


class Doors(gym.Env):
    """The seed decides which of four doors is open; opening it pays 1 and ends the episode, and so does giving up."""

    observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.door, self.steps = int(self.np_random.integers(4)), 0
        return np.zeros(1, dtype=np.float32), {}

    def step(self, action):
        self.steps += 1
        opened = action == self.door
        return np.zeros(1, dtype=np.float32), float(opened), opened, self.steps == 3, {}


def test_a_pool_learns_from_groups_and_leaves_out_those_without_a_spread(tmp_path):
    pool = StartPool(20, rule=DiscardRule(max_discarded=1.0), seed=0)
    venv = make_vec_env(Doors, 8, seed=0)

    model = GRPO("MlpPolicy", venv, group_size=4, start_rule=pool, **SMALL)
    buffer, left_out, flat = model.rollout_buffer, [], set()
    leave_out = buffer.leave_out

    def recorded(pairs):
        flat.update((g.group, g.episode) for g in buffer.finished if np.ptp(g.returns) == 0)
        left_out.extend(pairs := list(pairs))
        leave_out(pairs)
        for group, episode in pairs:
            rows = (buffer.episodes == episode) & (np.arange(8) // 4 == group)
            assert rows.any() and (buffer.weights[rows] == 0).all()

    buffer.leave_out = recorded
    model.learn(2048)
    assert left_out and set(left_out) == flat
    assert pool.entries.visits.sum() > 100 and pool.entries.visits.max() > pool.entries.visits.min() >= 1
    assert model.logger.name_to_value["budget/pool_zero_variance"] >= 0.0
    model.save(tmp_path / "model")
    loaded = GRPO.load(tmp_path / "model", env=make_vec_env(Doors, 8, seed=0))
    np.testing.assert_array_equal(loaded.start_rule.entries.visits, pool.entries.visits)
    loaded.learn(512, reset_num_timesteps=False)
    assert loaded.start_rule.entries.visits.sum() > pool.entries.visits.sum()


def test_a_pool_that_hears_of_few_groups_says_so():
    model = GRPO("MlpPolicy", contexts(8), group_size=4, start_rule=StartPool(20, seed=0), advantage="outcome", **SMALL)
    gate = SelectiveRolloutCallback(RandomGate(0.5), check_interval=3, grace=3, warmup=0, audit_fraction=0.0)
    with pytest.warns(UserWarning, match="StartPool has heard of"):
        model.learn(1024, callback=gate)


def test_an_update_may_lose_all_its_rows():
    pool = StartPool(20, rule=DiscardRule(max_discarded=1.0), tolerance=1e9, seed=0)
    model = GRPO("MlpPolicy", make_vec_env(Doors, 8, seed=0), group_size=4, advantage="outcome", start_rule=pool, **SMALL)
    before = parameters(model)
    model.learn(512)
    np.testing.assert_array_equal(parameters(model), before)


def test_recurrent_policies_are_refused():
    recurrent = pytest.importorskip("sb3_contrib.common.recurrent.policies")
    arguments = {**SMALL, "policy_kwargs": {"lstm_hidden_size": 4}}
    with pytest.raises(ValueError, match="RecurrentActorCriticPolicy is recurrent"):
        GRPO(recurrent.RecurrentActorCriticPolicy, contexts(4), **arguments)
