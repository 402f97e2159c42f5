"""Replays requests through the allocator of the PyTorch at hand, on the virtual GPU.

Runs in the user's own interpreter: standard library and torch only, and nothing of peakmem is imported. Torch is
imported once; each job runs in a fork of this process, which starts CUDA anew with the settings of that job.

One job is one line of JSON on standard input, answered by one line on standard output; see `machine.py`.
"""

import ctypes
import json
import os
import signal
import sys
import time
from array import array
from pathlib import Path

FREE, EMPTY_CACHE, WAIT = 0, -1, -2  # as in requests.py
NO_LIMIT = 1 << 62
NON_BLOCKING = 1
STATISTICS = ("requested_bytes", "allocated_bytes", "active_bytes", "reserved_bytes", "segment")
EVENT_SIZE = 40


class RefusedError(Exception):
    """A request did not fit.

    Attributes:
        row: its row; -1: what was there at the start does not fit.
        size: bytes requested.
        text: the allocator's message.
    """

    def __init__(self, row, size, text):
        super().__init__(text)
        self.row, self.size, self.text = row, size, text


class Driver:
    """The allocator of this process."""

    def __init__(self, torch, streams):
        torch.cuda.init()
        self.torch = torch
        self.library = ctypes.CDLL(None)
        self.library.peakmem_set_capacity.argtypes = [ctypes.c_uint64]
        self.library.peakmem_set_capacity.restype = None
        self.library.peakmem_clear_events.restype = None
        self.library.peakmem_event_count.restype = ctypes.c_uint64
        self.library.peakmem_events.restype = ctypes.c_void_p
        self.total = torch.cuda.get_device_properties(0).total_memory
        self.handles = [0] + [self._stream() for _ in range(streams - 1)]
        self.alloc = torch._C._cuda_cudaCachingAllocator_raw_alloc
        self.free = torch._C._cuda_cudaCachingAllocator_raw_delete
        self.empty_cache = torch._C._cuda_emptyCache

    def _stream(self):
        # Streams of its own: torch.cuda.Stream hands out the same 32 again and again.
        handle = ctypes.c_void_p()
        if self.library.cudaStreamCreateWithFlags(ctypes.byref(handle), NON_BLOCKING):
            raise RuntimeError("no stream")
        return handle.value

    def set_conf(self, text):
        """Put settings in force now."""
        current = getattr(self.torch._C, "_accelerator_setAllocatorSettings", None)
        (current or self.torch._C._cuda_cudaCachingAllocator_set_allocator_settings)(text)

    def set_limit(self, fraction, capacity):
        """Let the allocator hold so much of a device of `capacity` bytes."""
        share = min(fraction * capacity / self.total, 1.0)
        self.torch._C._cuda_setMemoryFraction(share, 0)

    def statistics(self):
        """The allocator's counters."""
        return self.torch._C._cuda_memoryStats(0)

    def reserved(self):
        """Bytes that the allocator holds."""
        return self.statistics()["reserved_bytes"]["all"]["current"]

    def reset(self):
        """Start all peaks and counters anew from here."""
        self.torch._C._cuda_resetPeakMemoryStats(0)
        self.torch._C._cuda_resetAccumulatedMemoryStats(0)
        self.library.peakmem_clear_events()

    def log(self):
        """The events since `reset`, as bytes."""
        count = self.library.peakmem_event_count()
        return ctypes.string_at(self.library.peakmem_events(), count * EVENT_SIZE) if count else b""


class Program:
    """The requests; see `Requests`."""

    def __init__(self, path, job):
        with Path(path).open("rb") as file:
            counts = array("q")
            counts.fromfile(file, 3)
            rows, self.prologue, layout = counts
            self.slot, self.size, self.stream = (self._column(file, rows) for _ in range(3))
            self.layout = [self._column(file, layout) for _ in range(3)]
        self.slots = job["slots"]

    @staticmethod
    def _column(file, count):
        column = array("q")
        column.fromfile(file, count)
        return column.tolist()


