"""One state per cell, and never more than there is room for."""

from __future__ import annotations

import numpy as np
import pytest

from sb3_budget.vec_env.start_archive import REMEMBERED, StartArchive


def archive(capacity=4, refresh=0.0, seed=0):
    return StartArchive(capacity, refresh, np.random.default_rng(seed))


def visit(kept, *keys):
    """Visit cells and save what is wanted; a state is its key and a count."""
    for slot in kept.visit(keys):
        kept.keep(keys[slot], f"state of {keys[slot]}", keys[slot])


def test_every_new_cell_is_wanted_once():
    kept = archive()
    assert kept.visit(["a", "b", "a"]) == [0, 1]
    visit(kept, "a", "b", "a")
    assert kept.visit(["a", "b", "c"]) == [2]
    assert len(kept) == 2 and kept.rows(["b", "a", "z"]).tolist() == [1, 0, -1]


def test_visits_and_choices_are_counted():
    kept = archive()
    visit(kept, "a")
    for _ in range(3):
        visit(kept, "a", "b")
    assert kept.choose(1) == "state of b"
    assert kept.visits.tolist() == [4, 3]
    assert kept.chosen.tolist() == [0, 1]


def test_a_known_cell_is_refreshed_by_chance():
    kept = archive(refresh=0.25)
    visit(kept, "a")
    # 1000 tosses of probability 0.25: six deviations are 82 (alpha below 1e-8).
    assert 168 < sum(len(kept.visit(["a"])) for _ in range(1000)) < 332


def test_the_archive_stays_within_its_bounds_and_remembers_visits():
    kept = archive(capacity=8)
    rng = np.random.default_rng(0)
    for _ in range(2000):
        visit(kept, *rng.integers(10**6, size=8).tolist())
    assert len(kept) == len(kept.states) == len(kept.observations) == 8
    assert len(kept._rows) == 8 and len(kept._remembered) <= 8 * REMEMBERED
    assert [kept.rows([key])[0] for key in kept._keys] == list(range(8))
    assert [kept.states[row] for row in range(8)] == [f"state of {key}" for key in kept._keys]
    # A reservoir of 8 takes about 8 (1 + log(16000 / 8)) of 16000.
    assert 40 < kept.versions.sum() < 120


def test_the_most_visited_makes_room():
    kept = archive(capacity=2)
    visit(kept, "often")
    for _ in range(50):
        visit(kept, "often")
    visit(kept, "rare")
    kept.keep("new", "state of new", "new")
    assert kept.rows(["often", "rare", "new"]).tolist() == [-1, 1, 0]
    # When it comes back its visits are known.
    kept.keep("often", "state of often", "often")
    assert kept.visits.max() == 52


def test_misuse_is_refused():
    with pytest.raises(ValueError, match="archive_size=0 must be at least 1"):
        archive(capacity=0)
    with pytest.raises(ValueError, match=r"refresh=2 must lie in \[0, 1\]"):
        archive(refresh=2)
