"""What recording costs: the same script with a full recording and without one, in turn, as ratios of one session.

    python benchmarks/recording_cost.py examples/gpt2.py [--rounds 3]

Prints for each round the seconds of both runs, wall and processor, and in the end the largest host memory of a process
and the ratios of the fastest runs. The script runs to its own end in both.
"""

from __future__ import annotations

import argparse
import resource
import sys
from dataclasses import replace

from peakmem.session.launching import Run, launch
from peakmem.session.running import Question
from peakmem.trace.recording import read_recording
from peakmem.vgpu.catalogue import find_device
from peakmem.vgpu.probe import probe


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("script")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--build-on-device", action="store_true")
    arguments = parser.parse_args()
    run = Run(
        command=(sys.executable, arguments.script),
        facts=probe(sys.executable),
        device=find_device("b200"),
        context=0,
        question=Question(steps="all", build_on_device=arguments.build_on_device),
    )
    plain = replace(run, question=replace(run.question, record=False))
    wall = {"recorded": float("inf"), "plain": float("inf")}
    processor = dict(wall)
    for number in range(arguments.rounds):
        for name, this in (("recorded", run), ("plain", plain)):
            before = _processor_seconds()
            ended = launch(this, limited=False)
            spent = _processor_seconds() - before
            recording = ended.outcome.main()
            assert recording is not None and recording["error"] is None, "\n".join(ended.last_lines)
            wall[name] = min(wall[name], ended.seconds)
            processor[name] = min(processor[name], spent)
            events = len(recording["events"]) // 40
            print(f"round {number + 1}: {name:8} {ended.seconds:6.2f} s, {spent:6.2f} s processor, {events:,} events")
            if name == "recorded":
                trace = read_recording(recording)
                assert trace is not None
    host = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    print(f"largest process {host / 1024:,.0f} MiB")
    for name, seconds in (("wall", wall), ("processor", processor)):
        print(f"recorded / plain, {name}: {seconds['recorded'] / seconds['plain']:.2f}")


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
