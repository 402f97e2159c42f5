"""From the recording of a process that trained on the CPU, its computing left out, to a `CpuForecast`."""

from __future__ import annotations

from typing import Any

import numpy as np

from peakmem import __version__
from peakmem.forecast.build import script_error
from peakmem.forecast.cpu import CpuForecast
from peakmem.forecast.cpu_tensorflow import really_taken, tensorflow_parts
from peakmem.forecast.host import Host, HostCourse, HostPart, HostStep
from peakmem.forecast.model import Assumption, Verdict, judge
from peakmem.host.library import CpuFacts
from peakmem.host.limits import Limit
from peakmem.host.measurement import ProcessPeak

MOST_POINTS = 400
ROLES = ("parameter", "gradient", "optimizer state", "activation or temporary")


def build_cpu_forecast(
    recording: dict[str, Any],
    *,
    facts: CpuFacts,
    command: tuple[str, ...],
    limit: Limit | None,
    processes: tuple[ProcessPeak, ...],
    ended_peak: int = 0,
    exit_code: int,
    seconds: float,
) -> CpuForecast:
    """Put together what is known.

    Args:
        recording: of the process that trained (`session/inside/cpu/watch.py`).
        facts: the PyTorch that it used.
        command: the command.
        limit: the memory that it may take; None: not asked.
        processes: those of the session, with what they really took.
        ended_peak: highest resident memory of any of them, as the kernel told it after their end; 0: not known.
        exit_code: of the command.
        seconds: wall time.
    """
    highest = recording["highest"]
    peak = training_peak(recording)
    step = highest["step"] if highest["step"] < len(recording["steps"]) else None
    own_peak = max(ended_peak, next((one.rss for one in processes if one.pid == recording["pid"]), 0))
    if not recording["torch"]:
        own_peak = really_taken(recording)
    parts, phase = (_parts if recording["torch"] else tensorflow_parts)(recording, peak), highest["phase"]
    leaving = _at_exit(recording)
    if sum(part.bytes for part in leaving) > peak:
        parts, phase, step = leaving, "exit", None
        peak = sum(part.bytes for part in parts)
    workers = _workers(recording, processes)
    tree = None if workers is None else peak + workers + recording["at_fork"]
    host = Host(
        peak_rss=peak,
        tree_rss=tree,
        threads=recording["threads"],
        limit=None if limit is None else limit.bytes,
        limit_name="" if limit is None else limit.name,
        parts=parts,
        roles=_roles(recording["roles"]),
        by_hand=recording.get("by_hand", 0),
        steps=_steps(recording),
        course=_course(recording),
        step=step,
        phase=phase,
    )
    taken = peak if tree is None else tree
    verdict: Verdict = "fits"
    if limit is not None:
        verdict = judge(used=taken, total=limit.bytes, failed=taken > limit.bytes)
    return CpuForecast(
        peakmem=__version__,
        torch=recording["torch"],
        framework=recording.get("framework", ""),
        libc=facts.libc,
        command=command,
        verdict=verdict,
        host=host,
        steady=bool(recording["steady"]),
        stopped="failed" if recording["error"] else recording["reason"],
        error=script_error(recording, exit_code),
        assumptions=tuple(Assumption(**row) for row in recording["assumed"]),
        seconds=seconds,
        own_peak=own_peak,
    )


def _roles(found: dict[str, Any]) -> tuple[HostPart, ...]:
    """What the tensors were for at the peak of the steps."""
    return tuple(HostPart(name=name, bytes=found[name][0], source="counted") for name in ROLES if name in found)


def _too_much(recording: dict[str, Any]) -> int:
    """By how much more the watched process holds than the script alone: peakmem, but for what it has left out."""
    return int(recording["own"]) - int(recording["late"]["left_out"]) - _hollow(recording, "resident")


def _hollow(recording: dict[str, Any], what: str) -> int:
    """What libraries would take that hollow ones stood for (`host/hollow.py`), bytes."""
    return int(recording.get("hollow", {}).get(what, 0))


def training_peak(recording: dict[str, Any]) -> int:
    """The highest resident memory before the end of the process, bytes."""
    return int(recording["highest"]["resident"]) - _too_much(recording)


def libraries(recording: dict[str, Any]) -> tuple[int, int]:
    """What is resident beside tensors and the heap then, bytes: as imported, and loaded later."""
    base = int(recording["base"]) + _hollow(recording, "resident")
    return base, int(recording["highest"]["outside"]) - _too_much(recording) - base


