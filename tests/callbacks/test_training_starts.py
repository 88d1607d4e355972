"""A sampler of starts speaks in its own training only."""

from __future__ import annotations

import numpy as np
import pytest
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.callbacks import BaseCallback

from sb3_budget import GRPO, BudgetAllocatorCallback, StartPool
from sb3_budget.callbacks.rollout_notes import CellStart
from sb3_budget.vec_env.start import Start
from tests.callbacks.test_budget_allocator_callback import SMALL, Starts, chains

ALGORITHMS = {
    PPO: SMALL,
    DQN: {"learning_starts": 50, "buffer_size": 500, "seed": 0, "device": "cpu"},
    GRPO: {**SMALL, "group_size": 4},
}


class Interrupt(BaseCallback):
    def _on_step(self):
        if self.num_timesteps >= 600:
            raise KeyboardInterrupt
        return True


def broken_off(algorithm, interrupt_first=False, venv=None):
    """An allocator whose training was interrupted while every episode began in an archived state, and its model."""
    allocator = BudgetAllocatorCallback("novelty", warmup=100, floor=0.0)
    model = algorithm("MlpPolicy", chains() if venv is None else venv, **ALGORITHMS[algorithm])
    callbacks = [allocator, Interrupt()]
    with pytest.raises(KeyboardInterrupt):
        model.learn(2000, callback=callbacks[::-1] if interrupt_first else callbacks)
    return allocator, model


def ids_of_an_evaluation(venv, n_steps=60):
    """Names of the starts of episodes after a reset, the first of which end with the first step."""
    venv.reset()
    ids = list(venv._start_ids)
    venv.request_stop(range(venv.num_envs))
    for _ in range(n_steps):
        venv.step(np.ones(venv.num_envs, dtype=np.int64))
        ids += venv._start_ids
    return ids


@pytest.mark.parametrize("interrupt_first", [False, True])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_an_evaluation_after_a_training_was_broken_off_begins_in_own_starts(algorithm, interrupt_first):
    allocator, model = broken_off(algorithm, interrupt_first)
    counted = allocator.archive_starts
    assert counted > 0.0
    ids = ids_of_an_evaluation(model.get_env())
    assert not any(isinstance(each, CellStart) for each in ids)
    assert allocator.archive_starts == counted


def test_members_of_a_group_do_not_bring_starts_of_a_training_to_an_evaluation():
    model = GRPO("MlpPolicy", chains(8), **ALGORITHMS[GRPO])
    model.learn(1024, callback=BudgetAllocatorCallback("novelty", warmup=100, floor=0.0))
    # Some members have begun in a state that the others have not come to yet.
    assert any(isinstance(start.id, CellStart) for start, _ in model._starts._open.values())
    assert not any(isinstance(each, CellStart) for each in ids_of_an_evaluation(model.get_env()))


def test_a_training_that_goes_on_after_it_counts_as_before():
    allocator, model = broken_off(PPO)
    ids_of_an_evaluation(model.get_env())
    starts, before = Starts(), allocator.archive.chosen.sum()
    model.learn(600, callback=[allocator, starts])
    # The first episodes of a training begin before it tells its callbacks.
    assert starts.ids[:4] == [None] * 4 and sum(isinstance(each, CellStart) for each in starts.ids[4:]) > 4
    assert allocator.archive.chosen.sum() > before


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_two_allocators_in_one_training_are_refused(algorithm):
    both = [BudgetAllocatorCallback("novelty", warmup=64), BudgetAllocatorCallback("uniform", warmup=64)]
    model = algorithm("MlpPolicy", chains(), **ALGORITHMS[algorithm])
    with pytest.raises(ValueError, match="A second BudgetAllocatorCallback would undo the first one's choice"):
        model.learn(256, callback=both)
    model.learn(256, callback=both[1])


def test_what_another_model_left_behind_is_replaced():
    _, first = broken_off(PPO)
    starts = Starts()
    second = PPO("MlpPolicy", first.get_env(), **SMALL)
    second.learn(600, callback=[BudgetAllocatorCallback("novelty", warmup=64), starts])
    assert any(isinstance(each, CellStart) for each in starts.ids)


def test_episodes_from_states_of_another_archive_say_nothing_of_this_one():
    venv = chains()
    model = PPO("MlpPolicy", venv, **SMALL)
    model.learn(1024, callback=BudgetAllocatorCallback("novelty", warmup=64, floor=0.0))
    assert max(each.row for each in venv._start_ids if each is not None) > 1
    small = BudgetAllocatorCallback("learning_progress", warmup=64, floor=0.0, archive_size=2)
    model.learn(1024, callback=small, reset_num_timesteps=False)
    assert small.archive.chosen.sum() > 0


@pytest.mark.parametrize("name", [lambda i: ("cell", i), lambda i: ("cell", i, 0), lambda i: () if i == 0 else (i,)])
def test_names_of_a_pool_are_not_taken_for_cells(name):
    pool = StartPool([Start(name(i), seed=i) for i in range(5)])
    allocator = BudgetAllocatorCallback("learning_progress", warmup=1.0)
    GRPO("MlpPolicy", chains(8), group_size=4, start_rule=pool, **SMALL).learn(1024, callback=allocator)
    assert np.isnan(allocator.anchors().progress).all()
