"""The search itself: candidates on all cores, singles first, then pairs of the best, until the time is up."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from peakmem.allocator.replay import Floor, Replayed, Replayer
from peakmem.allocator.search.candidates import Candidate, Situation, pairs, singles
from peakmem.errors import PeakmemError


@dataclass(frozen=True, kw_only=True, slots=True)
class Tried:
    """A candidate and what came of it.

    Attributes:
        candidate: the settings.
        free: the replay without a limit.
        limited: the replay with the memory there is; None if that is unknown.
        floor: the smallest capacity that works.
        is_baseline: whether it stands for the trace as it is.
    """

    candidate: Candidate
    free: Replayed
    limited: Replayed | None
    floor: Floor
    is_baseline: bool = False

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
    baseline = _try(
        replayer, Candidate(alloc_conf=own, why="as it is", exact_start=own == recorded), capacity, is_baseline=True
    )
    situation = Situation(
        requests=replayer.requests,
        version=replayer.version,
        capacity=capacity,
        total=total,
        active=baseline.free.active,
    )
    first = [
        c for c in _others(replayer, baseline) + singles(situation) if c.alloc_conf != own or c.exact_start is False
    ]
    run = _Run(replayer, capacity, started + seconds, workers or os.cpu_count() or 1, on_progress)
    run.do(first)
    if not run.over:
        best = sorted(run.tried, key=lambda tried: (tried.floor.size or 0, tried.free.reserved))
        done = {tried.candidate.alloc_conf for tried in run.tried} | {own}
        run.do([c for c in pairs(situation, [t.candidate for t in best]) if c.alloc_conf not in done])
    return Found(
        baseline=baseline,
        tried=tuple(run.tried),
        capacity=capacity,
        left=run.left,
        stopped=run.stopped,
        seconds=time.monotonic() - started,
    )


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


def _try(replayer: Replayer, candidate: Candidate, capacity: int | None, *, is_baseline: bool = False) -> Tried:
    conf = candidate.alloc_conf
    exact = candidate.exact_start
    free = replayer.replay(conf, exact_start=exact)
    limited = None if capacity is None else replayer.replay(conf, capacity=capacity, exact_start=exact)
    floor = replayer.floor(conf, exact_start=exact)
    return Tried(candidate=candidate, free=free, limited=limited, floor=floor, is_baseline=is_baseline)


class _Run:
    """Candidates on several cores, until they are done, the time is up, or the user stops it."""

    def __init__(
        self,
        replayer: Replayer,
        capacity: int | None,
        until: float,
        workers: int,
        on_progress: Callable[[str, int, int], None],
    ) -> None:
        self.tried: list[Tried] = []
        self.left = 0
        self.stopped = False
        self._replayer = replayer
        self._capacity = capacity
        self._until = until
        self._workers = workers
        self._on_progress = on_progress
        self._planned = 0

    @property
    def over(self) -> bool:
        """Whether nothing more is to be started."""
        return self.stopped or time.monotonic() >= self._until

    def do(self, candidates: Sequence[Candidate]) -> None:
        """Try candidates, in their order."""
        waiting = list(candidates)
        self._planned += len(waiting)
        pool = ThreadPoolExecutor(self._workers, thread_name_prefix="replay")
        running: set[Future[Tried]] = set()
        try:
            while (waiting or running) and not self.over:
                while waiting and len(running) < self._workers:
                    running.add(pool.submit(_try, self._replayer, waiting.pop(0), self._capacity))
                done, running = wait(
                    running, timeout=max(self._until - time.monotonic(), 0), return_when=FIRST_COMPLETED
                )
                for future in done:
                    self._take(future)
        except KeyboardInterrupt:
            self.stopped = True
        self.left += len(waiting) + len(running)
        pool.shutdown(wait=False, cancel_futures=True)

    def _take(self, future: Future[Tried]) -> None:
        try:
            tried = future.result()
        except PeakmemError:  # settings that this PyTorch takes but can't carry out here
            self.left += 1
            return
        self.tried.append(tried)
        self._on_progress(tried.candidate.alloc_conf, len(self.tried), self._planned)
