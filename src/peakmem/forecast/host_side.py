"""The host's side of a job on the virtual GPU: what was really resident, and what a real GPU and a longer run add.

Resident memory of the watched processes is real: models are built and loaded, data is read, workers run. Three things
are not: the driver (estimated), pinned pages that nobody wrote (counted by the virtual GPU), and time (bounds of what
grows).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from peakmem.forecast.host import Host, HostLater, HostLoader, HostPart, HostPinned

if TYPE_CHECKING:
    from peakmem.host.cuda_driver import DriverMemory
    from peakmem.host.cuda_libraries import LoadedLibraries
    from peakmem.host.tape import Taped

_LOAD_COMPILER = ("torchvision", "transformers")
"""Packages that import torch._dynamo themselves, before a model is built."""
NOTE = (
    "resident memory of the real processes, without a driver; its part is estimated. Page cache and other jobs of the "
    "node are not in it."
)
_COPIED_BY_READING = (
    "upper bound: a forked worker copies each page whose objects it reads, since reading changes their reference "
    "counts; it grows while the data set is read for the first time, then levels off. Arrays and tensors stay shared."
)


def host_side(
    recordings: Sequence[Mapping[str, Any]],
    main: Mapping[str, Any],
    taped: Taped,
    *,
    driver: DriverMemory,
    roles: Mapping[str, int],
    ranks: int | None = None,
    libraries: LoadedLibraries | None = None,
) -> Host | None:
    """What a job takes of the host.

    Args:
        recordings: of the processes that used the GPU.
        main: that of the process that the forecast is about.
        taped: resident memory of all its processes.
        driver: what the driver takes in each process that uses the GPU.
        roles: what the GPU holds at its peak by role, bytes.
        ranks: processes that train on one node; None: as many as were seen.
        libraries: those of CUDA, where stand-ins took their place.

    Returns:
        None where resident memory was not seen.
    """
    facts = main.get("host")
    if not facts or not facts.get("end"):
        return None
    users = [one for one in recordings if one.get("host")]
    pinned = _pinned(main)
    parts = (*_parts(main, taped, pinned, driver), *_cuda_libraries(libraries))
    peak = sum(part.bytes for part in parts)
    others = _other_processes(int(main["pid"]), taped)
    absent = libraries.anonymous + libraries.file if libraries else 0
    tree = max(_tree(users, taped, driver) + len(users) * absent, peak + others)
    loaders = tuple(_loader(row, taped, ended_early=main["reason"] == "enough") for row in facts["loaders"])
    seen = max(len(users), 1)
    # Workers and batches were looked at in one process; each rank has its own.
    # What others of the machine put there meanwhile is seen too, but without workers nothing of it is ours.
    seen_there = -(-taped.shm // seen) if loaders else 0
    shm = max(seen_there, sum(loader.shm for loader in loaders))
    later = _later(main, loaders, waiting=shm - _shared_now(taped), roles=roles)
    shared = min(int(facts["end"]["file"]) + (libraries.file if libraries else 0), tree)
    counted = sum(row.bytes for row in later if row.counted)
    per_rank = -(-(tree - shared) // seen) + counted
    count = ranks or seen
    return Host(
        peak_rss=peak,
        tree_rss=tree,
        parts=parts,
        pinned=pinned.bytes + pinned.registered if pinned else 0,
        pinning=pinned,
        driver=driver.size,
        driver_error=driver.error,
        graph_growth=_graph_growth(facts.get("graph_nodes", ())),
        loaders=loaders,
        later=later,
        shm=shm * count,
        ranks=count,
        per_rank=per_rank,
        shared=shared,
        node_peak=shared + count * per_rank,
        note=NOTE,
    )


def _graph_growth(nodes: Sequence[int]) -> int:
    """By how many nodes the autograd graph that is kept between steps grows with each step."""
    changes = [after - before for before, after in pairwise(nodes)]
    return max(min(changes), 0) if changes else 0


def _pinned(main: Mapping[str, Any]) -> HostPinned | None:
    counted = main["library"].get("pinned", {})
    if not counted.get("peak") and not counted.get("registered_peak"):
        return None
    requested = main["host"].get("pinned_requested") or None
    return HostPinned(
        bytes=counted["peak"],
        requested=min(requested, counted["peak"] + counted["registered_peak"]) if requested else None,
        registered=counted["registered_peak"],
        blocks=tuple((size, count) for size, count in sorted(counted["blocks_at_peak"], reverse=True)),
        rounded=_version(main["torch"]) >= (1, 11),
    )


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("+")[0].split(".")[:2] if part.isdecimal())


def _parts(
    main: Mapping[str, Any], taped: Taped, pinned: HostPinned | None, driver: DriverMemory
) -> tuple[HostPart, ...]:
    """The resident memory of the main process at its peak; the parts add up to it."""
    facts = main["host"]
    base, end = facts["base"], facts["end"]
    kinds, extra = taped.at_peaks.get(int(main["pid"]), (None, 0))
    anonymous, file, shared = (
        (kinds.anonymous, kinds.file, kinds.shared) if kinds else (end["anonymous"], end["file"], end["shared"])
    )
    # The kernel's own peak may be one that nobody looked at; what it was of is not known: most likely no file's.
    anonymous += max(end["peak"] - facts["own_highest"] - (anonymous + file + shared + extra), 0)
    beside_files = max(shared + extra, 0)
    anonymous = max(anonymous + min(shared + extra, 0), 0)  # what is peakmem's own may be more than what is shared
    held = min(pinned.bytes + pinned.registered, beside_files) if pinned else 0
    libraries = min(base.get("file", 0), file)
    interpreter = min(base.get("anonymous", 0), anonymous)
    framework = main.get("framework", "").partition(" ")[0]
    imported = framework.lower() or "torch"
    mapped = f"mapped files of Python and {framework or 'PyTorch'}"
    rows = (
        HostPart(name="libraries", bytes=libraries, source="measured", note=mapped),
        HostPart(name="interpreter", bytes=interpreter, source="measured", note=f"after import {imported}"),
        HostPart(
            name="objects and tensors",
            bytes=anonymous - interpreter,
            source="measured",
            note="models and data on the host",
        ),
        HostPart(
            name="more files",
            bytes=file - libraries,
            source="measured",
            note="libraries loaded later, mapped data",
        ),
        HostPart(name="pinned", bytes=held, source="counted", note="resident on a real GPU, written or not"),
        HostPart(name="shared memory", bytes=beside_files - held, source="measured", note="batches of workers"),
        *_spared(facts, resident=anonymous + file + beside_files),
        HostPart(name="driver", bytes=driver.size, source="estimated", note="libcuda and its context"),
    )
    return tuple(row for row in rows if row.bytes)


def _cuda_libraries(libraries: LoadedLibraries | None) -> tuple[HostPart, ...]:
    if libraries is None:
        return ()
    note = "cuBLAS and others, which a GPU's process loads; measured beside it"
    return (HostPart(name="CUDA libraries", bytes=libraries.anonymous + libraries.file, source="measured", note=note),)


def _spared(facts: Mapping[str, Any], *, resident: int) -> tuple[HostPart, ...]:
    """What peakmem has left out of its own training script, and a script of its own kind would hold."""
    spared = facts.get("spared") or {}
    built = sum(size for kind, size in (facts.get("at_cuda") or {}).items() if kind != "peak")
    unused, initial = spared.get("late", 0), spared.get("initial_values", 0)
    more = max(built + initial - resident, 0) if initial else 0
    if not any(name in spared.get("late_with", "") for name in _LOAD_COMPILER):
        # It comes with the optimizer, when the initial values have left the host: the higher of the two is the peak.
        more, unused = (more, 0) if more > unused else (0, unused)
    return (
        HostPart(
            name="initial values",
            bytes=more,
            source="counted",
            note="of a model that is built on the host and then moved; they were not drawn here",
        ),
        HostPart(
            name="unused libraries",
            bytes=unused,
            source="measured",
            note="torch._dynamo and others that get imported, though nothing uses them; they were not loaded here",
        ),
    )


def _other_processes(main: int, taped: Taped) -> int:
    """What the other processes had for themselves, when that of all together was highest."""
    moment = taped.highest
    if moment is None:
        return 0
    return sum(one.uss + moment.extras.get(pid, 0) for pid, one in moment.usages.items() if pid != main)


def _tree(users: Sequence[Mapping[str, Any]], taped: Taped, driver: DriverMemory) -> int:
    moment = taped.highest
    seen = moment.pss + moment.extra if moment is not None else 0
    return seen + len(users) * driver.size


def _shared_now(taped: Taped) -> int:
    """Shared memory that is mapped, and so in the tree's own memory, when that was highest."""
    moment = taped.highest
    return max((one.shared for one in moment.residents.values()), default=0) if moment is not None else 0


