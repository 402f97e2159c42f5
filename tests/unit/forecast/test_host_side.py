"""From what the tape and the watched process saw to what a job takes of the host."""

from __future__ import annotations

from typing import Any

import pytest

from peakmem.forecast.host import Host
from peakmem.forecast.host_side import host_side
from peakmem.host.cuda_driver import DriverMemory
from peakmem.host.cuda_libraries import LoadedLibraries
from peakmem.host.measurement import Cost, Points, ProcessPeak
from peakmem.host.procfs import Resident, Usage
from peakmem.host.tape import Moment, Taped

MIB = 2**20
DRIVER = DriverMemory(size=100 * MIB, error=90 * MIB)
BASE = {"peak": 500 * MIB, "anonymous": 280 * MIB, "file": 220 * MIB, "shared": 0}
MAIN = 10


def recording(**host: Any) -> dict[str, Any]:
    facts = {
        "base": BASE,
        "at_cuda": BASE,
        "end": {"peak": 900 * MIB, "anonymous": 600 * MIB, "file": 300 * MIB, "shared": 0},
        "steps": [],
        "graph_nodes": [],
        "own_highest": 0,
        "pinned_requested": 0,
        "loaders": [],
        **host,
    }
    return {"pid": MAIN, "torch": "2.14.1+cu130", "reason": "end", "host": facts, "library": {}}


def usage(pss: int, uss: int | None = None) -> Usage:
    own = pss if uss is None else uss
    return Usage(rss=pss, pss=pss, uss=own, dirty=own, anonymous=own, swap=0)


def process(pid: int, *, uss: int = 0, growth: int = 0) -> ProcessPeak:
    return ProcessPeak(
        pid=pid, parent=MAIN, command=(), rss=0, pss=0, uss=uss, anonymous=0, file=0, shared=0, growth=growth,
        first=0, last=1,
    )  # fmt: skip


def taped(
    *,
    main: Resident,
    extra: int = 0,
    usages: dict[int, Usage] | None = None,
    shm: int = 0,
    others: tuple[Any, ...] = (),
) -> Taped:
    pages = usages or {MAIN: usage(main.rss)}
    return Taped(
        points=Points(),
        processes=(process(MAIN), *others),
        highest=Moment(seconds=1, usages=pages, residents={MAIN: main}, extras={MAIN: extra}),
        at_peaks={MAIN: (main, extra)},
        rss=main.rss,
        uss=0,
        swap=0,
        shm=shm,
        groups=(),
        group_before=0,
        group_highest=0,
        group_peak=None,
        limits=(),
        cost=Cost(samples=1, page_samples=1, cpu_seconds=0, share=0),
    )


def resident(anonymous: int = 600, file: int = 300, shared: int = 0) -> Resident:
    total = (anonymous + file + shared) * MIB
    return Resident(peak=total, anonymous=anonymous * MIB, file=file * MIB, shared=shared * MIB)


def made(found: dict[str, Any], tape: Taped, **options: Any) -> Host:
    host = host_side([found], found, tape, driver=DRIVER, roles=options.pop("roles", {}), **options)
    assert host is not None
    return host


