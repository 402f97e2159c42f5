"""How many requests a second the replay hands to the allocator, and how long a floor takes.

    python benchmarks/replay_speed.py [TRACE|SNAPSHOT ...]

Without files, synthetic requests of 64 B to 64 MiB with about 200 blocks alive. The best of five runs counts; requests
a second are those of processor time, floors are timed by the clock.
"""

import random
import sys
import time

from peakmem.allocator.replay import Engine, Replayer
from peakmem.trace.load import load_trace
from peakmem.trace.model import Trace
from peakmem.trace.roles import Action
from peakmem.trace.tables import Events
from peakmem.vgpu.catalogue import find_device
from peakmem.vgpu.probe import probe

CONFS = ("", "expandable_segments:True", "max_split_size_mb:64", "roundup_power2_divisions:4")


def synthetic(blocks: int) -> Trace:
    numbers = random.Random(0)
    rows, live = [], []
    for number in range(blocks):
        size = int(2 ** numbers.uniform(6, 26))
        rows.append((Action.ALLOC, number, size))
        live.append((number, size))
        if len(live) > 200:
            address, size = live.pop(numbers.randrange(len(live)))
            rows.append((Action.FREE_REQUESTED, address, size))
            rows.append((Action.FREE_COMPLETED, address, size))
    action, address, size = (list(column) for column in zip(*rows, strict=True))
    return Trace(events=Events.of({"action": action, "address": address, "size": size, "block_size": size}))


def main() -> None:
    traces = {path: load_trace(path) for path in sys.argv[1:]} or {"synthetic": synthetic(200_000)}
    facts, card = probe(sys.executable), find_device("a100-80")
    with Engine(facts=facts, card=card) as engine:
        for name, trace in traces.items():
            replayer = Replayer(trace, facts=facts, card=card, engine=engine)
            print(f"{name}: {len(trace.events):,} events, {len(replayer.requests):,} requests, torch {facts.version}")
            for conf in CONFS:
                seconds = min(replayer.replay(conf).seconds for _ in range(5))
                started = time.perf_counter()
                floor = replayer.floor(conf)
                print(
                    f"  {conf or 'default':28} {len(replayer.requests) / seconds:>10,.0f} requests/s"
                    f"   floor in {time.perf_counter() - started:5.2f} s, {floor.runs} runs"
                )


main()
