"""The processes below a command, those included whose parent has ended."""

from __future__ import annotations

import os
from collections.abc import Iterable

from peakmem.host.procfs import Stat, last_pid, stat, thread_group

MOST_NEW = 256
"""With more new numbers than this since the last look, the list of all processes is read instead."""


class ProcessTree:
    """Finds a process and all that came from it.

    A process once seen stays known after its parent has ended (it then belongs to process 1, and no walk from above
    finds it any more). A number that was given to a new process does not count as the old one.

    Numbers are given out in rising order, and the kernel tells the last one (/proc/loadavg), so a look reads what is
    known and what is new, not all the processes of the machine.
    """

    def __init__(self, root: int) -> None:
        """Start from the process `root`."""
        self._root = root
        self._known: dict[int, Stat] = {}
        self._last: int | None = None

    def look(self) -> tuple[Stat, ...]:
        """The processes that live now, the oldest first; those that have ended but are still listed are left out."""
        last = last_pid()
        fresh = self._fresh(last)
        self._last = last
        still = {}
        for pid, known in self._known.items():
            now = stat(pid)
            if now is not None and now.started == known.started:
                still[pid] = now
        self._known = still
        self._add(fresh)
        return tuple(sorted((one for one in self._known.values() if not one.ended), key=lambda one: one.started))

    def _fresh(self, last: int | None) -> Iterable[int]:
        """Numbers that may have been given out since the last look."""
        if self._last is None or last is None or not self._last <= last <= self._last + MOST_NEW:
            return _all_pids()
        return range(self._last + 1, last + 1)

    def _add(self, pids: Iterable[int]) -> None:
        found = [one for one in map(stat, pids) if one is not None and one.pid not in self._known]
        more = True
        while more:
            more = False
            for one in found:
                # A thread answers to its number too, and has the parent of its process.
                if one.pid not in self._known and (one.pid == self._root or one.parent in self._known):
                    if one.pid != self._root and thread_group(one.pid) != one.pid:
                        continue
                    self._known[one.pid] = one
                    more = True


def _all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208 - called often