def parts(host: Host) -> dict[str, int]:
    return {part.name: part.bytes // MIB for part in host.parts}


def test_the_parts_add_up_to_the_peak() -> None:
    host = made(recording(), taped(main=resident()))
    assert parts(host) == {
        "libraries": 220, "interpreter": 280, "objects and tensors": 320, "more files": 80, "driver": 100,
    }  # fmt: skip
    assert host.peak_rss == sum(part.bytes for part in host.parts) == 1000 * MIB
    assert host.node_peak == host.tree_rss == host.peak_rss


def test_a_peak_that_only_the_kernel_saw_counts_as_memory_of_no_file() -> None:
    found = recording(end={"peak": 2000 * MIB, "anonymous": 600 * MIB, "file": 300 * MIB, "shared": 0})
    host = made(found, taped(main=resident()))
    assert parts(host)["objects and tensors"] == 320 + 1100
    assert host.peak_rss == 2100 * MIB


def test_what_peakmem_keeps_for_itself_is_no_peak_of_the_script() -> None:
    end = {"peak": 2000 * MIB, "anonymous": 600 * MIB, "file": 300 * MIB, "shared": 0}
    host = made(recording(end=end, own_highest=64 * MIB), taped(main=resident(shared=64), extra=-64 * MIB))
    assert host.peak_rss == (2100 - 64) * MIB
    assert "shared memory" not in parts(host)


def test_pinned_pages_count_written_or_not() -> None:
    found = recording(pinned_requested=810 * MIB)
    found["library"]["pinned"] = {
        "peak": 1024 * MIB, "registered_peak": 0, "blocks_at_peak": [[1024 * MIB, 1]],
    }  # fmt: skip
    # 24 MiB of it were written, and are resident here as shared memory.
    host = made(found, taped(main=resident(shared=24), extra=1000 * MIB))
    assert parts(host)["pinned"] == 1024
    assert "shared memory" not in parts(host)
    assert host.pinned == 1024 * MIB
    assert host.pinning is not None
    assert host.pinning.requested == 810 * MIB
    assert host.pinning.rounded
    assert host.peak_rss == (900 + 1024 + 100) * MIB


@pytest.mark.parametrize(("torch", "rounded"), [("1.10.2+cu113", False), ("1.11.0+cu113", True), ("2.6.0+cu124", True)])
def test_rounding_began_with_a_version(torch: str, rounded: bool) -> None:
    found = recording() | {"torch": torch}
    found["library"]["pinned"] = {"peak": MIB, "registered_peak": 0, "blocks_at_peak": [[MIB, 1]]}
    host = made(found, taped(main=resident(), extra=MIB))
    assert host.pinning is not None
    assert host.pinning.rounded == rounded


LOADER = {
    "dataset": "Frame",
    "workers": 4,
    "prefetch": 2,
    "pin_memory": False,
    "persistent": True,
    "batch_size": 8,
    "start": "fork",
    "batch": 10 * MIB,
    "batches": 3,
    "pids": [11, 12, 13, 14],
    "weight": {"objects": 5000 * MIB, "buffers": 0, "mapped": 0, "partial": False},
}


def test_objects_are_copied_by_each_forked_worker_in_the_limit() -> None:
    """pytorch/pytorch issue 5902: 5 GB of objects, in the limit main + workers x objects."""
    found = recording(loaders=[LOADER]) | {"reason": "enough"}
    host = made(found, taped(main=resident(anonymous=5600)))
    (loader,) = host.loaders
    assert loader.growth == 4 * 5000 * MIB
    copied = next(row for row in host.later if "copied" in row.name)
    assert copied.counted
    assert host.tree_rss is not None
    assert host.node_peak == host.tree_rss + copied.bytes + loader.shm


def test_arrays_stay_shared() -> None:
    row = LOADER | {"weight": {"objects": 0, "buffers": 5000 * MIB, "mapped": 0, "partial": False}}
    host = made(recording(loaders=[row]), taped(main=resident(anonymous=5600)))
    assert host.loaders[0].growth == 0
    assert not any("copied by" in later.name for later in host.later)


def test_spawned_workers_have_their_copy_from_the_start() -> None:
    host = made(recording(loaders=[LOADER | {"start": "spawn"}]), taped(main=resident()))
    assert host.loaders[0].growth == 0


def test_what_a_whole_run_copied_already_is_not_counted_again() -> None:
    tape = taped(main=resident(), others=(process(11, uss=5000 * MIB),))
    assert made(recording(loaders=[LOADER]), tape).loaders[0].growth == 0


def test_workers_that_lag_behind_will_be_as_large_as_the_largest() -> None:
    """Each of 8 workers reads the same 4.1 GB; when the run was ended, only the first had."""
    size = 4100 * MIB
    row = LOADER | {"workers": 8, "pids": list(range(11, 19)), "weight": None, "batch": 0}
    usages = {MAIN: usage(900 * MIB), 11: usage(size), 12: usage(100 * MIB)}
    tape = taped(main=resident(), usages=usages, others=(process(11, uss=size), process(12, growth=100 * MIB)))
    host = made(recording(loaders=[row]), tape)
    assert host.loaders[0].largest_worker == size
    assert host.loaders[0].lagging == 8 * size - size - 100 * MIB
    assert host.node_peak == (900 + 100) * MIB + 8 * size


def test_batches_wait_in_shared_memory() -> None:
    host = made(recording(loaders=[LOADER | {"weight": None}]), taped(main=resident(), shm=3 * MIB))
    assert host.shm == (4 * 2 + 1) * 10 * MIB
    host = made(recording(loaders=[LOADER | {"weight": None}]), taped(main=resident(), shm=300 * MIB))
    assert host.shm == 300 * MIB


@pytest.mark.parametrize("ranks", [1, 8])
def test_ranks_share_files_and_nothing_else(ranks: int) -> None:
    host = made(recording(), taped(main=resident()), ranks=ranks)
    assert (host.shared, host.per_rank) == (300 * MIB, 700 * MIB)
    assert host.node_peak == (300 + ranks * 700) * MIB
    assert host.ranks == ranks


def test_ranks_that_were_seen_are_counted_as_seen() -> None:
    first, second = recording(), recording() | {"pid": 20}
    usages = {MAIN: usage(800 * MIB), 20: usage(700 * MIB)}
    host = host_side([first, second], first, taped(main=resident(), usages=usages), driver=DRIVER, roles={}, ranks=None)
    assert host is not None
    assert host.ranks == 2
    assert host.tree_rss == (800 + 700 + 200) * MIB
    assert host.node_peak == host.tree_rss


def test_a_checkpoint_is_told_of_where_the_run_was_ended_before_it() -> None:
    roles = {"parameter": 10 * MIB, "optimizer_state": 20 * MIB, "activation": 99 * MIB}
    ended = made(recording() | {"reason": "enough"}, taped(main=resident()), roles=roles)
    (row,) = ended.later
    assert (row.bytes, row.counted) == (30 * MIB, False)
    assert made(recording(), taped(main=resident()), roles=roles).later == ()


@pytest.mark.parametrize(
    ("nodes", "growth"), [([123, 165, 207], 42), ([123, 165, 165], 0), ([81, 81], 0), ([300], 0), ([], 0)]
)
def test_a_graph_that_grows_with_every_step(nodes: list[int], growth: int) -> None:
    assert made(recording(graph_nodes=nodes), taped(main=resident())).graph_growth == growth


def test_without_figures_of_the_process_there_is_nothing_to_tell() -> None:
    found = recording()
    found["host"]["end"] = {}
    assert host_side([found], found, taped(main=resident()), driver=DRIVER, roles={}) is None


def test_tensorflow_is_named_and_libraries_that_stand_ins_replaced_come_on_top() -> None:
    main = {**recording(), "framework": "TensorFlow 2.21.0", "torch": ""}
    found = host_side(
        [main], main, taped(main=resident()), driver=DRIVER, roles={},
        libraries=LoadedLibraries(anonymous=90 * MIB, file=80 * MIB),
    )  # fmt: skip
    without = host_side([main], main, taped(main=resident()), driver=DRIVER, roles={})
    assert found is not None and without is not None
    notes = {part.name: part.note for part in found.parts}
    assert notes["libraries"] == "mapped files of Python and TensorFlow"
    assert notes["interpreter"] == "after import tensorflow"
    assert found.peak_rss - without.peak_rss == 170 * MIB
    assert found.tree_rss is not None and without.tree_rss is not None
    assert found.tree_rss - without.tree_rss == 170 * MIB
    assert found.shared - without.shared == 80 * MIB
    assert sum(part.bytes for part in found.parts) == found.peak_rss


def test_what_is_peakmems_own_does_not_count_wherever_it_lies() -> None:
    main = recording(
        end={"peak": 900 * MIB, "anonymous": 600 * MIB, "file": 300 * MIB, "shared": 0}, own_highest=50 * MIB
    )
    found = host_side([main], main, taped(main=resident(), extra=-50 * MIB), driver=DRIVER, roles={})
    assert found is not None
    assert found.peak_rss == (900 - 50) * MIB + DRIVER.size
    assert {part.name: part.bytes for part in found.parts}["objects and tensors"] == (600 - 280 - 50) * MIB
