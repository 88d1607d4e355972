"""Members of a group begin in one start, each in turn or whoever becomes free first."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sb3_budget.vec_env.group_starts import GroupStarts
from sb3_budget.vec_env.start import Start

EXAMPLES = settings(max_examples=40, deadline=None, derandomize=True)


def play(starts, lengths, n_steps):
    """
    Slots whose episodes have lengths of their own, ``lengths(slot, number of its episode)``.

    :return: Each episode as (slot, group, start's number, member, begin, end), those that have ended.
    """
    n_envs = len(starts.episodes)
    begun, left, played, given = [0] * n_envs, [0] * n_envs, [], {}
    for slot in range(n_envs):
        given[slot] = starts(slot), 0
    left = [lengths(slot, 0) for slot in range(n_envs)]
    for step in range(1, n_steps + 1):
        dones = np.zeros(n_envs, dtype=bool)
        for slot in range(n_envs):
            left[slot] -= 1
            dones[slot] = left[slot] == 0
        for slot in np.flatnonzero(dones).tolist():
            start, begin = given[slot]
            given[slot] = starts(slot), step
            episodes, members = starts.before(dones)
            assert start.id == (slot // starts.group_size, episodes[slot])
            played.append((slot, *start.id, int(members[slot]), begin, step))
            begun[slot] += 1
            left[slot] = lengths(slot, begun[slot])
    return played


@pytest.mark.parametrize("fill", [False, True])
def test_by_hand(fill):
    starts = GroupStarts(2, 2, seed=0, fill=fill)
    # Slot 1 plays three episodes while slot 0 plays its first.
    ids = [starts(slot).id[1] for slot in (0, 1, 1, 1, 1, 0)]
    assert ids == ([0, 0, 1, 1, 2, 2] if fill else [0, 0, 1, 2, 3, 1])
    assert starts.episodes.tolist() == ([2, 2] if fill else [1, 3])
    assert starts.members.tolist() == [0, 1]


@pytest.mark.parametrize("fill", [False, True])
def test_before_tells_of_the_episode_that_has_just_ended(fill):
    starts = GroupStarts(2, 2, seed=0, fill=fill)
    for slot in (0, 1, 1):
        starts(slot)
    # Slot 1 has begun its second, and then its third episode.
    episodes, members = starts.before(np.array([False, True]))
    assert episodes.tolist() == [0, 0] and members.tolist() == [0, 1]
    starts(1)
    episodes, members = starts.before(np.array([False, True]))
    assert (episodes.tolist(), members.tolist()) == ([0, 1], [0, 1])
    assert starts.members.tolist() == ([0, 0] if fill else [0, 1])


@EXAMPLES
@given(st.integers(0, 2**32 - 1), st.integers(1, 3), st.integers(1, 5), st.sampled_from([2, 7, 40]))
def test_filled_starts_have_all_members_and_are_open_for_two_episodes_at_most(seed, n_groups, group_size, longest):
    drawn = np.random.default_rng(seed).integers(1, longest + 1, (n_groups * group_size, 400))
    # One slot is always slow.
    drawn[0] = longest
    starts = GroupStarts(n_groups * group_size, group_size, seed=0, fill=True)
    played = play(starts, lambda slot, number: int(drawn[slot, number]), 300)
    by_start: dict[tuple[int, int], list] = {}
    for _, group, episode, member, begin, end in played:
        by_start.setdefault((group, episode), []).append((member, begin, end))
    newest = {group: max(episode for other, episode in by_start if other == group) for group, _ in by_start}
    opened = Counter(group for group, episode in by_start for _ in [0] if len(by_start[group, episode]) < group_size)
    assert all(count <= group_size for count in opened.values())
    for members in by_start.values():
        assert len({member for member, *_ in members}) == len(members) <= group_size
        begins, ends = [begin for _, begin, _ in members], [end for *_, end in members]
        if len(members) == group_size:
            assert max(begins) - min(begins) <= longest and max(ends) - min(begins) <= 2 * longest
        else:
            # Nothing is left behind: what is still open is recent.
            assert 300 - min(begins) <= 2 * longest
    assert min(newest.values()) > 0


@EXAMPLES
@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_where_members_end_together_filling_changes_nothing(seed, group_size):
    drawn = np.random.default_rng(seed).integers(1, 6, (2, 100))
    runs = [
        play(GroupStarts(2 * group_size, group_size, 0, fill=fill), lambda slot, n: int(drawn[slot // group_size, n]), 60)
        for fill in (False, True)
    ]
    assert runs[0] == runs[1]


def test_a_member_that_ends_before_its_mates_in_the_same_step_keeps_its_place():
    starts = GroupStarts(3, 3, seed=0, fill=True)
    for slot in (0, 1, 2, 2, 0, 1):
        starts(slot)
    assert starts.members.tolist() == [0, 1, 2] and starts.episodes.tolist() == [1, 1, 1]


@pytest.mark.parametrize("fill", [False, True])
def test_all_go_on_together_from_a_start_that_nobody_has_had(fill):
    asked = []

    def rule(group, episode, rng):
        asked.append((group, episode))
        return Start((group, episode), seed=len(asked))

    starts = GroupStarts(4, 2, seed=0, rule=rule, fill=fill, first_episode=5)
    for slot in (0, 1, 2, 3, 0, 0, 2):
        starts(slot)
    starts.align()
    first = 7 if fill else 8
    assert [starts(slot).id for slot in range(4)] == [(0, first), (0, first), (1, 7), (1, 7)]
    assert len(asked) == len(set(asked))
