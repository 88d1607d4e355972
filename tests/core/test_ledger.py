"""A ledger adds up what was spent, and keeps its clock over saving."""

from __future__ import annotations

import pickle
import time
from copy import deepcopy
from time import perf_counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sb3_budget.core.ledger import Ledger

EXAMPLES = settings(max_examples=50, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
COUNTS = st.integers(0, 10**12)
LEDGERS = st.builds(
    Ledger,
    learning_steps=COUNTS,
    warmup_steps=COUNTS,
    verification_steps=COUNTS,
    resets=COUNTS,
    started=st.floats(0.0, 100.0),
)


def test_a_new_ledger_is_empty() -> None:
    ledger = Ledger()
    assert ledger.total_steps == 0
    assert ledger.resets == 0
    assert 0.0 <= ledger.seconds < 60.0


def test_every_step_counts_once_and_resets_are_no_steps() -> None:
    ledger = Ledger(learning_steps=100, warmup_steps=20, verification_steps=3, resets=7)
    ledger.learning_steps += 1
    assert ledger.total_steps == 124


def test_the_dictionary_holds_counts_total_and_seconds() -> None:
    entries = Ledger(learning_steps=5, warmup_steps=2, verification_steps=1, resets=3, started=perf_counter() - 10.0).as_dict()
    assert 10.0 <= entries.pop("seconds") < 70.0
    assert entries == {"learning_steps": 5, "warmup_steps": 2, "verification_steps": 1, "total_steps": 8, "resets": 3}


@EXAMPLES
@given(one=LEDGERS, two=LEDGERS)
def test_ledgers_add_up(one: Ledger, two: Ledger) -> None:
    both = one + two
    assert both == two + one
    assert both.total_steps == one.total_steps + two.total_steps
    assert both.resets == one.resets + two.resets
    assert both.started == min(one.started, two.started)
    assert one + Ledger() == one


def test_adding_leaves_the_ledgers_alone() -> None:
    one, two = Ledger(learning_steps=1), Ledger(learning_steps=2)
    assert sum([one, two], Ledger()).learning_steps == 3
    assert (one.learning_steps, two.learning_steps) == (1, 2)


def test_only_ledgers_can_be_added() -> None:
    with pytest.raises(TypeError, match="unsupported operand"):
        Ledger() + 1  # type: ignore[operator]  # what the test is about


@EXAMPLES
@given(ledger=LEDGERS)
def test_copies_are_equal_and_independent(ledger: Ledger) -> None:
    copy = deepcopy(ledger)
    assert copy == ledger
    copy.resets += 1
    assert copy != ledger


def test_the_clock_stands_still_while_saved() -> None:
    made = perf_counter()
    saved = pickle.dumps(Ledger(learning_steps=4, started=made - 1000.0))
    running = perf_counter() - made
    time.sleep(0.2)
    before = perf_counter()
    loaded = pickle.loads(saved)
    assert loaded == Ledger(learning_steps=4)
    assert 1000.0 <= loaded.seconds <= 1000.0 + running + (perf_counter() - before) + 1e-6


@pytest.mark.parametrize("name", ["learning_steps", "warmup_steps", "verification_steps", "resets"])
def test_negative_counts_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must not be negative, got -1"):
        Ledger(**{name: -1})
