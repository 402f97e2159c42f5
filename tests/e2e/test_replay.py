"""Replay through the installed PyTorch's allocator: figures, floors, real cases, real snapshots."""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from peakmem.allocator.replay import Engine, Replayer, floor
from peakmem.allocator.settings import TorchVersion, parse
from peakmem.allocator.settings.findings import Kind, examine
from peakmem.errors import PeakmemError
from peakmem.trace.load import load_trace
from peakmem.trace.model import Trace
from peakmem.trace.replay import Replay
from peakmem.vgpu.catalogue import custom_device
from peakmem.vgpu.probe import TorchFacts, probe
from tests.replay_traces import GIB, MIB, Program, program, variable_length

from .conftest import run_peakmem

pytestmark = pytest.mark.torch

CARD = custom_device(memory=80 * GIB)
EXPAND = "expandable_segments:True"


@pytest.fixture(scope="module")
def facts() -> TorchFacts:
    return probe(sys.executable)


@pytest.fixture(scope="module")
def engine(facts: TorchFacts) -> Iterator[Engine]:
    with Engine(facts=facts, card=CARD) as started:
        yield started


@pytest.fixture
def replayer(facts: TorchFacts, engine: Engine) -> Callable[[Trace], Replayer]:
    return lambda trace: Replayer(trace, facts=facts, card=CARD, engine=engine)


def modern(facts: TorchFacts) -> bool:
    return TorchVersion.parse(facts.version).at_least("2.10")


def test_segments_splits_and_peaks_are_the_allocators_own(replayer: Callable[[Trace], Replayer]) -> None:
    found = replayer(program("a=3M b=3M c=9M d=4M e=2M -a -c").trace()).replay("")
    assert (found.reserved, found.active, found.segments, found.retries) == (40 * MIB, 22 * MIB, 2, 0)
    assert found.end_reserved == 40 * MIB
    assert found.stranded == 18 * MIB
    assert found.curve.reserved.max() == 40 * MIB
    assert found.ran_out is None


def test_a_shortage_names_the_event_that_met_it(replayer: Callable[[Trace], Replayer]) -> None:
    machine = replayer(program("a=40M b=40M -a c=50M d=30M").trace())
    found = machine.replay("", capacity=100 * MIB)
    assert found.ran_out is not None
    assert found.ran_out.event == 5
    assert (found.ran_out.requested, found.ran_out.active) == (30 * MIB, 90 * MIB)
    assert found.retries == 2  # one that helped, one that did not
    assert "out of memory" in found.ran_out.text
    enough = machine.replay("", capacity=120 * MIB)
    assert enough.ran_out is None
    assert enough.retries == 1


@pytest.mark.parametrize("conf", ["", EXPAND, "max_split_size_mb:64", "roundup_power2_divisions:4"])
def test_the_floor_works_and_a_page_less_does_not(replayer: Callable[[Trace], Replayer], conf: str) -> None:
    machine = replayer(variable_length(12))
    found = machine.floor(conf)
    assert found.size is not None
    assert found.size % (2 * MIB) == 0
    assert found.active <= found.size <= found.reserved + 2 * MIB
    assert machine.replay(conf, capacity=found.size).ran_out is None
    assert machine.replay(conf, capacity=found.size - 2 * MIB).ran_out is not None


def test_the_floor_lies_below_the_peak_where_the_cache_can_be_given_back(facts: TorchFacts) -> None:
    trace = program("a=40M b=20M -a c=60M").trace()
    assert floor(trace, alloc_conf="", facts=facts, card=CARD) == 80 * MIB
    assert floor(trace, alloc_conf=EXPAND, facts=facts, card=CARD) == 80 * MIB


def test_a_floor_of_20000_events_takes_less_than_10_seconds(facts: TorchFacts) -> None:
    trace = variable_length(200)
    assert len(trace.events) > 20_000
    used = os.times()
    floor(trace, alloc_conf="", facts=facts, card=CARD)
    now = os.times()
    # Processor time: the machine may be busy with other things.
    spent = sum(now[:4]) - sum(used[:4])
    assert spent < 10


def test_a_request_that_no_device_can_serve_is_said_to_be_one(facts: TorchFacts) -> None:
    made = program("a=3M")
    made.take("huge", 1 << 61)
    with pytest.raises(PeakmemError, match="no device can serve"):
        floor(made.trace(), alloc_conf="", facts=facts, card=CARD)


def test_streams_do_not_share_blocks(replayer: Callable[[Trace], Replayer]) -> None:
    same = replayer(program("a=20M -a b=20M -b").trace())
    apart = replayer(program("a=20M@8 -a b=20M@9 -b").trace())
    assert same.replay("").reserved == 20 * MIB
    assert apart.replay("").reserved == 40 * MIB