def _loader(row: Mapping[str, Any], taped: Taped, *, ended_early: bool) -> HostLoader:
    weight = row["weight"] or {"objects": 0, "buffers": 0, "mapped": 0, "partial": True}
    pids = set(row["pids"])
    own = max((max(one.uss, one.growth) for one in taped.processes if one.pid in pids), default=0)
    # What a worker has already is in the tree. A run that was ended early has read a few items of each.
    growth = weight["objects"] if ended_early else max(weight["objects"] - own, 0)
    return HostLoader(
        dataset=row["dataset"],
        workers=row["workers"],
        start=row["start"],
        prefetch=row["prefetch"],
        batch=row["batch"],
        pin_memory=row["pin_memory"],
        objects=weight["objects"],
        buffers=weight["buffers"],
        mapped=weight["mapped"],
        partial=weight["partial"],
        largest_worker=own,
        lagging=max(row["workers"] * own - _seen_of(pids, taped), 0) if pids else 0,
        shm=(row["workers"] * row["prefetch"] + 1) * row["batch"],
        growth=row["workers"] * growth if row["start"] == "fork" else 0,
    )


def _seen_of(pids: set[int], taped: Taped) -> int:
    """What these processes had for themselves when the memory of all was highest."""
    moment = taped.highest
    return sum(one.uss for pid, one in moment.usages.items() if pid in pids) if moment is not None else 0


