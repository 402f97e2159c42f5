"""The limits that can end a process for its host memory, read from this machine."""

from __future__ import annotations

import os
import resource
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from peakmem.host.cgroups import Group, groups_of

LimitKind = Literal["cgroup", "physical", "address_space", "data", "shm"]

WHAT_HAPPENS = {
    "cgroup": "the kernel kills a process of the group (SIGKILL, exit code 137)",
    "physical": "the kernel kills the largest process of the machine",
    "address_space": "allocations fail: MemoryError, or DefaultCPUAllocator: can't allocate memory",
    "data": "allocations fail: MemoryError, or DefaultCPUAllocator: can't allocate memory",
    "shm": "DataLoader workers end with a bus error",
}
"""What a process meets beyond a limit, by its kind."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Limit:
    """One limit.

    Attributes:
        kind: what it counts: memory of a control group, of the machine, address space, data segment, /dev/shm.
        name: where it is set, in the words of whoever set it.
        bytes: how much may be used.
        free: what was left of it when it was read; None if that is not known or means nothing yet.
    """

    kind: LimitKind
    name: str
    bytes: int
    free: int | None = None


def limits_of(
    pid: int | str = "self", *, proc: Path = Path("/proc"), shm: Path = Path("/dev/shm")
) -> tuple[Limit, ...]:
    """All limits that hold for a process, the tightest first.

    Args:
        pid: the process.
        proc: where /proc is.
        shm: where shared memory lies.
    """
    found = [*_of_groups(groups_of(pid, proc=proc)), *_of_machine(proc), *_of_resources(pid, proc), *_of_shm(shm)]
    return tuple(sorted(found, key=lambda limit: limit.bytes))


def _of_groups(groups: Sequence[Group]) -> list[Limit]:
    found = []
    for group in groups:
        size = group.limit()
        if size is not None:
            current = group.current()
            name = f"{'memory.max' if group.version == 2 else 'memory.limit_in_bytes'} of {group.path}"
            free = None if current is None else max(size - current + (group.file_cache() or 0), 0)
            found.append(Limit(kind="cgroup", name=name, bytes=size, free=free))
    return found


def _of_machine(proc: Path) -> list[Limit]:
    fields = {}
    try:
        text = (proc / "meminfo").read_text()
    except OSError:
        return []
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdecimal():
            fields[name] = int(words[0]) * 1024
    if "MemTotal" not in fields:
        return []
    swap = fields.get("SwapTotal", 0)
    name = "memory of this machine" + (" and its swap" if swap else "")
    available = fields.get("MemAvailable")
    free = None if available is None else available + fields.get("SwapFree", 0)
    return [Limit(kind="physical", name=name, bytes=fields["MemTotal"] + swap, free=free)]


def _of_resources(pid: int | str, proc: Path) -> list[Limit]:
    """`ulimit -v` and `ulimit -d`, from /proc/PID/limits; RLIMIT_RSS has no effect in Linux."""
    try:
        text = (proc / str(pid) / "limits").read_text()
    except OSError:
        return []
    found = []
    for line in text.splitlines():
        for title, kind, name in (
            ("Max address space", "address_space", "ulimit -v"),
            ("Max data size", "data", "ulimit -d"),
        ):
            words = line[len(title) :].split()
            if line.startswith(title) and words and words[0].isdecimal():
                found.append(Limit(kind=kind, name=name, bytes=int(words[0])))  # type: ignore[arg-type]
    return found


def _of_shm(shm: Path) -> list[Limit]:
    space = shm_space(shm)
    return [] if space is None else [Limit(kind="shm", name=f"size of {shm}", bytes=space[0], free=space[1])]


def shm_space(shm: Path = Path("/dev/shm")) -> tuple[int, int] | None:
    """Size and free bytes of the shared memory file system; None where there is none."""
    try:
        space = os.statvfs(shm)
    except OSError:
        return None
    return space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize


def own_peak() -> int:
    """The highest resident memory that this very process ever had, bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
