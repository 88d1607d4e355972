"""Switched off, nothing changes; and a stop is what the environment's own time limit would have been, under every wrapper."""

from __future__ import annotations

import sys
from types import ModuleType

import numpy as np
import pytest
import torch
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.callbacks import EvalCallback
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import (
    SubprocVecEnv,
    VecCheckNan,
    VecExtractDictObs,
    VecFrameStack,
    VecMonitor,
    VecNormalize,
    VecTransposeImage,
    VecVideoRecorder,
)

from sb3_budget import EpisodeControlVecEnv, StaggeredResetVecEnv
from tests.vec_env.slot_envs import assert_same, episode_ends, make_venv, step

LIMITS = [3, 4, 7]


@pytest.fixture
def moviepy(monkeypatch):
    """A stand-in that keeps the clips instead of encoding them."""
    clips = []

    class ImageSequenceClip:
        def __init__(self, frames, fps):
            clips.append([int(frame.max()) for frame in frames])

        def write_videofile(self, path):
            assert path.endswith(".mp4")

    for name in ("moviepy", "moviepy.video", "moviepy.video.io", "moviepy.video.io.ImageSequenceClip"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules["moviepy.video.io.ImageSequenceClip"].ImageSequenceClip = ImageSequenceClip
    return clips


def without_clocks(outcome):
    for info in outcome[3]:
        info.pop("sb3_budget", None)
        info.get("episode", {}).pop("t", None)
    return outcome


WRAPPERS = {
    "bare": ("tuple", lambda venv: venv),
    "normalize": ("box", VecNormalize),
    "normalize_dict": ("dict", lambda venv: VecNormalize(venv, norm_obs_keys=["where"])),
    "monitor": ("multi_discrete", VecMonitor),
    "frame_stack": ("image", lambda venv: VecFrameStack(venv, 3)),
    "transpose_image": ("image", VecTransposeImage),
    "check_nan": ("box", lambda venv: VecCheckNan(venv, raise_exception=True)),
    "extract_dict_obs": ("dict", lambda venv: VecExtractDictObs(venv, "where")),
    "chain": ("image", lambda venv: VecTransposeImage(VecFrameStack(VecNormalize(VecMonitor(venv), norm_obs=False), 2))),
}


@pytest.mark.parametrize("name", WRAPPERS)
def test_stops_look_like_the_environments_own_time_limit(name):
    kind, wrap = WRAPPERS[name]
    stock = wrap(make_venv(3, kind=kind, time_limits=LIMITS))
    control = EpisodeControlVecEnv(make_venv(3, kind=kind))
    venv = wrap(control)
    assert_same(stock.reset(), venv.reset())
    for elapsed in range(1, 16):
        control.request_stop([slot for slot in range(3) if elapsed % LIMITS[slot] == 0])
        assert_same(without_clocks(step(stock)), without_clocks(step(venv)))
        assert_same(control.venv.reset_infos, control.reset_infos)
    if isinstance(venv, VecNormalize):
        assert_same(stock.get_original_obs(), venv.get_original_obs())
        assert_same(stock.returns, venv.returns)


def test_a_video_shows_the_stop(moviepy, tmp_path):
    control = EpisodeControlVecEnv(make_venv(1))
    venv = VecVideoRecorder(control, str(tmp_path), record_video_trigger=lambda elapsed: elapsed == 0, video_length=4)
    venv.reset()
    for elapsed in range(4):
        control.request_stop([0] if elapsed == 2 else [])
        step(venv)
    venv.close()
    assert moviepy == [[0, 1, 2, 0, 1]]


def test_what_sb3_asks_a_vec_env_reaches_the_environments():
    venv = VecNormalize(EpisodeControlVecEnv(make_venv(2, time_limits=5, monitor=True)))
    assert venv.get_attr("slot") == [0, 1]
    assert venv.env_method("action_masks", indices=[1])[0].tolist() == [True, False]
    assert venv.has_attr("length") and not venv.has_attr("width")
    assert venv.env_is_wrapped(Monitor) == [True, True]
    venv.seed(5)
    venv.set_options({"step": 2})
    assert venv.venv.reset()[:, 2].tolist() == [2.0, 2.0]
    assert [seeds[-1] for seeds in venv.get_attr("seeds")] == [5, 6]
    assert venv.render().shape == (8, 4, 3)


def variants(**options):
    """The stock VecEnv, and ours with everything switched off or nothing asked of it."""
    yield make_venv(2, **options)
    yield EpisodeControlVecEnv(make_venv(2, **options), enabled=False)
    yield StaggeredResetVecEnv(make_venv(2, **options), enabled=False)
    yield EpisodeControlVecEnv(make_venv(2, **options))
    # Offsets of 0 shift nothing, and budgets of at least the horizon cut nothing.
    yield StaggeredResetVecEnv(
        make_venv(2, **options), horizon_budget=lambda n, rng: np.full(n, 99), offsets=lambda n, horizon, rng: np.zeros(n)
    )


@pytest.mark.parametrize("name", ["PPO", "A2C", "TRPO", "MaskablePPO"])
def test_off_means_bit_identical_parameters(name):
    if name in ("PPO", "A2C"):
        algorithm = {"PPO": PPO, "A2C": A2C}[name]
    else:
        algorithm = getattr(pytest.importorskip("sb3_contrib"), name)
    options = {"A2C": {}, "TRPO": {"batch_size": 8}}.get(name, {"batch_size": 8, "n_epochs": 2})
    learnt = []
    for venv in variants(time_limits=9, monitor=True):
        model = algorithm("MlpPolicy", VecNormalize(venv), n_steps=8, seed=3, device="cpu", **options).learn(32)
        learnt.append(torch.nn.utils.parameters_to_vector(model.policy.parameters()))
    assert len(learnt) == 5
    for parameters in learnt[1:]:
        assert torch.equal(learnt[0], parameters)


@pytest.mark.parametrize("rewards", ["float", "integer"])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_every_cut_is_bootstrapped_with_the_value_of_its_last_observation(rewards):
    vec_env = {"vec_env_cls": SubprocVecEnv, "integer_rewards": True} if rewards == "integer" else {}
    # Slot 0 is stopped on request, 1 runs to the horizon budget, 2 is staggered, then all run to their time limit.
    budgets = iter([[9, 5, 9]])
    venv = StaggeredResetVecEnv(
        make_venv(3, time_limits=9, **vec_env),
        offsets=lambda n, horizon, rng: [0, 0, 2],
        horizon_budget=lambda n, rng: next(budgets, np.full(n, 9)),
        full_fraction=0.0,
    )
    model = PPO("MlpPolicy", venv, n_steps=16, batch_size=48, learning_rate=0.0, gamma=0.9, seed=1, device="cpu")
    seen = []

    def watch(local_vars, global_vars):
        if len(seen) == 2:
            venv.request_stop(0)
        seen.append((local_vars["rewards"].copy(), local_vars["infos"]))
        return True

    model.learn(48, callback=watch)
    expected = np.stack([rewards for rewards, _ in seen]).astype(np.float32)
    reasons = []
    for elapsed, (_, infos) in enumerate(seen):
        for slot, info in enumerate(infos):
            if "sb3_budget" in info:
                reasons.append((info["sb3_budget"]["reason"], slot, elapsed))
                last = torch.as_tensor(info["terminal_observation"]).unsqueeze(0)
                expected[elapsed, slot] += 0.9 * model.policy.predict_values(last).item()
    early, late = [("stopped", 0, 3), ("horizon", 1, 4), ("stagger", 2, 6)], [("time_limit", 0, 12), ("time_limit", 1, 13)]
    assert reasons == [*early, *late, ("time_limit", 2, 15)]
    np.testing.assert_allclose(model.rollout_buffer.rewards, expected, rtol=1e-6)
    assert not np.array_equal(expected, expected.round()), "the bootstrap is not a whole number"
    venv.close()


def test_a_terminated_episode_is_never_bootstrapped():
    venv = EpisodeControlVecEnv(make_venv(2, length=4))
    model = PPO("MlpPolicy", venv, n_steps=8, batch_size=16, n_epochs=1, device="cpu")

    def stop_all_but_too_late(local_vars, global_vars):
        if venv.ages[0] == 3:
            venv.request_stop([0, 1])
        return True

    model.learn(16, callback=stop_all_but_too_late)
    assert model.rollout_buffer.rewards.tolist() == [[1.0, 11.0], [2.0, 12.0], [3.0, 13.0], [4.0, 14.0]] * 2
    assert model.rollout_buffer.episode_starts[:, 0].tolist() == [1, 0, 0, 0] * 2


def test_evaluation_uses_the_same_class_switched_off():
    evaluation = VecNormalize(StaggeredResetVecEnv(make_venv(1, time_limits=6, monitor=True), enabled=False), training=False)
    venv = StaggeredResetVecEnv(make_venv(2, time_limits=6, monitor=True))
    callback = EvalCallback(evaluation, n_eval_episodes=2, eval_freq=8, verbose=0)
    PPO("MlpPolicy", VecNormalize(venv), n_steps=8, batch_size=16, n_epochs=1, device="cpu").learn(16, callback=callback)
    assert callback.last_mean_reward == 21.0
    assert [end["reason"] for end in episode_ends(venv, 6)[1]] == ["time_limit"]