def test_more_streams_than_pytorch_hands_out_stay_apart(replayer: Callable[[Trace], Replayer]) -> None:
    words = " ".join(f"x{i}=2M@{i + 1} -x{i}" for i in range(50))
    assert replayer(program(words).trace()).replay("").reserved == 50 * 20 * MIB


def waiting() -> Trace:
    made = program("a=60M")
    pending = made.give_later("a")
    made.take("b", 60 * MIB)
    made.done(pending)
    made.give("b")
    return made.trace()


def test_a_block_that_another_stream_still_uses_is_not_handed_out(replayer: Callable[[Trace], Replayer]) -> None:
    found = replayer(waiting()).replay("")
    assert (found.reserved, found.active) == (120 * MIB, 120 * MIB)


def test_in_need_the_allocator_waits_for_the_other_streams(replayer: Callable[[Trace], Replayer]) -> None:
    found = replayer(waiting()).replay("", capacity=100 * MIB)
    assert found.ran_out is None
    assert found.reserved == 60 * MIB


def test_one_of_several_devices_can_be_chosen(facts: TorchFacts) -> None:
    from peakmem.trace.tables import Events

    first, second = program("a=30M", device=0).trace(), program("a=90M b=20M", device=1).trace()
    names = Events.DTYPES
    both = Events.of({n: np.concatenate([getattr(first.events, n), getattr(second.events, n)]) for n in names})
    trace = Trace(meta=first.meta, events=both)
    with Replayer(trace, facts=facts, card=CARD, device=0) as chosen:
        assert chosen.replay("").reserved == 30 * MIB
    with Replayer(trace, facts=facts, card=CARD, device=1) as chosen:
        assert chosen.replay("").reserved == 110 * MIB


def with_start(conf: str = "") -> Trace:
    """A segment of 40 MiB with 30 MiB free in two pieces, from before the trace."""
    made = Program(conf=conf)
    base = 1 << 40
    made.initial = [{"address": base + 12 * MIB, "size": 10 * MIB, "requested": 10 * MIB}]
    made.segments = [{"address": base, "size": 40 * MIB}]
    made.take("x", 18 * MIB)
    made.take("y", 12 * MIB)
    return made.trace()


def test_the_memory_at_the_start_is_as_recorded_under_the_recorded_settings(
    replayer: Callable[[Trace], Replayer],
) -> None:
    machine = replayer(with_start())
    found = machine.replay("")
    assert found.exact_start
    assert (found.reserved, found.segments) == (40 * MIB, 1)
    tidy = machine.replay("", exact_start=False)
    assert tidy.reserved == 10 * MIB + 18 * MIB + 12 * MIB
    assert not machine.replay(EXPAND).exact_start


def test_more_at_the_start_than_there_is_room_for_is_said(replayer: Callable[[Trace], Replayer]) -> None:
    found = replayer(with_start()).replay("", capacity=8 * MIB)
    assert found.ran_out is not None
    assert found.ran_out.event == -1


def test_empty_cache_is_replayed(replayer: Callable[[Trace], Replayer]) -> None:
    from peakmem.trace.roles import Action

    made = program("a=100M -a")
    made.event(Action.SEGMENT_FREE, address=1 << 50, size=100 * MIB)
    made.take("b", 40 * MIB)
    found = replayer(made.trace()).replay("")
    assert (found.reserved, found.end_reserved) == (100 * MIB, 40 * MIB)


def test_settings_that_pytorch_refuses_are_refused_before_anything_runs(replayer: Callable[[Trace], Replayer]) -> None:
    with pytest.raises(PeakmemError, match="max_split_mb"):
        replayer(program("a=3M").trace()).replay("max_split_mb:64")


# ------------------------------------------------------------------------------------------------------- real cases


def test_rounding_with_one_division_does_nothing_and_with_two_it_rounds(
    replayer: Callable[[Trace], Replayer],
) -> None:
    machine = replayer(program("x=514M").trace())
    assert machine.replay("roundup_power2_divisions:[>:1]").reserved == 514 * MIB
    assert machine.replay("roundup_power2_divisions:[>:2]").reserved == 768 * MIB


def test_lengths_that_vary_strand_memory_and_expandable_segments_regain_it(
    replayer: Callable[[Trace], Replayer],
) -> None:
    machine = replayer(variable_length(100))
    default, expandable = machine.replay(""), machine.replay(EXPAND)
    assert default.reserved > 1.5 * default.active
    assert default.curve.grew > 0.3 * default.active
    assert expandable.reserved < 1.05 * expandable.active
    assert expandable.curve.grew == 0


def tables(*, large_first: bool) -> Trace:
    """Seven tables of 11 GiB, each filled from a buffer a little larger than the last one; 16 GiB of buffers in all."""
    made = Program()
    for number in range(7):
        if large_first:
            made.take(f"table{number}", 11 * GIB)
            continue
        made.take("buffer", GIB + number * 440 * MIB)
        made.take(f"table{number}", 11 * GIB)
        made.give("buffer")
    return made.trace()


