"""Scripts run on the virtual GPU, with what was recorded of them."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from peakmem.session.launching import Run, launch
from peakmem.session.running import Question
from peakmem.trace.model import Trace
from peakmem.trace.recording import read_recording
from peakmem.trace.replay import Replay
from peakmem.trace.roles import ContextKind, Role
from peakmem.vgpu.build import ensure_library
from peakmem.vgpu.catalogue import find_device
from peakmem.vgpu.launch import NO_LIMIT, Options, environment
from peakmem.vgpu.probe import TorchFacts, probe


@cache
def facts() -> TorchFacts:
    return probe(sys.executable)


@dataclass(frozen=True)
class Recording:
    """What a script printed last, and what was recorded."""

    recording: dict[str, Any]
    said: Any

    @cached_property
    def trace(self) -> Trace:
        trace = read_recording(self.recording)
        assert trace is not None
        return trace

    @cached_property
    def replay(self) -> Replay:
        return Replay(self.trace)

    def moment(self, phase: str, step: int, *, end: bool = False) -> int:
        """The first or last moment of a phase of a step."""
        spans = self.trace.spans
        for row in range(len(spans)):
            here = spans.kind[row] == ContextKind.PHASE and spans.number[row] == step
            if here and self.trace.strings[int(spans.name[row])] == phase:
                return int(spans.end[row] if end else spans.first[row])
        raise AssertionError(f"no {phase} in step {step}")

    def requested(self, moment: int) -> dict[str, int]:
        """Bytes asked for, by role, of what is alive at a moment."""
        alive, roles = self.replay.alive(moment), self.replay.roles(moment)
        sizes = self.replay.allocations.requested
        return {role.word: int(sizes[alive][roles[alive] == role].sum()) for role in Role}

    def names(self, moment: int, role: Role) -> dict[str, int]:
        """Names of what is alive in a role, with bytes asked for."""
        rows = self.replay.owner_rows(moment)
        found: dict[str, int] = {}
        for number in self.replay.alive(moment).tolist():
            owners = self.trace.owners
            if rows[number] >= 0 and owners.role[rows[number]] == role:
                name = self.trace.strings[int(owners.name[rows[number]])]
                found[name] = found.get(name, 0) + int(self.replay.allocations.requested[number])
        return found


def record(script: Path, *words: str, record: bool = True, steps: str = "all") -> Recording:
    """Run a script to its end; what it prints last must be JSON."""
    run = Run(
        command=(sys.executable, str(script), *words),
        facts=facts(),
        device=find_device("a100-80"),
        context=0,
        question=Question(steps=steps, record=record),
    )
    ended = launch(run, limited=False)
    recording = ended.outcome.main()
    assert recording is not None and recording["error"] is None, "\n".join(ended.last_lines)
    return Recording(recording, json.loads(ended.last_lines[-1]))


def bare(script: Path, *words: str) -> Any:
    """Run a script on the virtual GPU without any watching; gives what it prints last."""
    variables = environment(
        library=ensure_library(facts()),
        device=find_device("a100-80"),
        facts=facts(),
        options=Options(capacity=NO_LIMIT, true_byte=1),
    )
    done = subprocess.run(
        [sys.executable, str(script), *words], env=variables, capture_output=True, text=True, check=True, timeout=300
    )
    return json.loads(done.stdout.splitlines()[-1])
