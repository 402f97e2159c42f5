"""How much time and memory it takes to read large memory snapshots and traces.

    python benchmarks/snapshot_import.py make snapshot.pickle --megabytes 200     # a synthetic snapshot
    python benchmarks/snapshot_import.py read snapshot.pickle                     # time, and peak memory over file size
    python benchmarks/snapshot_import.py trace --events 100000                    # size and time of a .peakmem file
    python benchmarks/snapshot_import.py replay --events 1000000                  # time of a replay

The synthetic snapshot has what makes real ones large: stacks of some 50 frames, of Python and C++, shared between the
events that came from the same call, and as many events as fill the file.
"""

from __future__ import annotations

import argparse
import pickle
import random
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np


def make(path: Path, megabytes: int) -> None:
    """Write a snapshot of about this size: an allocator that splits one segment, with a stack for each call."""
    rng = random.Random(1)
    names = [
        {
            "name": f"at::native::operation_{i}(at::Tensor const&, std::optional<at::ScalarType>)",
            "filename": "??",
            "line": 0,
        }
        if i % 3
        else {"name": f"forward_{i}", "filename": f"/home/user/project/layers/block_{i % 40}.py", "line": i}
        for i in range(4000)
    ]
    calls = [[rng.choice(names) for _ in range(rng.randint(30, 70))] for _ in range(3000)]
    size, step = 1 << 40, 2 << 20
    events: list[dict[str, Any]] = [
        {"action": "segment_alloc", "addr": 1 << 46, "size": size, "stream": 0, "time_us": 0, "frames": calls[0]}
    ]
    target, written, now = megabytes * 1_000_000, 0, 1_700_000_000_000_000
    while written < target:
        count = 20_000
        for _ in range(count):
            # A third of the stacks is met for the first time, as in a run of many steps with changing call paths.
            frames = list(rng.choice(calls)) if rng.random() < 0.33 else rng.choice(calls)
            for action in ("alloc", "free_requested", "free_completed"):
                now += 7
                events.append(
                    {"action": action, "addr": 1 << 46, "size": step, "stream": 0, "time_us": now, "frames": frames}
                )
        if not written:
            written = len(pickle.dumps(events, protocol=4))
            per_batch = written
        else:
            written += per_batch
    block = {"address": 1 << 46, "size": size, "requested_size": 0, "state": "inactive", "frames": []}
    segment = {
        "device": 0, "address": 1 << 46, "total_size": size, "allocated_size": 0, "active_size": 0, "requested_size": 0,
        "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False, "frames": calls[0],
        "blocks": [block],
    }  # fmt: skip
    with path.open("wb") as stream:
        pickle.dump({"segments": [segment], "device_traces": [events]}, stream, protocol=4)
    print(f"{path}: {path.stat().st_size / 1e6:,.0f} MB, {len(events):,} events")


def read(path: Path) -> None:
    """Import it and print time and memory."""
    from peakmem.trace.load import load_trace

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    start = time.process_time()
    trace = load_trace(path)
    seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    size = path.stat().st_size
    print(
        f"{size / 1e6:,.0f} MB, {len(trace.events):,} events: {seconds:.1f} CPU s, peak RSS {peak / 1e6:,.0f} MB "
        f"({before / 1e6:,.0f} MB before), {peak / size:.2f} times the file (which is mapped and counts once itself)"
    )


def random_trace(count: int) -> Any:
    """Allocations of random sizes, each freed some events later."""
    from peakmem.trace.model import Trace
    from peakmem.trace.roles import Action
    from peakmem.trace.tables import Events

    rng = np.random.default_rng(3)
    half = count // 2
    size = rng.integers(1, 1 << 24, half)
    order = np.argsort(
        np.concatenate([np.arange(half), np.arange(half) + rng.integers(1, 400, half) + 0.5]), kind="stable"
    )
    action = np.repeat([Action.ALLOC, Action.FREE_REQUESTED], half)[order]
    address = np.tile((np.arange(half, dtype="u8") % 5000) << np.uint64(25), 2)[order]
    both = np.tile(size, 2)[order]
    return Trace(
        events=Events.of(
            {
                "action": action, "address": address, "size": both, "block_size": -(-both // 512) * 512,
                "time_us": 1_700_000_000_000_000 + np.cumsum(rng.integers(1, 400, len(order))),
            }
        )
    )  # fmt: skip


def trace_file(count: int) -> None:
    """Write and read a trace of this many events."""
    from peakmem.trace.file import read_trace, write_trace

    trace = random_trace(count)
    path = Path(f"benchmark-{count}.peakmem")
    start = time.perf_counter()
    write_trace(trace, path, force=True)
    wrote = time.perf_counter()
    read_trace(path)
    done = time.perf_counter()
    print(
        f"{count:,} events: {path.stat().st_size / 1e6:.2f} MB, "
        f"written in {wrote - start:.2f} s, read in {done - wrote:.2f} s"
    )
    path.unlink()


def replay(count: int) -> None:
    """Replay a trace of this many events."""
    from peakmem.trace.replay import Replay

    trace = random_trace(count)
    start = time.perf_counter()
    replayed = Replay(trace)
    peak = replayed.peak()
    replayed.by_role()
    replayed.alive(peak.index)
    print(f"{count:,} events: replayed in {time.perf_counter() - start:.2f} s, peak {peak.allocated:,} bytes")


def main() -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="what", required=True)
    for name in ("make", "read"):
        command = commands.add_parser(name)
        command.add_argument("path", type=Path)
        if name == "make":
            command.add_argument("--megabytes", type=int, default=200)
    for name, count in (("trace", 100_000), ("replay", 1_000_000)):
        commands.add_parser(name).add_argument("--events", type=int, default=count)
    options = parser.parse_args()
    if options.what == "make":
        make(options.path, options.megabytes)
    elif options.what == "read":
        read(options.path)
    elif options.what == "trace":
        trace_file(options.events)
    else:
        replay(options.events)


if __name__ == "__main__":
    main()