def _parts(recording: dict[str, Any], peak: int) -> tuple[HostPart, ...]:
    highest = recording["highest"]
    live = highest["live"]
    base, outside = libraries(recording)
    held = peak - live - base - outside
    return (
        HostPart(
            name="libraries",
            bytes=base,
            source="measured",
            note="Python and torch, as imported",
        ),
        HostPart(
            name="loaded later",
            bytes=outside,
            source="measured",
            note="modules, kernels' code, MKL's buffers",
        ),
        HostPart(name="tensors", bytes=live, source="counted", note="in use"),
        HostPart(
            name="heap held",
            bytes=held,
            source="counted",
            note="free, but kept by malloc",
        ),
    )


def _at_exit(recording: dict[str, Any]) -> tuple[HostPart, ...]:
    """What the process takes at its very end: the libraries of the CUDA build touch 124 MiB when they are unloaded.

    What is then left of the tensors, and of the heap that they lay in, the books tell as their last.
    """
    left = recording["left"]
    touched = left and (recording["exit_touched"] if left["touched"] is None else left["touched"])
    if not touched:
        return ()
    touched += _hollow(recording, "touched")
    base = int(recording["base"]) + _hollow(recording, "resident")
    return (
        HostPart(name="libraries", bytes=base, source="measured", note="Python and torch, as imported"),
        HostPart(
            name="loaded later",
            bytes=recording["outside"] - _too_much(recording) - base,
            source="measured",
            note="modules, kernels' code, MKL's buffers",
        ),
        HostPart(name="tensors", bytes=left["live"], source="counted", note="in use"),
        HostPart(
            name="heap held",
            bytes=left["mapped"] + left["heap"] - left["live"],
            source="counted",
            note="free, but kept by malloc",
        ),
        HostPart(name="at exit", bytes=touched, source="measured", note="touched when libraries unload"),
    )


def _steps(recording: dict[str, Any]) -> tuple[HostStep, ...]:
    too_much = _too_much(recording)
    return tuple(
        HostStep(
            index=index,
            peak_rss=max(step["phases"].values()) - too_much,
            end_rss=step["end"] - too_much,
            phases={name: size - too_much for name, size in step["phases"].items()},
        )
        for index, step in enumerate(recording["steps"])
    )


def _course(recording: dict[str, Any]) -> HostCourse | None:
    rows = np.array(recording["course"], dtype=np.int64).reshape(-1, 3)
    if not len(rows):
        return None
    ends = [event for event, phase, _ in recording["marks"] if phase == "optimizer"]
    chosen = _thinned(rows[:, 2])
    events = rows[chosen, 0]
    steps = np.searchsorted(np.array(ends[: len(recording["steps"])], dtype=np.int64), events)
    steps[steps >= len(recording["steps"])] = -1
    return HostCourse(
        event=tuple(events.tolist()),
        rss=tuple((rows[chosen, 2] - _too_much(recording)).tolist()),
        tensors=tuple(rows[chosen, 1].tolist()),
        step=tuple(steps.tolist()),
    )


def _thinned(values: np.ndarray[Any, np.dtype[np.int64]]) -> list[int]:
    """Places of about `MOST_POINTS` values: of each stretch the highest and the lowest."""
    if len(values) <= MOST_POINTS:
        return list(range(len(values)))
    chosen: set[int] = {0, len(values) - 1}
    for part in np.array_split(np.arange(len(values)), MOST_POINTS // 2):
        chosen.add(int(part[values[part].argmax()]))
        chosen.add(int(part[values[part].argmin()]))
    return sorted(chosen)


def _workers(recording: dict[str, Any], processes: tuple[ProcessPeak, ...]) -> int | None:
    """What the processes below the one that trains had for themselves, those that lived at the same time together."""
    below = [one for one in _below(recording, processes) if _own(one)]
    if not below:
        return None
    return max(sum(_own(one) for one in below if one.first <= at.first <= one.last) for at in below)


def _below(recording: dict[str, Any], processes: tuple[ProcessPeak, ...]) -> list[ProcessPeak]:
    """Copies of the process that trains, and workers that are no copies but were begun anew, with imports of their own.

    Other programs that a script starts, such as compilers, are not what training takes.
    """
    spawned: dict[int, ProcessPeak] = {}
    for one in sorted(processes, key=lambda process: process.first):
        if one.parent in spawned or (one.parent == recording["pid"] and _begun_anew(one)):
            spawned[one.pid] = one
    forked = [one for one in processes if one.parent == recording["pid"]] if recording["at_fork"] else []
    return forked + [one for one in spawned.values() if one not in forked]


def _begun_anew(process: ProcessPeak) -> bool:
    """By the words that Python starts such workers with (CPython 3.13, Lib/multiprocessing/spawn.py, forkserver.py)."""
    return any(
        word.startswith(("from multiprocessing.spawn ", "from multiprocessing.forkserver ")) for word in process.command
    )


def _own(process: ProcessPeak) -> int:
    """What a forked process had for itself; where it ended before its pages were counted, by how much it grew."""
    return process.uss or process.growth
