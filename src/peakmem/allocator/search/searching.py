"""The search itself: candidates on all cores, singles first, then pairs of the best, until the time is up."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from peakmem.allocator.replay import Floor, Replayed, Replayer
from peakmem.allocator.search.candidates import Candidate, Situation, pairs, singles
from peakmem.errors import PeakmemError

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Tried:
    """A candidate and what came of it.

    Attributes:
        candidate: the settings.
        free: the replay without a limit.
        limited: the replay with the memory there is; None if that is unknown.
        floor: the smallest capacity that works; None if there was no time to look for it.
        is_baseline: whether it stands for the trace as it is.
    """

    candidate: Candidate
    free: Replayed
    limited: Replayed | None
    floor: Floor | None
    is_baseline: bool = False

    @property
    def reserved(self) -> int:
        """Peak bytes reserved with the memory there is, or without a limit if that is unknown."""
        return (self.limited or self.free).reserved

    @property
    def fits(self) -> bool:
        """Whether it ends without an out-of-memory error with the memory there is; true if that is unknown."""
        return self.limited is None or self.limited.ran_out is None


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """What a search found.

    Attributes:
        baseline: the trace as it is.
        tried: every candidate, in the order in which they were done; the baseline is not among them.
        capacity: bytes that the allocator can get; None if unknown.
        left: candidates that there was no time for.
        stopped: the user stopped it.
        seconds: how long it took.
    """

    baseline: Tried
    tried: tuple[Tried, ...]
    capacity: int | None
    left: int
    stopped: bool
    seconds: float


def search(
    replayer: Replayer,
    *,
    capacity: int | None,
    total: int,
    seconds: float,
    alloc_conf: str | None = None,
    workers: int | None = None,
    on_progress: Callable[[str, int, int], None] = lambda name, done, of: None,
) -> Found:
    """Try settings until all are done, the time is up or the user stops it.

    First every candidate is replayed, then pairs of the best, then the floors are looked for, the best settings first.

    Args:
        replayer: replays the trace.
        capacity: bytes that the allocator can get; None if unknown.
        total: bytes of the card.
        seconds: how long it may take; what runs then is given up.
        alloc_conf: the settings to compare with; by default those of the trace.
        workers: replays at a time; by default one for each core.
        on_progress: called with the settings just done, how many are done and how many there are so far.

    Raises:
        PeakmemError: the baseline can't be replayed.
    """
    started = time.monotonic()
    recorded = replayer.trace.meta.alloc_conf
    own = recorded if alloc_conf is None else alloc_conf
    as_it_is = Candidate(alloc_conf=own, why="as it is", exact_start=own == recorded)
    baseline = replace(_replayed(replayer, as_it_is, capacity), is_baseline=True)
    situation = Situation(
        requests=replayer.requests,
        version=replayer.version,
        capacity=capacity,
        total=total,
        active=baseline.free.active,
    )
    run = _Run(started + seconds, workers or os.cpu_count() or 1)

    def replay_all(candidates: list[Candidate]) -> list[Tried]:
        return run.do(
            [partial(_replayed, replayer, candidate, capacity) for candidate in candidates],
            lambda tried, done, of: on_progress(tried.candidate.alloc_conf, done, of),
        )

    first = _others(replayer, baseline) + [one for one in singles(situation) if one.alloc_conf != own]
    tried = replay_all(first)
    best = sorted(tried, key=_rank)
    done = {one.candidate.alloc_conf for one in tried} | {own}
    tried += replay_all([c for c in pairs(situation, [t.candidate for t in best]) if c.alloc_conf not in done])
    left = run.left
    order = [baseline, *sorted(tried, key=_rank)]
    with_floors = {
        id(before): after
        for before, after in run.do(
            [partial(_with_floor, replayer, one) for one in order],
            lambda pair, done, of: on_progress(f"floor of {pair[0].candidate.alloc_conf or 'the defaults'}", done, of),
        )
    }
    return Found(
        baseline=with_floors.get(id(baseline), baseline),
        tried=tuple(with_floors.get(id(one), one) for one in tried),
        capacity=capacity,
        left=left,
        stopped=run.stopped,
        seconds=time.monotonic() - started,
    )


def _rank(tried: Tried) -> tuple[bool, int]:
    return not tried.fits, tried.reserved


def _others(replayer: Replayer, baseline: Tried) -> list[Candidate]:
    """What belongs into every table: the defaults, and the trace's settings from a tidy start.

    Blocks that were there at the start are simply requested in order under other settings, so what they gain could come
    from that alone. The same start under the trace's own settings shows it.
    """
    own = baseline.candidate.alloc_conf
    found = []
    if own and not replayer.is_as_recorded(""):
        found.append(Candidate(alloc_conf="", why="the defaults"))
    requests = replayer.requests
    if baseline.free.exact_start and requests.starts_reserved > requests.starts_with:
        found.append(Candidate(alloc_conf=own, why="as it is, but from a tidy start"))
    return found


def _replayed(replayer: Replayer, candidate: Candidate, capacity: int | None) -> Tried:
    conf, exact = candidate.alloc_conf, candidate.exact_start
    free = replayer.replay(conf, exact_start=exact)
    limited = None if capacity is None else replayer.replay(conf, capacity=capacity, exact_start=exact)
    return Tried(candidate=candidate, free=free, limited=limited, floor=None)


def _with_floor(replayer: Replayer, tried: Tried) -> tuple[Tried, Tried]:
    candidate = tried.candidate
    return tried, replace(tried, floor=replayer.floor(candidate.alloc_conf, exact_start=candidate.exact_start))


class _Run:
    """Jobs on several cores, until they are done, the time is up, or the user stops it."""

    def __init__(self, until: float, workers: int) -> None:
        self.left = 0
        self.stopped = False
        self._until = until
        self._workers = workers

    @property
    def over(self) -> bool:
        """Whether nothing more is to be started."""
        return self.stopped or time.monotonic() >= self._until

    def do(self, jobs: Sequence[Callable[[], T]], on_done: Callable[[T, int, int], None]) -> list[T]:
        """Do jobs in their order; gives what came of those that ended in time."""
        waiting = list(jobs)
        pool = ThreadPoolExecutor(self._workers, thread_name_prefix="replay")
        running: set[Future[T]] = set()
        results: list[T] = []
        try:
            while (waiting or running) and not self.over:
                while waiting and len(running) < self._workers:
                    running.add(pool.submit(waiting.pop(0)))
                done, running = wait(
                    running, timeout=max(self._until - time.monotonic(), 0), return_when=FIRST_COMPLETED
                )
                for future in done:
                    if future.exception() is None:
                        results.append(future.result())
                        on_done(results[-1], len(results), len(jobs))
                    elif not isinstance(future.exception(), PeakmemError):
                        future.result()
                    else:  # settings that this PyTorch takes but can't carry out here
                        self.left += 1
        except KeyboardInterrupt:
            self.stopped = True
        self.left += len(waiting) + len(running)
        pool.shutdown(wait=False, cancel_futures=True)
        return results
