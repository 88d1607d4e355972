"""Starts by phase: which states are kept, which are drawn, and that slots begin in them."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

from sb3_budget import AdaptiveOffsetCallback, StaggeredResetCallback, StaggeredResetVecEnv
from sb3_budget.states.state import FORMAT, State
from sb3_budget.vec_env.phase_archive import PhaseArchive

HORIZON, N_BLOCKS = 40, 4


def state(number):
    return State(FORMAT, "env", "plain", b"", (), (), number)


def numbers(archive, rng, n=4000):
    """How often each state is drawn."""
    starts = [archive.draw(rng) for _ in range(n)]
    return [start.snapshot.observation for _, start in starts if start is not None], [phase for phase, _ in starts]


def test_an_even_sample_of_all_that_passed_is_kept():
    rng = np.random.default_rng(0)
    kept = np.zeros(50, dtype=int)
    for _ in range(400):
        archive = PhaseArchive(HORIZON, N_BLOCKS, size=5, weights=[0, 1, 0, 0])
        for number in range(50):
            if len(archive.wanted(np.array([10]), rng)):
                archive.keep(10, state(number), rng)
        kept[[entry.state.observation for entry in archive._kept[1]]] += 1
    # Binomial(400, 1/10) per state: 5.5 standard deviations, a level below 1e-6 for 50 of them.
    assert np.abs(kept - 40).max() < 5.5 * np.sqrt(400 * 0.1 * 0.9)
    assert kept.sum() == 400 * 5


def test_only_beginnings_of_blocks_are_wanted():
    archive = PhaseArchive(HORIZON, N_BLOCKS, size=100)
    rng = np.random.default_rng(0)
    assert archive.wanted(np.array([0, 9, 10, 11, 20, 30, 39]), rng).tolist() == [2, 4, 5]


def test_blocks_are_drawn_by_weight():
    archive, rng = PhaseArchive(HORIZON, N_BLOCKS, size=2, weights=[1, 0, 2, 1]), np.random.default_rng(0)
    for phase in (10, 20, 30):
        archive.keep(phase, state(phase), rng)
    drawn, phases = numbers(archive, rng)
    shares = [np.mean(np.array(phases) == phase) for phase in (0, 10, 20, 30)]
    np.testing.assert_allclose(shares, [0.25, 0.0, 0.5, 0.25], atol=5 * np.sqrt(0.25 / 4000))
    assert set(drawn) == {20, 30}
    assert archive.counts.tolist() == [0, 1, 1, 1]


def test_a_block_without_states_is_stood_for_by_the_one_before_it():
    archive, rng = PhaseArchive(HORIZON, N_BLOCKS, size=2, weights=[0, 0, 0, 1]), np.random.default_rng(0)
    assert archive.draw(rng) == (0, None)
    archive.keep(10, state(1), rng)
    phase, start = archive.draw(rng)
    assert (phase, start.id, start.snapshot.observation) == (10, ("block", 1, 0), 1)


def snapshots(n_envs=8, enabled=True, **kwargs):
    base = make_vec_env("Pendulum-v1", n_envs, seed=0)
    return StaggeredResetVecEnv(base, mode="snapshot", n_blocks=4, enabled=enabled, seed=0, **kwargs)


def walk(venv, n_steps):
    ends = []
    for _ in range(n_steps):
        _, _, dones, infos = venv.step(np.zeros((venv.num_envs, 1), dtype=np.float32))
        ends += [infos[slot]["sb3_budget"] for slot in np.flatnonzero(dones)]
    return ends


def test_slots_begin_in_all_blocks_and_end_with_the_horizon():
    venv = snapshots()
    venv.reset()
    ends = walk(venv, 900)
    later = [end for end in ends if end["start_id"] is not None]
    assert {end["start_id"][:2] for end in later} == {("block", 1), ("block", 2), ("block", 3)}
    for end in later:
        assert end["reason"] == "time_limit"
        assert end["length"] == 200 - 50 * end["start_id"][1]
    assert (venv.phases < 200).all() and (venv.phases >= venv.ages).all()
    assert (venv._archive.counts[1:] > 0).all()


def test_uneven_weights_give_a_block_more_steps():
    def share_of_last_block(weights):
        venv = snapshots(block_weights=weights)
        venv.reset()
        walk(venv, 400)
        phases = []
        for _ in range(600):
            walk(venv, 1)
            phases.append(venv.phases)
        return np.mean(np.array(phases) >= 150)

    assert share_of_last_block([1, 0, 0, 3]) > 1.4 * share_of_last_block([1, 0, 0, 0])


def test_it_survives_saving(tmp_path):
    venv = snapshots()
    venv.reset()
    walk(venv, 300)
    venv.save(tmp_path / "venv.pkl")
    other = StaggeredResetVecEnv.load(tmp_path / "venv.pkl", make_vec_env("Pendulum-v1", 8, seed=5))
    assert other._archive.counts.tolist() == venv._archive.counts.tolist()
    other.reset()
    assert other.phases.any()


def test_callbacks_weigh_the_blocks():
    venv = snapshots()
    model = PPO("MlpPolicy", VecNormalize(venv), n_steps=25, batch_size=200, n_epochs=1, seed=0, device="cpu")
    model.learn(400, callback=StaggeredResetCallback(block_weights=lambda progress: [1.0, 1.0, 0.0, 2.0 - 2.0 * progress]))
    np.testing.assert_allclose(venv._archive.weights, np.array([1, 1, 0, 2]) / 4)
    model.learn(4_000, callback=AdaptiveOffsetCallback(n_blocks=4, period=1, uniform=0.5))
    assert venv._archive.weights.min() >= 0.125
    assert len(set(venv._archive.weights.tolist())) > 1


def test_with_equal_seeds_runs_are_equal():
    def run():
        venv = snapshots()
        model = PPO("MlpPolicy", VecNormalize(venv), n_steps=25, batch_size=200, n_epochs=1, seed=3, device="cpu")
        return model.learn(4_000).policy.state_dict()["value_net.weight"].numpy()

    np.testing.assert_array_equal(run(), run())


def test_a_horizon_below_the_time_limit_bounds_every_episode():
    venv = snapshots(horizon=100)
    venv.reset()
    ends = walk(venv, 400)
    assert all(end["length"] <= 100 for end in ends)
    assert (venv.phases < 100).all()


def test_a_second_training_begins_in_snapshots_at_once_and_warns_of_nothing():
    venv = snapshots(block_weights=[0, 0, 0, 1])
    venv.reset()
    walk(venv, 300)
    venv.reset()
    assert (venv.phases == 150).all()
    walk(venv, 120)


def test_one_slot_has_use_for_snapshots():
    venv = snapshots(n_envs=1)
    venv.reset()
    walk(venv, 700)
    assert (venv._archive.counts[1:] > 0).all()


def test_what_cannot_be_saved_is_refused_at_the_first_reset():
    class Opaque(gym.Wrapper):
        def __init__(self, env):
            super().__init__(env)
            self.generator = (n for n in range(3))

    base = make_vec_env("Pendulum-v1", 2, seed=0, wrapper_class=Opaque)
    with pytest.raises(ValueError, match="wrapper Opaque cannot be saved"):
        StaggeredResetVecEnv(base, mode="snapshot", n_blocks=4).reset()
    later = StaggeredResetVecEnv(base, mode="snapshot", n_blocks=4, enabled=False)
    later.reset()
    with pytest.raises(ValueError, match="wrapper Opaque cannot be saved"):
        later.enable()


def test_switched_on_later_it_begins_episodes_in_snapshots():
    venv = snapshots(enabled=False)
    venv.reset()
    venv.enable()
    walk(venv, 600)
    assert (venv._archive.counts[1:] > 0).all()


@pytest.mark.parametrize("other", [{"group_reset": True}, {"reassign_every": 2}, {"horizon_budget": "discount"}])
def test_other_rules_for_starts_and_ends_do_not_go_with_snapshots(other):
    with pytest.raises(ValueError, match="would undo that"):
        snapshots(**other)


def test_callbacks_that_do_not_fit_the_mode_are_refused_before_training():
    model = PPO("MlpPolicy", snapshots(), n_steps=25, batch_size=200, n_epochs=1, device="cpu")
    with pytest.raises(ValueError, match="mode='snapshot' of the wrapper give block_weights"):
        model.learn(200, callback=StaggeredResetCallback(n_blocks=lambda progress: 4))
    other = StaggeredResetVecEnv(make_vec_env("Pendulum-v1", 8, seed=0))
    model = PPO("MlpPolicy", other, n_steps=25, batch_size=200, n_epochs=1, device="cpu")
    with pytest.raises(ValueError, match="mode='first_episode' of the wrapper give n_blocks"):
        model.learn(200, callback=StaggeredResetCallback(block_weights=lambda progress: [1, 1]))


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="snapshots_per_block=0 must be at least 1"):
        snapshots(snapshots_per_block=0)
    with pytest.raises(ValueError, match="4 finite, non-negative numbers that are not all 0"):
        snapshots(block_weights=[0, 0, 0, 0])
    with pytest.raises(ValueError, match=r"n_blocks=1 must lie between 2 and the horizon of 200 steps for snapshots"):
        StaggeredResetVecEnv(make_vec_env("Pendulum-v1", 2), mode="snapshot", n_blocks=1)
    with pytest.raises(ValueError, match="needs at least 2 blocks, but n_steps=200 covers the horizon"):
        StaggeredResetVecEnv(make_vec_env("Pendulum-v1", 2), mode="snapshot", n_steps=200)
    venv = snapshots()
    with pytest.raises(ValueError, match="n_blocks=5 cannot replace the 4 blocks of the snapshots"):
        venv.reassign_blocks(5)
    with pytest.raises(ValueError, match=r"belongs to \"StaggeredResetVecEnv\(mode='snapshot'\)\""):
        venv.set_start_sampler(lambda slot: None)
    with pytest.raises(ValueError, match="give one of them"):
        StaggeredResetCallback(n_blocks=lambda progress: 4, block_weights=lambda progress: [1, 1])
