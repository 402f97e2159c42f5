"""What Linux tells of the memory of a process: `/proc/PID/statm`, `smaps_rollup`, `status`, `stat`. All in bytes."""

from __future__ import annotations

import os
from dataclasses import dataclass

PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """Memory of one process at one moment (`/proc/PID/smaps_rollup`; the words are those of `man 5 proc`).

    Attributes:
        rss: resident pages; what several processes share counts in each of them.
        pss: resident pages, each divided by the number of processes that have it mapped.
        uss: resident pages that no other process has mapped: what would be free if this process alone ended.
        dirty: of `uss`, what was written: it can't be dropped and read again from a file.
        anonymous: resident pages that belong to no file, shared by fork or not.
        swap: pages moved out to swap.
    """

    rss: int
    pss: int
    uss: int
    dirty: int
    anonymous: int
    swap: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Resident:
    """The kinds of resident memory of one process (`/proc/PID/status`).

    Attributes:
        peak: highest `rss` that the process ever had, as the kernel keeps it (VmHWM).
        anonymous: heap, stacks, and other memory that belongs to no file (RssAnon).
        file: pages of files: programs, libraries, mapped data (RssFile); the kernel can drop those that are clean.
        shared: shared memory: /dev/shm, shared mappings (RssShmem).
    """

    peak: int
    anonymous: int
    file: int
    shared: int

    @property
    def rss(self) -> int:
        """All resident memory."""
        return self.anonymous + self.file + self.shared


@dataclass(frozen=True, kw_only=True, slots=True)
class Stat:
    """Who a process is (`/proc/PID/stat`).

    Attributes:
        pid: its number.
        parent: number of its parent.
        started: clock ticks from the start of the machine to its own; with `pid` it names a process for good.
        ended: whether it is a zombie: it has ended, and nobody has asked how.
    """

    pid: int
    parent: int
    started: int
    ended: bool


def usage(pid: int) -> Usage | None:
    """What a process holds now; None if it is gone, or not ours to look at."""
    fields = _fields(f"/proc/{pid}/smaps_rollup")
    if "Rss" not in fields:
        return None
    dirty = fields.get("Private_Dirty", 0)
    return Usage(
        rss=fields["Rss"],
        pss=fields.get("Pss", fields["Rss"]),
        uss=fields.get("Private_Clean", 0) + dirty,
        dirty=dirty,
        anonymous=fields.get("Anonymous", 0),
        swap=fields.get("SwapPss", fields.get("Swap", 0)),
    )


def resident(pid: int) -> Resident | None:
    """The kinds of resident memory of a process; None if it is gone or a zombie."""
    fields = _fields(f"/proc/{pid}/status")
    if "VmHWM" not in fields:
        return None
    return Resident(
        peak=fields["VmHWM"],
        anonymous=fields.get("RssAnon", 0),
        file=fields.get("RssFile", 0),
        shared=fields.get("RssShmem", 0),
    )


def rss(pid: int) -> int:
    """Resident memory of a process; 0 if it is gone. The cheapest of all: the kernel keeps this number."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:  # noqa: PTH123 - called many times a second
            return int(file.read().split()[1]) * PAGE
    except (OSError, IndexError, ValueError):
        return 0


def stat(pid: int) -> Stat | None:
    """Who a process is; None if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            text = file.read()
    except OSError:
        return None
    # The name stands in brackets and may hold anything, brackets too.
    rest = text[text.rfind(b")") + 2 :].split()
    return Stat(pid=pid, parent=int(rest[1]), started=int(rest[19]), ended=rest[0] in (b"Z", b"X"))


def last_pid() -> int | None:
    """The number that the newest process or thread got (the last field of /proc/loadavg); None if that is not told."""
    try:
        with open("/proc/loadavg", "rb") as file:  # noqa: PTH123
            return int(file.read().split()[-1])
    except (OSError, ValueError, IndexError):
        return None


def thread_group(pid: int) -> int | None:
    """The process that a thread belongs to, its own number for a process; None if it is gone."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:  # noqa: PTH123
            for line in file:
                if line.startswith(b"Tgid:"):
                    return int(line.split()[1])
    except (OSError, ValueError):
        pass
    return None


def command_line(pid: int) -> tuple[str, ...]:
    """The words that a process was started with; empty if it is gone."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123
            words = file.read().rstrip(b"\0")
    except OSError:
        return ()
    return tuple(word.decode("utf-8", "replace") for word in words.split(b"\0")) if words else ()


def _fields(path: str) -> dict[str, int]:
    """The lines "Name:   12 kB" of a file, in bytes."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            text = file.read()
    except OSError:
        return {}
    found = {}
    for line in text.splitlines():
        name, _, rest = line.partition(b":")
        words = rest.split()
        if len(words) == 2 and words[1] == b"kB":
            found[name.decode()] = int(words[0]) * 1024
    return found
