"""The quantile follows the training return."""

from collections import deque
from types import SimpleNamespace

import pytest
from stable_baselines3.common.callbacks import BaseCallback, EveryNTimesteps
from stable_baselines3.common.env_util import make_vec_env

from sb3_budget import GRPO, AdaptiveQuantileCallback, GroupQuantileGate, QuantileGate, RandomGate
from tests.callbacks.clock import clocks, collector, eager
from tests.callbacks.recorded import RecordingLogger


def after_rollouts(callback, returns):
    """:return: The gate's quantile after one rollout for each mean return; ``None`` for one without an episode."""
    quantiles = []
    callback.model = SimpleNamespace(ep_info_buffer=deque(maxlen=1), logger=RecordingLogger())
    for value in returns:
        callback._on_rollout_start()
        if value is not None:
            callback.model.ep_info_buffer.append({"r": value})
        callback.locals = {"infos": [{} if value is None else {"episode": {"r": value}}, {}]}
        callback._on_step()
        callback._on_rollout_end()
        quantiles.append(round(callback.gate.quantile, 6))
    return quantiles


def test_it_rises_with_the_return_and_falls_where_it_stands_still():
    callback = AdaptiveQuantileCallback(QuantileGate(0.3), patience=1, step=0.1, minimum=0.1, maximum=0.5)
    assert after_rollouts(callback, [1.0, 2.0, 3.0, 3.0, 3.0]) == [0.3, 0.4, 0.5, 0.4, 0.3]


def test_progress_is_measured_for_negative_returns_too():
    callback = AdaptiveQuantileCallback(QuantileGate(0.3), patience=1, step=0.1, tolerance=0.1)
    assert after_rollouts(callback, [-100.0, -95.0, -50.0]) == [0.3, 0.2, 0.3]


def test_it_stays_within_its_range():
    callback = AdaptiveQuantileCallback(QuantileGate(0.2), patience=1, step=0.3, minimum=0.1, maximum=0.4)
    assert after_rollouts(callback, [1.0, 2.0, 2.0]) == [0.2, 0.4, 0.1]


def test_it_waits_for_patience_and_for_episodes():
    callback = AdaptiveQuantileCallback(QuantileGate(0.3), patience=3, step=0.1)
    assert after_rollouts(callback, [None, 1.0, 2.0, 3.0, 4.0]) == [0.3, 0.3, 0.3, 0.3, 0.4]


def test_it_stands_still_while_no_episode_ends():
    callback = AdaptiveQuantileCallback(QuantileGate(0.3), patience=1, step=0.1)
    assert after_rollouts(callback, [1.0, None, None, None, 2.0, None]) == [0.3, 0.3, 0.3, 0.3, 0.4, 0.4]


@pytest.mark.parametrize(
    "kwargs",
    [{"minimum": 0.5, "maximum": 0.4}, {"step": 0.0}, {"patience": 0}, {"tolerance": -1.0}, {"minimum": 0.35}],
)
def test_bad_arguments_are_refused(kwargs):
    with pytest.raises(ValueError):
        AdaptiveQuantileCallback(QuantileGate(0.3), **kwargs)


def test_a_gate_without_a_quantile_of_its_own_is_refused():
    with pytest.raises(ValueError, match="RandomGate has no quantile"):
        AdaptiveQuantileCallback(RandomGate(0.3))
    with pytest.raises(ValueError, match="must be a number"):
        AdaptiveQuantileCallback(QuantileGate(lambda progress: 0.3))


def test_inside_an_event_callback_it_is_refused_and_not_idle():
    nested = EveryNTimesteps(8, AdaptiveQuantileCallback(QuantileGate(0.3)))
    with pytest.raises(ValueError, match="inside EveryNTimesteps would never hear of rollouts"):
        collector(clocks(1)).learn(16, callback=nested)


class Rising(BaseCallback):
    """Returns that double from rollout to rollout."""

    def _on_step(self):
        return True

    def _on_rollout_end(self):
        self.model.ep_info_buffer.clear()
        self.model.ep_info_buffer.append({"r": 2.0 ** (self.num_timesteps / 256), "l": 1, "t": 0.0})


@pytest.mark.parametrize("maximum", [0.0, 1.0])
def test_the_quantile_of_a_gate_for_groups_follows_too_and_is_what_it_stops_by(maximum):
    gate = GroupQuantileGate(0.0, min_peers=1)
    stops = eager(gate, check_interval=10)
    adaptive = AdaptiveQuantileCallback(gate, minimum=0.0, maximum=maximum, step=1.0, patience=1)
    model = GRPO("MlpPolicy", make_vec_env("CartPole-v1", 4, seed=0), group_size=4, n_steps=64, batch_size=64, seed=0)
    model.learn(4 * 64 * 4, callback=[stops, Rising(), adaptive])
    assert gate.quantile == maximum
    assert (stops.n_stops > 0) == (maximum > 0.0)