class Machine:
    """Runs a program again and again, each time from an empty allocator."""

    def __init__(self, torch, job):
        self.torch = torch
        self.job = job
        self.program = Program(job["program"], job)
        self.driver = Driver(torch, job["streams"])
        self.live = []
        self.seconds = 0.0  # processor time of the last program, without what was there at its start

    def run(self, capacity, fraction=None):
        """Run the program once.

        Args:
            capacity: bytes that the device can hand out.
            fraction: share of it that the allocator may hold, where the settings name one.

        Returns:
            Bytes reserved at most.

        Raises:
            RefusedError: the program does not fit.
        """
        self._clear()
        if fraction is not None:
            self.driver.set_limit(fraction, capacity)
        self._start()
        driver = self.driver
        driver.library.peakmem_set_capacity(capacity)
        if driver.reserved() > capacity:
            driver.empty_cache()
            if driver.reserved() > capacity:
                raise RefusedError(-1, driver.reserved(), "")
        driver.reset()
        program = self.program
        first = program.prologue
        slots, sizes, streams = program.slot[first:], program.size[first:], program.stream[first:]
        started = time.process_time()
        try:
            self._feed(slots, sizes, streams, first)
        finally:
            self.seconds = time.process_time() - started
        return driver.statistics()["reserved_bytes"]["all"]["peak"]

    def _start(self):
        """Make what was there before the first event, without a limit."""
        program, driver = self.program, self.driver
        driver.library.peakmem_set_capacity(NO_LIMIT)
        self.live = [0] * (program.slots + 1)
        exact = self.job["exact_start"] and program.layout[0]
        first = program.prologue
        rows = program.layout if exact else (program.slot[:first], program.size[:first], program.stream[:first])
        if exact:
            driver.set_conf(self._layout_conf())
        try:
            slots, sizes, streams = rows
            self._feed(slots, sizes, streams, 0)
        except RefusedError as error:  # a memory limit of the settings' own
            raise RefusedError(-1, error.size, error.text) from None
        if exact:
            driver.set_conf(self.job["alloc_conf"])

    def _layout_conf(self):
        # Settings that leave the sizes of requests alone. This option keeps its value unless it is named, and PyTorch
        # before 2.1 doesn't know it.
        expandable = self.job["expandable"]
        if expandable or "expandable_segments" in self.job["alloc_conf"]:
            return f"expandable_segments:{expandable}"
        return ""

    def _feed(self, slots, sizes, streams, first):
        """Hand rows to the allocator; `first` is the number of the first one."""
        live, driver = self.live, self.driver
        alloc, free = driver.alloc, driver.free
        handles = driver.handles
        out_of_memory = self.torch.cuda.OutOfMemoryError
        waiting: dict[int, bool] = {}  # blocks that another stream still uses
        row = 0
        count = len(slots)
        while row < count:
            try:
                for row in range(row, count):  # noqa: B020 - goes on behind a row that was refused
                    size = sizes[row]
                    if size > 0:
                        live[slots[row]] = alloc(size, handles[streams[row]])
                    elif size == 0:
                        slot = slots[row]
                        free(live[slot])
                        live[slot] = 0
                    elif size == EMPTY_CACHE:
                        self._release(waiting)
                        driver.empty_cache()
                    else:
                        waiting[slots[row]] = True
                break
            except out_of_memory as error:
                # Before it gives up, the allocator waits for the other streams. Here nothing is running on them: the
                # trace says when they were done, so the blocks are given back now.
                if not self._release(waiting):
                    raise RefusedError(first + row, sizes[row], str(error)) from None
                try:
                    live[slots[row]] = alloc(sizes[row], handles[streams[row]])
                except out_of_memory as again:
                    raise RefusedError(first + row, sizes[row], str(again)) from None
                row += 1

    def _release(self, waiting):
        given = False
        for slot in waiting:
            if self.live[slot]:
                self.driver.free(self.live[slot])
                self.live[slot] = 0
                given = True
        waiting.clear()
        return given

    def _clear(self):
        """Give everything back to the device."""
        driver = self.driver
        for block in self.live:
            if block:
                driver.free(block)
        self.live = []
        driver.empty_cache()