def _later(
    main: Mapping[str, Any], loaders: Sequence[HostLoader], *, waiting: int, roles: Mapping[str, int]
) -> tuple[HostLater, ...]:
    rows = [
        HostLater(
            name=f"data set objects copied by {loader.workers} workers",
            bytes=loader.growth,
            counted=True,
            note=_COPIED_BY_READING,
        )
        for loader in loaders
        if loader.growth
    ]
    rows += [
        HostLater(
            name=f"{loader.workers} workers as large as the largest of them",
            bytes=loader.lagging,
            counted=True,
            note="what each worker reads or builds for itself; when the run was ended not all of them had done so",
        )
        for loader in loaders
        if loader.lagging
    ]
    if waiting > 0:
        rows.append(
            HostLater(
                name="batches waiting in /dev/shm",
                bytes=waiting,
                counted=True,
                note="workers x prefetch_factor batches, and one in use",
            )
        )
    unread = main["library"].get("pinned", {}).get("unread", 0)
    if unread:
        rows.append(
            HostLater(
                name="pages of mapped files read on their way to the GPU",
                bytes=unread,
                counted=False,
                note="checkpoints loaded by mapping: a real copy makes these pages resident, shared by all ranks; the "
                "kernel drops them where memory is short",
            )
        )
    state = roles.get("parameter", 0) + roles.get("buffer", 0) + roles.get("optimizer_state", 0)
    if main["reason"] == "enough" and state:
        rows.append(
            HostLater(
                name="checkpoint copied to the host",
                bytes=state,
                counted=False,
                note="if the whole state is moved to the CPU before it is saved; torch.save of GPU tensors copies one "
                "tensor at a time",
            )
        )
    return tuple(rows)
