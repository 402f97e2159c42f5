"""From a recording of training on the CPU to a `CpuForecast`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from peakmem.forecast.cpu_build import _thinned, build_cpu_forecast
from peakmem.host.library import CpuFacts
from peakmem.host.limits import Limit
from peakmem.host.measurement import ProcessPeak

MIB = 2**20
FACTS = CpuFacts(
    python=Path("/usr/bin/python"), machine="x86_64", version="2.13.0+cpu", folder=Path("/torch"), libc="glibc 2.36"
)


def recording(**changes: Any) -> dict[str, Any]:
    step = {"phases": {"forward": 400 * MIB, "backward": 600 * MIB, "optimizer": 500 * MIB}, "end": 450 * MIB}
    return {
        "pid": 7,
        "torch": "2.13.0+cpu",
        "reason": "enough",
        "error": None,
        "oom": None,
        "threads": 2,
        "steady": True,
        "base": 220 * MIB,
        "own": 2 * MIB,
        "late": {"with": "", "size": 0, "left_out": 0},
        "outside": 312 * MIB,
        "end": {"resident": 320 * MIB, "highest": 350 * MIB},
        "left": {"live": 0, "mapped": 0, "heap": 0, "touched": 0},
        "exit_touched": None,
        "at_fork": 0,
        "highest": {
            "resident": 602 * MIB, "live": 250 * MIB, "outside": 312 * MIB, "step": 0, "phase": "backward",
        },
        "steps": [step],
        "marks": [[10, "forward", 0], [20, "backward", 0], [30, "optimizer", 0]],
        "course": [[0, 0, 300 * MIB], [15, 200 * MIB, 550 * MIB], [25, 250 * MIB, 602 * MIB], [35, 0, 450 * MIB]],
        "roles": {"parameter": [50 * MIB, 4], "activation or temporary": [200 * MIB, 9]},
        "assumed": [],
    } | changes  # fmt: skip


def forecast(found: dict[str, Any], *, limit: int | None = None, processes: tuple[ProcessPeak, ...] = ()) -> Any:
    given_limit = None if limit is None else Limit(kind="physical", name="--memory", bytes=limit)
    return build_cpu_forecast(
        found, facts=FACTS, command=("train.py",), limit=given_limit, processes=processes, exit_code=0, seconds=1.0
    )


def process(pid: int, uss: int, first: float, last: float, *, growth: int = 0) -> ProcessPeak:
    pages = dict.fromkeys(("rss", "pss", "uss", "anonymous"), uss)
    return ProcessPeak(pid=pid, parent=7, command=(), file=0, shared=0, growth=growth, first=first, last=last, **pages)


def test_the_parts_close_the_sum_without_what_peakmem_takes_itself() -> None:
    host = forecast(recording()).host
    assert host.peak_rss == 600 * MIB
    assert sum(part.bytes for part in host.parts) == host.peak_rss
    assert {part.name: part.bytes // MIB for part in host.parts} == {
        "libraries": 220,
        "loaded later": 90,
        "tensors": 250,
        "heap held": 40,
    }
    assert host.steps[0].peak_rss == 598 * MIB
    assert host.course is not None
    assert host.course.step == (0, 0, 0, -1)


def test_libraries_that_were_left_out_count_as_loaded() -> None:
    with_it = forecast(recording(late=LEFT_OUT)).host
    assert with_it.peak_rss == 670 * MIB
    assert {part.name: part.bytes // MIB for part in with_it.parts}["loaded later"] == 160
    assert with_it.steps[0].peak_rss == 668 * MIB
    small = recording(late=LEFT_OUT, highest=SMALL, left=left(touched=120))
    assert forecast(small).host.peak_rss == (310 + 70 + 120) * MIB


def left(live: int = 0, mapped: int = 0, heap: int = 0, *, touched: int | None) -> dict[str, int | None]:
    return {"live": live * MIB, "mapped": mapped * MIB, "heap": heap * MIB, "touched": touched and touched * MIB}


LEFT_OUT = {"with": "2.13 3.11 ", "size": 70 * MIB, "left_out": 70 * MIB}
SMALL = {"resident": 322 * MIB, "live": 2 * MIB, "outside": 312 * MIB, "step": 0, "phase": "forward"}


def test_libraries_that_unload_at_the_end_may_be_the_peak() -> None:
    host = forecast(recording(highest=SMALL, left=left(touched=120))).host
    assert host.peak_rss == (310 + 120) * MIB
    assert sum(part.bytes for part in host.parts) == host.peak_rss
    assert (host.phase, host.step) == ("exit", None)
    assert forecast(recording(highest=SMALL, left=left(touched=5))).host.peak_rss == 320 * MIB


def test_what_was_not_unloaded_counts_as_it_was_seen_before() -> None:
    known = recording(highest=SMALL, left=left(touched=None), exit_touched=120 * MIB)
    assert forecast(known).host.peak_rss == (310 + 120) * MIB
    assert forecast(recording(highest=SMALL, left=None, exit_touched=120 * MIB)).host.phase == "forward"


def test_what_is_left_of_tensors_at_the_end_adds_to_what_libraries_touch() -> None:
    host = forecast(recording(left=left(200, 60, 190, touched=170))).host
    assert host.peak_rss == (310 + 250 + 170) * MIB
    assert {part.name: part.bytes // MIB for part in host.parts}["heap held"] == 50


def test_the_verdict_goes_by_the_memory_that_there_is() -> None:
    assert forecast(recording(), limit=500 * MIB).verdict == "does_not_fit"
    assert forecast(recording(), limit=610 * MIB).verdict == "tight"
    assert forecast(recording(), limit=2000 * MIB).verdict == "fits"
    assert forecast(recording()).verdict == "fits"


def test_workers_that_live_at_the_same_time_add_up_and_keep_what_was_there_when_they_forked() -> None:
    workers = (process(8, 30 * MIB, 1, 3), process(9, 20 * MIB, 2, 4), process(10, 40 * MIB, 5, 6))
    found = forecast(recording(at_fork=15 * MIB), processes=workers, limit=650 * MIB)
    assert found.host.tree_rss == (600 + 50 + 15) * MIB
    assert found.verdict == "does_not_fit"
    assert forecast(recording()).host.tree_rss is None


def test_workers_that_begin_anew_count_without_any_fork_and_other_programs_do_not() -> None:
    spawn = ("python", "-c", "from multiprocessing.spawn import spawn_main; spawn_main()", "--multiprocessing-fork")
    server = ("python", "-c", "from multiprocessing.forkserver import main; main(4, 5)")
    spawned = replace(process(8, 400 * MIB, 1, 4), command=spawn)
    compiler = replace(process(9, 90 * MIB, 1, 4), command=("cc1plus", "a.cpp"))
    assert forecast(recording(), processes=(spawned, compiler)).host.tree_rss == (600 + 400) * MIB
    served = (
        replace(process(8, 50 * MIB, 1, 4), command=server),
        replace(process(9, 30 * MIB, 2, 4), command=server, parent=8),
    )
    assert forecast(recording(), processes=served).host.tree_rss == (600 + 80) * MIB
    assert forecast(recording(), processes=(compiler,)).host.tree_rss is None


def test_workers_that_ended_before_their_pages_were_counted_count_by_what_they_grew() -> None:
    workers = (process(8, 0, 1, 3, growth=30 * MIB), process(9, 20 * MIB, 2, 4, growth=90 * MIB))
    assert forecast(recording(at_fork=15 * MIB), processes=workers).host.tree_rss == (600 + 50 + 15) * MIB


@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=3000))
def test_a_thinned_course_keeps_its_ends_its_peak_and_its_order(values: list[int]) -> None:
    array = np.array(values, dtype=np.int64)
    chosen = _thinned(array)
    assert chosen == sorted(set(chosen))
    assert chosen[0] == 0
    assert chosen[-1] == len(values) - 1
    assert array[chosen].max() == array.max()
    assert len(chosen) <= 402
