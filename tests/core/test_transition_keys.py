"""Equal transitions have equal keys and outcomes, others do not."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from sb3_budget.core import transition_keys as module
from sb3_budget.core.cells import ExactCells, QuantisedCells
from sb3_budget.core.transition_keys import Digests, TransitionKeys, outcomes


def box(*rows, dtype=np.float32):
    return {"": np.array(rows, dtype=dtype)}


def acts(*rows, dtype=np.int64):
    return np.array(rows, dtype=dtype).reshape(len(rows), -1)


def test_exact_keys_tell_states_and_actions_apart_and_take_zero_for_negative_zero():
    keys = TransitionKeys().keys(box([0.0, 1.0], [-0.0, 1.0], [0.0, 1.0], [0.0, 2.0]), acts(0, 0, 1, 0))
    assert keys[0] == keys[1] and len(set(keys)) == 3


def test_every_entry_of_a_dict_counts_whatever_its_order():
    a, b = np.array([[1], [1], [2]]), np.array([[3.0], [4.0], [3.0]])
    keys = TransitionKeys().keys({"a": a, "b": b}, acts(0, 0, 0))
    assert len(set(keys)) == 3
    assert TransitionKeys().keys({"b": b, "a": a}, acts(0, 0, 0)) == keys


def test_images_have_keys_of_a_few_bytes():
    images = np.random.default_rng(0).integers(256, size=(3, 3, 36, 36)).astype(np.uint8)
    images[2] = images[0]
    keys = TransitionKeys().keys({"": images}, acts(1, 1, 1))
    assert keys[0] == keys[2] != keys[1] and max(map(len, keys)) <= 32


def test_cells_see_the_state_alone_or_a_continuous_action_too():
    states, near, far = box([0.0], [0.01]), acts(0.0, 0.01, dtype=np.float32), acts(0.0, 5.0, dtype=np.float32)
    for continuous, expected in [(True, 2), (False, 2)]:
        keys = TransitionKeys(QuantisedCells(), continuous_actions=continuous)
        keys.observe(box([-1.0], [1.0]), acts(-1.0, 1.0, dtype=np.float32))
        keys.freeze()
        assert len(set(keys.keys(states, far))) == expected
        # Without cells of their own, actions count by their bytes.
        assert len(set(keys.keys(states, near))) == (1 if continuous else 2)


def test_frozen_cells_are_left_as_they_are():
    cells = QuantisedCells()
    cells.observe(np.array([[0.0], [1.0]]))
    cells.freeze()
    keys = TransitionKeys(cells)
    keys.observe(box([100.0]), acts(0))
    assert keys.keys(box([0.0]), acts(0)) == list(zip(cells.keys([[0.0]]), [acts(0).tobytes()], strict=True))


def test_cells_that_are_not_frozen_are_for_one_training_and_frozen_ones_may_be_shared():
    cells, places = QuantisedCells(), (1.0, 100.0)
    each = [TransitionKeys(cells) for _ in places]
    for keys, place in zip(each, places, strict=True):
        keys.observe(box([-place], [place]), acts(0, 0))
        keys.freeze()
    assert not cells.frozen
    assert [len(set(keys.keys(box([0.0], [5.0]), acts(0, 0)))) for keys in each] == [2, 1]
    frozen = each[0].cells
    assert TransitionKeys(frozen).cells is frozen


def test_exact_cells_keep_large_states_short():
    (key,) = TransitionKeys(ExactCells()).keys(box(np.arange(100)), acts(0))
    assert isinstance(key, tuple) and len(key[0]) == 16


def test_outcomes_have_whole_numbers_as_a_label_and_the_rest_as_numbers():
    found = outcomes(
        {"a": np.array([[1], [1]]), "b": np.array([[0.5, 1.5], [-0.5, 2.5]], dtype=np.float32)},
        np.array([7.0, 8.0], dtype=np.float32),
        [True, None],
    )
    assert [one.numbers.tolist() for one in found] == [[7.0, 0.5, 1.5], [8.0, -0.5, 2.5]]
    assert found[0].label == found[1].label != b""
    assert [one.terminated for one in found] == [True, None]


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.int8, bool])
def test_whole_numbers_of_any_type_are_labels(dtype):
    one, other = outcomes(box([0, 1], [1, 1], dtype=dtype), np.zeros(2, dtype=np.float32), [False, False])
    assert one.label != other.label and one.numbers.tolist() == [0.0]


def test_an_image_is_digested_once_where_a_step_led_and_not_again_where_the_next_begins(monkeypatch):
    digested = []
    monkeypatch.setattr(module, "digest", lambda data, whole=module.digest: digested.append(len(data)) or whole(data))
    images = np.random.default_rng(0).integers(256, size=(4, 2, 10, 10)).astype(np.uint8)
    keys, fresh = TransitionKeys(), []
    for before, after in pairwise(images):
        found = keys.keys({"": before}, acts(0, 1))
        outcomes({"": after}, np.zeros(2, dtype=np.float32), [False, False], keys.digests)
        fresh.append(found == TransitionKeys().keys({"": before}, acts(0, 1)))
    assert all(fresh)
    # Two slots: four states of the memory, and three that a memory of nothing was asked for.
    assert digested.count(100) == 2 * (4 + 3)


def test_a_memory_of_digests_never_takes_one_row_for_another():
    digests, rng = Digests(), np.random.default_rng(0)
    for _ in range(50):
        rows = rng.integers(2, size=(rng.integers(1, 4), 1)).repeat(40, axis=1).astype(np.uint8)
        assert digests.of("", rows) == Digests().of("", rows)