def test_large_tables_first_leave_nothing_stranded(replayer: Callable[[Trace], Replayer]) -> None:
    late, early = replayer(tables(large_first=False)), replayer(tables(large_first=True))
    found = late.replay("")
    assert round(found.end_reserved / GIB) == 93
    assert round(found.most_stranded / GIB) == 16
    assert early.replay("").end_reserved == 77 * GIB
    # In need the allocator gives the buffers' segments or pages back; no option keeps them from being left behind.
    for conf in ("", EXPAND):
        needed = late.floor(conf).size
        assert needed is not None
        assert needed < 81 * GIB
        assert late.replay(conf).end_reserved > 92 * GIB


def test_a_limit_of_splitting_with_expandable_segments_grows_without_end(
    facts: TorchFacts, replayer: Callable[[Trace], Replayer]
) -> None:
    """Freed neighbours merge into blocks of 20 MiB and more, which smaller requests then never get."""
    made = Program()
    for number in range(60):
        made.take("one", 15 * MIB)
        made.take("two", 15 * MIB)
        made.take(f"mark{number}", 2 * MIB)
        made.give("one")
        made.give("two")
        if number:
            made.give(f"mark{number - 1}")
    machine = replayer(made.trace())
    both = f"{EXPAND},max_split_size_mb:20" if modern(facts) else f"{EXPAND},max_split_size_mb:21"
    alone, joined = machine.replay(EXPAND), machine.replay(both)
    assert alone.reserved <= 140 * MIB
    assert joined.reserved > 10 * alone.reserved
    assert joined.curve.grew > 0.5 * joined.reserved
    result = parse(both, version=machine.version)
    assert any(finding.kind is Kind.HARMFUL for finding in examine(result))


# -------------------------------------------------------------------------------------------------- real snapshots


def real_snapshots() -> list[Path]:
    folder = os.environ.get("PEAKMEM_SNAPSHOTS")
    return sorted(Path(folder).glob("*.pickle")) if folder else []


def interpreters() -> list[str]:
    """Ours, and those of other PyTorch versions that PEAKMEM_OTHER_PYTHONS names, separated by colons."""
    return [sys.executable, *filter(None, os.environ.get("PEAKMEM_OTHER_PYTHONS", "").split(":"))]


@pytest.mark.parametrize("python", interpreters(), ids=lambda path: Path(path).parents[1].name)
@pytest.mark.parametrize("path", real_snapshots(), ids=lambda path: path.stem)
def test_snapshots_of_real_cards_replay_to_the_reserved_memory_that_was_recorded(path: Path, python: str) -> None:
    trace = load_trace(path)
    recorded = Replay(trace)
    with Replayer(trace, facts=probe(python), card=CARD) as machine:
        found = machine.replay(trace.meta.alloc_conf)
    assert found.reserved == recorded.timeline.reserved.max()
    assert found.end_reserved == recorded.timeline.reserved[-1]
    assert found.active == recorded.timeline.active.max()


# ------------------------------------------------------------------------------------------------- the command, speed


def test_the_command_prints_a_table_and_timelines(tmp_path: Path) -> None:
    from peakmem.trace.file import write_trace

    path = write_trace(variable_length(20), tmp_path / "run.peakmem")
    done = run_peakmem(
        "replay",
        path,
        "--alloc-conf",
        "",
        "--alloc-conf",
        EXPAND,
        "--memory",
        "2GiB",
        "--floor",
        "--python",
        sys.executable,
    )
    assert done.code in (0, 1), done.err
    assert done.out.count("█") > 20
    for word in ("default settings", EXPAND, "floor", "stranded", "reserved over time"):
        assert word in done.out
    as_json = run_peakmem("replay", path, "--json", "-", "--python", sys.executable).json
    assert as_json["schema"] == "peakmem/replay/1"
    assert as_json["results"][0]["peak"]["reserved"] > as_json["results"][0]["peak"]["active"]
    assert len(as_json["results"][0]["timeline"]["reserved"]) == 240


def test_what_does_not_fit_gives_exit_code_1(tmp_path: Path) -> None:
    from peakmem.trace.file import write_trace

    path = write_trace(program("a=900M").trace(), tmp_path / "run.peakmem")
    done = run_peakmem("replay", path, "--memory", "1GiB", "--python", sys.executable)
    assert done.code == 1
    assert "out of memory under default settings: event 0" in done.out


def test_a_replay_handles_300000_requests_a_second(replayer: Callable[[Trace], Replayer]) -> None:
    numbers = random.Random(0)
    made, live = Program(), []
    for name in map(str, range(100_000)):
        made.take(name, int(2 ** numbers.uniform(6, 26)))
        live.append(name)
        if len(live) > 200:
            made.give(live.pop(numbers.randrange(len(live))))
    machine = replayer(made.trace())
    best = max(len(machine.requests) / machine.replay("").seconds for _ in range(5))
    assert best > 300_000, time.ctime()
