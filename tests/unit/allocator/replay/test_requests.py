"""What a trace asks of the allocator, without its answers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.replay_traces import MIB, Program, program, variable_length

from peakmem.allocator.replay.requests import EMPTY_CACHE, FREE, WAIT, Requests, requests_of
from peakmem.errors import PeakmemError
from peakmem.trace.model import Trace
from peakmem.trace.roles import Action
from peakmem.trace.tables import Events


def rows(requests: Requests) -> list[tuple[int, int, int]]:
    return list(zip(requests.slot.tolist(), requests.size.tolist(), requests.stream.tolist(), strict=True))


def test_blocks_are_taken_and_given_back_in_order() -> None:
    requests = requests_of(program("a=3M b=4M -a c=5M").trace())
    assert rows(requests) == [(0, 3 * MIB, 0), (1, 4 * MIB, 0), (0, FREE, 0), (2, 5 * MIB, 0)]
    assert requests.prologue == 0
    assert requests.slots == 3


def test_streams_are_numbered_and_the_default_one_is_0() -> None:
    requests = requests_of(program("a=3M@700 b=4M@20 c=5M").trace())
    assert requests.stream.tolist() == [2, 1, 0]
    assert requests.streams == 3


def test_an_address_that_is_used_again_is_another_block() -> None:
    made = Program()
    for _ in range(2):
        made.event(Action.ALLOC, address=4096, size=700)
        made.event(Action.FREE_REQUESTED, address=4096, size=700)
        made.event(Action.FREE_COMPLETED, address=4096, size=700)
    assert requests_of(made.trace()).slot.tolist() == [0, 0, 1, 1]


def test_a_block_waits_for_another_stream_only_if_a_request_passes_it_by() -> None:
    made = program("a=3M b=4M")
    pending = made.give_later("a")
    made.take("c", 5 * MIB)
    made.done(pending)
    made.give("b")
    assert rows(requests_of(made.trace()))[2:] == [(0, WAIT, 0), (2, 5 * MIB, 0), (0, FREE, 0), (1, FREE, 0)]


def test_a_request_of_no_bytes_is_left_out_with_its_end() -> None:
    made = program("a=3M")
    made.event(Action.ALLOC, address=64, size=0)
    made.event(Action.FREE_REQUESTED, address=64, size=0)
    made.event(Action.FREE_COMPLETED, address=64, size=0)
    assert rows(requests_of(made.trace())) == [(0, 3 * MIB, 0)]


def test_a_huge_request_stays_a_number_that_the_allocator_can_be_given() -> None:
    made = program("a=3M")
    made.event(Action.ALLOC, address=64, size=(1 << 63) - 1)
    assert requests_of(made.trace()).size.max() == 1 << 62


def test_the_device_that_held_most_is_replayed_unless_another_is_named() -> None:
    trace = program("a=3M", device=3).trace()
    assert requests_of(trace).device == 3
    with pytest.raises(PeakmemError, match="no allocation on device 0"):
        requests_of(trace, device=0)


def segments(made: Program, *events: tuple[Action, int]) -> None:
    for action, size in events:
        made.event(action, address=1 << 50, size=size)


def with_cache_given_back(following: list[tuple[Action, int]], *, capacity: int = 0) -> Trace:
    made = Program(capacity=capacity)
    segments(made, (Action.SEGMENT_ALLOC, 100 * MIB))
    made.take("a", 100 * MIB)
    made.give("a")
    segments(made, (Action.SEGMENT_FREE, 100 * MIB), *following)
    made.take("b", 40 * MIB)
    return made.trace()


def test_segments_given_back_where_none_is_wanted_mean_empty_cache() -> None:
    assert EMPTY_CACHE in requests_of(with_cache_given_back([])).size


def test_segments_given_back_where_there_was_room_mean_empty_cache() -> None:
    trace = with_cache_given_back([(Action.SEGMENT_ALLOC, 40 * MIB)], capacity=200 * MIB)
    assert EMPTY_CACHE in requests_of(trace).size


def test_segments_given_back_for_want_of_room_are_no_request() -> None:
    trace = with_cache_given_back([(Action.SEGMENT_ALLOC, 40 * MIB)], capacity=120 * MIB)
    assert EMPTY_CACHE not in requests_of(trace).size
    assert EMPTY_CACHE not in requests_of(with_cache_given_back([(Action.OOM, 400 * MIB)])).size


def test_the_request_that_ended_the_program_is_replayed_too() -> None:
    made = program("a=3M")
    made.event(Action.OOM, address=5 * MIB, size=64 * MIB)
    made.give("a")
    assert rows(requests_of(made.trace())) == [(0, 3 * MIB, 0), (1, 64 * MIB, 0), (0, FREE, 0)]


def test_an_error_that_the_program_outlived_is_left_out_and_mentioned() -> None:
    made = program("a=3M")
    made.event(Action.OOM, address=5 * MIB, size=64 * MIB)
    made.take("b", 2 * MIB)
    requests = requests_of(made.trace())
    assert requests.size.tolist() == [3 * MIB, 2 * MIB]
    assert any("outlived" in note for note in requests.notes)


def test_what_was_there_at_the_start_comes_first() -> None:
    made = Program()
    made.initial = [
        {"address": (1 << 30) + 5 * MIB, "size": 3 * MIB, "requested": 3 * MIB - 100},
        {"address": 1 << 30, "size": 2 * MIB, "requested": 2 * MIB},
    ]
    made.segments = [{"address": 1 << 30, "size": 20 * MIB}]
    made.take("x", 4 * MIB)
    requests = requests_of(made.trace())
    assert requests.size.tolist() == [2 * MIB, 3 * MIB - 100, 4 * MIB]
    assert requests.prologue == 2
    assert (requests.starts_with, requests.starts_reserved) == (5 * MIB, 20 * MIB)
    # The segment whole and back, its blocks and gaps by address, the gaps given back.
    assert requests.layout[:, 1].tolist() == [
        20 * MIB, FREE, 2 * MIB, 3 * MIB, 3 * MIB, 12 * MIB, FREE, FREE
    ]  # fmt: skip


@given(steps=st.integers(1, 5), seed=st.integers(0, 50))
def test_every_block_is_given_back_at_most_once_and_after_it_was_taken(steps: int, seed: int) -> None:
    requests = requests_of(variable_length(steps, layers=2, seed=seed))
    live: set[int] = set()
    for slot, size, _ in rows(requests):
        if size > 0:
            assert slot not in live
            live.add(slot)
        elif size == FREE:
            live.remove(slot)
    assert len(live) == 2
    assert np.all(np.diff(requests.event) > 0)


def test_a_trace_without_events_says_what_is_missing() -> None:
    with pytest.raises(PeakmemError, match="nothing to replay") as error:
        requests_of(Trace(events=Events.empty()))
    assert "_record_memory_history" in error.value.hint