def replay(torch, job):
    """One replay with all its figures."""
    machine = Machine(torch, job)
    capacity = job["capacity"] or NO_LIMIT
    refused = None
    try:
        machine.run(capacity)
    except RefusedError as error:
        refused = {"row": error.row, "size": error.size, "text": error.text}
    statistics = machine.driver.statistics()
    if job["log"]:
        Path(job["log"]).write_bytes(machine.driver.log())
    return {
        "refused": refused,
        "seconds": machine.seconds,
        "torch": str(torch.__version__),
        "peak": {name: statistics[name]["all"]["peak"] for name in STATISTICS if name in statistics},
        "end": {name: statistics[name]["all"]["current"] for name in STATISTICS if name in statistics},
        "segments_taken": statistics["segment"]["all"]["allocated"],
        "retries": statistics["num_alloc_retries"],
        "device_allocs": statistics.get("num_device_alloc", statistics["segment"]["all"]["allocated"]),
        "device_frees": statistics.get("num_device_free", statistics["segment"]["all"]["freed"]),
    }


def floor(torch, job):
    """The smallest capacity, a multiple of `grid`, at which the program ends; by bisection."""
    machine = Machine(torch, job)
    grid, fraction = job["grid"], job["fraction"]
    started = time.perf_counter()
    runs = 0

    def up(size):
        return -(-size // grid) * grid

    def fits(capacity):
        nonlocal runs
        runs += 1
        try:
            machine.run(capacity, fraction)
        except RefusedError:
            return False
        return True

    if fraction is not None:
        machine.driver.set_limit(1.0, machine.driver.total)
    try:
        reserved = machine.run(NO_LIMIT)
    except RefusedError as error:  # a request that no device can serve
        return {"floor": None, "text": error.text, "runs": 1, "seconds": time.perf_counter() - started}
    active = machine.driver.statistics()["active_bytes"]["all"]["peak"]
    # At its own unlimited peak the program never meets a limit; below what is active at a time it can't run at all.
    high = up(int(reserved / fraction) + 1) if fraction is not None else up(reserved)
    low = up(active)
    if fits(low):
        high = low
    while high - low > grid:
        middle = up((low + high) // 2)
        if middle >= high:
            break
        if fits(middle):
            high = middle
        else:
            low = middle
    return {
        "floor": high,
        "reserved": reserved,
        "active": active,
        "runs": runs + 1,
        "seconds": time.perf_counter() - started,
    }


TASKS = {"replay": replay, "floor": floor}


def work(torch, job):
    """Do one job, in a process of its own."""
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"):
        os.environ.pop(name, None)
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = job["alloc_conf"]
    try:
        answer = TASKS[job["task"]](torch, job)
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    say({"id": job["id"], **answer})


def say(answer):
    """One line, in one write: several processes share the pipe."""
    os.write(1, json.dumps(answer).encode() + b"\n")


def main():
    """Read jobs until standard input ends."""
    import torch

    jobs: dict[int, int] = {}

    def reap(*_):
        while jobs:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            number = jobs.pop(pid, None)
            if status:
                say({"id": number, "error": f"the replay ended with status {status}"})

    signal.signal(signal.SIGCHLD, reap)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the other side says when to end
    for line in sys.stdin:
        job = json.loads(line)
        # The handler must know the process before it can end.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        pid = os.fork()
        if not pid:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            work(torch, job)
            os._exit(0)
        jobs[pid] = job["id"]
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    for pid in list(jobs):
        os.kill(pid, signal.SIGTERM)


main()
