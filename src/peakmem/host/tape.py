"""The measuring tape: looks at a process tree from outside while it runs, at a cost that is kept small.

Two clocks, each held to a share of wall time. The kernel's own counters of a process (`/proc/PID/status`) are cheap and
read often. Counting its pages (`smaps_rollup`, for PSS and USS) walks its page tables, about 20 ms for each GiB that is
resident, and holds its memory map meanwhile: it is done more rarely the larger the processes are, and sooner when
they have grown.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from peakmem.host.cgroups import Group, groups_of
from peakmem.host.limits import Limit, limits_of, shm_space
from peakmem.host.measurement import Cost, Points, ProcessPeak
from peakmem.host.procfs import Resident, Stat, Usage, command_line, resident, usage
from peakmem.host.tree import ProcessTree

SHARE = 0.003
"""Most of wall time that each of the two clocks may take of one processor, in the long run."""
ALLOWANCE, AT_MOST = 0.1, 0.03
"""Seconds of processor time that each clock may take at first, at up to this share: short runs are seen well too."""
SHORTEST, LONGEST = 0.01, 1.0
"""Seconds between two looks at the counters."""
SHORTEST_PAGES = 0.05
"""Seconds between two counts of pages, at least."""
GROWN = 1.02
"""Pages are counted sooner once the counters exceed those of all counts so far by this factor."""
SOONER = 4
"""How many times sooner."""
NEW_AFTER = 0.2
"""A new process is counted sooner too, once it has lived so many seconds: workers of a DataLoader come and go."""
MOST_POINTS = 1500


@dataclass(frozen=True, kw_only=True, slots=True)
class Moment:
    """The tree at the moment when its pages were counted.

    Attributes:
        seconds: from the start.
        usages: pages by process number.
        residents: counters by process number.
        extras: what `Tape`'s `extra` gave, by process number.
    """

    seconds: float
    usages: dict[int, Usage]
    residents: dict[int, Resident]
    extras: dict[int, int]

    @property
    def pss(self) -> int:
        """Sum over the tree."""
        return sum(one.pss for one in self.usages.values())

    @property
    def extra(self) -> int:
        """Sum over the tree."""
        return sum(self.extras.values())

    @property
    def uss(self) -> int:
        """Sum over the tree."""
        return sum(one.uss for one in self.usages.values())

    @property
    def swap(self) -> int:
        """Sum over the tree."""
        return sum(one.swap for one in self.usages.values())


@dataclass(frozen=True, kw_only=True, slots=True)
class Taped:
    """What the tape has recorded.

    Attributes:
        points: over time.
        processes: one by one, in the order in which they began.
        highest: when PSS (with `extra`) was highest; None if nothing was seen.
        at_peaks: for each process the counters and the extra when their sum was highest.
        rss, uss, swap, shm: highest sums over the tree.
        groups: the control groups of the root process, the innermost first.
        group_before, group_highest: charge of the innermost.
        group_peak: its kernel-kept peak, if that rose meanwhile.
        limits: those of the root process.
        cost: of recording.
    """

    points: Points
    processes: tuple[ProcessPeak, ...]
    highest: Moment | None
    at_peaks: dict[int, tuple[Resident, int]]
    rss: int
    uss: int
    swap: int
    shm: int
    groups: tuple[Group, ...]
    group_before: int
    group_highest: int
    group_peak: int | None
    limits: tuple[Limit, ...]
    cost: Cost


@dataclass
class _Process:
    stat: Stat
    command: tuple[str, ...]
    first: float
    last: float = 0.0
    rss: int = 0
    pss: int = 0
    uss: int = 0
    at_highest: Resident | None = None
    extra: int = 0
    anonymous_first: int | None = None
    anonymous_most: int = 0


@dataclass
class _Point:
    seconds: float
    rss: int
    pss: int
    shm: int
    processes: int
    gpu: int


@dataclass
class _Clock:
    """When to look again, so that looking takes no more than its share beyond a first allowance."""

    share: float
    shortest: float
    longest: float
    took: float = 0.0
    spent: float = 0.0
    last: float = 0.0

    def taken(self, processor: float) -> None:
        """A look took this much processor time, seconds."""
        self.took = processor
        self.spent += processor
        self.last = time.monotonic()

    def due(self, *, sooner: int = 1) -> float:
        """When to look again; `sooner` times sooner where there is reason to."""
        share = self.share * sooner if self.spent > ALLOWANCE else AT_MOST
        return self.last + min(max(self.took / min(share, AT_MOST), self.shortest), self.longest)


class Tape:
    """Records a process tree in a thread of its own.

    Args:
        root: number of the process at the top; it must be a child of ours that was not waited for.
        share: of wall time that looking may take.
        gpu: gives the GPU memory that these processes use now, bytes.
        extra: gives for a process the bytes that count as resident although the counters don't show them (negative:
            those that don't count); None: the process is not looked at any more.
    """

    def __init__(
        self,
        root: int,
        *,
        share: float = SHARE,
        gpu: Callable[[set[int]], int] | None = None,
        extra: Callable[[int], int | None] | None = None,
    ) -> None:
        self._root = root
        self._tree = ProcessTree(root)
        self._gpu = gpu
        self._extra = extra
        self._counters = _Clock(share=share, shortest=SHORTEST, longest=LONGEST)
        self._pages = _Clock(share=share, shortest=SHORTEST_PAGES, longest=float("inf"))
        self._started = time.monotonic()
        self._processes: dict[tuple[int, int], _Process] = {}
        self._points: list[_Point] = []
        self._highest: Moment | None = None
        self._rss = self._uss = self._swap = self._shm = 0
        self._last_pss = self._rss_at_pages = 0
        self._samples = self._page_samples = 0
        self._cpu = 0.0
        space = shm_space()
        self._shm_before = space[0] - space[1] if space else 0
        self._groups = groups_of(root)
        self._group = self._groups[0] if self._groups else None
        self._group_before = self._group_highest = (self._group.current() or 0) if self._group else 0
        self._group_peak_before = self._group.peak() if self._group else None
        self._limits = limits_of(root)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._record, name="peakmem-tape", daemon=True)

    def start(self) -> Tape:
        """Begin; `stop` must be called."""
        self._thread.start()
        return self

    @property
    def groups(self) -> tuple[Group, ...]:
        """The control groups of the root process, the innermost first."""
        return self._groups

    def stop(self) -> Taped:
        """End the recording, and give what it has."""
        self._stop.set()
        self._thread.join()
        seconds = max(time.monotonic() - self._started, 1e-9)
        peak = self._group.peak() if self._group else None
        risen = peak is not None and peak > (self._group_peak_before or 0)
        return Taped(
            points=_columns(self._points, with_gpu=self._gpu is not None),
            processes=tuple(_process_peak(one) for one in self._processes.values()),
            highest=self._highest,
            at_peaks={
                one.stat.pid: (one.at_highest, one.extra)
                for one in self._processes.values()
                if one.at_highest is not None
            },
            rss=self._rss,
            uss=self._uss,
            swap=self._swap,
            shm=self._shm,
            groups=self._groups,
            group_before=self._group_before,
            group_highest=max(self._group_highest, peak if risen and peak else 0),
            group_peak=peak if risen else None,
            limits=self._limits,
            cost=Cost(
                samples=self._samples,
                page_samples=self._page_samples,
                cpu_seconds=round(self._cpu, 4),
                share=round(self._cpu / seconds, 5),
            ),
        )

    def _record(self) -> None:
        began = time.thread_time()
        while not self._stop.is_set():
            self._look()
            self._cpu = time.thread_time() - began
            self._stop.wait(max(self._counters.due() - time.monotonic(), 0.0))

    def _look(self) -> None:
        before = time.thread_time()
        now = time.monotonic() - self._started
        residents: dict[int, Resident] = {}
        extras: dict[int, int] = {}
        for stat in self._tree.look():
            extra = self._extra(stat.pid) if self._extra is not None else 0
            found = resident(stat.pid) if extra is not None else None
            if found is not None and extra is not None:
                residents[stat.pid], extras[stat.pid] = found, extra
                self._note(stat, found, extra, now)
        total = sum(one.rss for one in residents.values())
        self._rss = max(self._rss, total)
        self._samples += 1
        space = shm_space()
        shm = max(space[0] - space[1] - self._shm_before, 0) if space else 0
        self._shm = max(self._shm, shm)
        if self._group is not None:
            self._group_highest = max(self._group_highest, self._group.current() or 0)
        gpu = self._gpu(set(residents)) if self._gpu is not None else 0
        self._counters.taken(time.thread_time() - before)
        if residents and self._pages_are_due(total, now):
            self._count_pages(residents, extras, total, now)
        self._points.append(_Point(now, total, self._last_pss, shm, len(residents), gpu))
        if len(self._points) > 2 * MOST_POINTS:
            self._points = _thinned(self._points)

    def _note(self, stat: Stat, found: Resident, extra: int, now: float) -> None:
        key = (stat.pid, stat.started)
        process = self._processes.get(key)
        if process is None:
            process = self._processes[key] = _Process(stat=stat, command=command_line(stat.pid), first=now)
        elif now - process.first < 1:  # between fork and exec it had its parent's
            process.command = command_line(stat.pid) or process.command
        process.last = now
        if process.anonymous_first is None:
            process.anonymous_first = found.anonymous
        process.anonymous_most = max(process.anonymous_most, found.anonymous)
        process.rss = max(process.rss, found.peak)
        if process.at_highest is None or found.rss + extra >= process.at_highest.rss + process.extra:
            process.at_highest, process.extra = found, extra

    def _pages_are_due(self, total: int, now: float) -> bool:
        sooner = 1
        if total > GROWN * self._rss_at_pages:
            sooner = SOONER
        if any(not one.pss and one.last == now and now - one.first > NEW_AFTER for one in self._processes.values()):
            sooner = SOONER * SOONER
        return time.monotonic() >= self._pages.due(sooner=sooner)

    def _just_forked(self, now: float) -> set[int]:
        """Processes that are still a copy of their parent: mostly they are about to become another program.

        Its parent's pages are shared with it for that moment, and whether it was there when they were counted is
        chance: both together may count them one and a half times.
        """
        commands = {one.stat.pid: one.command for one in self._processes.values()}
        return {
            one.stat.pid
            for one in self._processes.values()
            if now - one.first < NEW_AFTER and one.command and one.command == commands.get(one.stat.parent)
        }

    def _count_pages(self, residents: dict[int, Resident], extras: dict[int, int], total: int, now: float) -> None:
        before = time.thread_time()
        usages = {}
        fresh = self._just_forked(now)
        for pid in residents:
            found = usage(pid) if pid not in fresh else None
            if found is not None:
                usages[pid] = found
        self._pages.taken(time.thread_time() - before)
        self._page_samples += 1
        self._rss_at_pages = max(self._rss_at_pages, total)
        moment = Moment(seconds=now, usages=usages, residents=residents, extras=extras)
        self._last_pss = moment.pss
        self._uss = max(self._uss, moment.uss)
        self._swap = max(self._swap, moment.swap)
        if self._highest is None or moment.pss + moment.extra > self._highest.pss + self._highest.extra:
            self._highest = moment
        for process in self._processes.values():
            found = usages.get(process.stat.pid)
            if found is not None:
                process.pss = max(process.pss, found.pss)
                process.uss = max(process.uss, found.uss)


def _process_peak(process: _Process) -> ProcessPeak:
    kinds = process.at_highest
    return ProcessPeak(
        pid=process.stat.pid,
        parent=process.stat.parent,
        command=process.command,
        rss=process.rss,
        pss=process.pss,
        uss=process.uss,
        anonymous=kinds.anonymous if kinds else 0,
        file=kinds.file if kinds else 0,
        shared=kinds.shared if kinds else 0,
        growth=process.anonymous_most - (process.anonymous_first or 0),
        first=round(process.first, 3),
        last=round(process.last, 3),
    )


def _thinned(points: list[_Point]) -> list[_Point]:
    """Every second point: of two neighbours the higher one."""
    kept = [max(pair, key=lambda point: point.rss) for pair in zip(points[0::2], points[1::2], strict=False)]
    return kept if len(points) % 2 == 0 else [*kept, points[-1]]


def _columns(points: list[_Point], *, with_gpu: bool) -> Points:
    if len(points) > MOST_POINTS:
        points = _thinned(points)
    return Points(
        seconds=tuple(round(point.seconds, 3) for point in points),
        rss=tuple(point.rss for point in points),
        pss=tuple(point.pss for point in points),
        shm=tuple(point.shm for point in points),
        processes=tuple(point.processes for point in points),
        gpu=tuple(point.gpu for point in points) if with_gpu else (),
    )
