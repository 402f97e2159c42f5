"""A small training run, written by hand: a trace with everything in it (steps, phases, modules, roles, shapes).

The allocator here is a simple one: 20 MiB segments, first fit, no blocks of more than one segment.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from peakmem.trace.blocks import derive
from peakmem.trace.builder import Interner
from peakmem.trace.model import DeviceInfo, Trace, TraceMeta
from peakmem.trace.roles import Action, ContextKind, Role
from peakmem.trace.split_rules import SplitRules
from peakmem.trace.tables import Blocks, Events, Owners, Segments, Spans

SEGMENT = 20 << 20
CAPACITY = 256 << 20
CONTEXT = 30 << 20


@dataclass
class Run:
    """Writes down what a training loop would do."""

    names: Interner = field(default_factory=Interner)
    rows: list[dict[str, int]] = field(default_factory=list)
    owners: list[dict[str, int]] = field(default_factory=list)
    spans: list[dict[str, int]] = field(default_factory=list)
    live: dict[int, int] = field(default_factory=dict)
    free: dict[int, int] = field(default_factory=dict)
    segments: list[int] = field(default_factory=list)
    context: int = 0
    step: int = -1
    allocations: int = 0

    def event(self, action: Action, address: int, size: int, stack: int = 0) -> None:
        self.rows.append(
            {
                "action": action, "address": address, "size": size, "stack": stack, "context": self.context,
                "time_us": 1_700_000_000_000_000 + 25 * len(self.rows),
            }
        )  # fmt: skip

    def alloc(self, role: Role, shape: tuple[int, ...], line: int, function: str, name: str = "") -> int:
        requested = 4
        for extent in shape:
            requested *= extent
        size = -(-requested // 512) * 512
        address = next((start for start, room in sorted(self.free.items()) if room >= size), None)
        frame = self.names.frame("/home/me/project/train.py", line, function)
        stack = self.names.stack([self.names.frame("/venv/lib/python3.11/site-packages/torch/x.py", 1, "f"), frame])
        if address is None:
            address = (1 << 44) + len(self.segments) * (SEGMENT + (1 << 21))
            self.segments.append(address)
            self.free[address] = SEGMENT
            self.event(Action.SEGMENT_ALLOC, address, SEGMENT, stack)
        room = self.free.pop(address)
        taken = SplitRules().taken(size, room)
        if taken < room:
            self.free[address + taken] = room - taken
        self.live[address] = taken
        self.event(Action.ALLOC, address, requested, stack)
        self.owners.append(
            {
                "allocation": self.allocations,
                "since": len(self.rows) - 1,
                "role": role,
                "name": self.names.string(name),
                "shape": self.names.shape(shape),
                "dtype": self.names.string("float32"),
            }
        )
        self.allocations += 1
        return address

    def release(self, address: int) -> None:
        size = next(row["size"] for row in reversed(self.rows) if row["address"] == address and row["action"] == 0)
        taken = self.live.pop(address)
        self.event(Action.FREE_REQUESTED, address, size)
        self.event(Action.FREE_COMPLETED, address, size)
        inside = next(start for start in self.segments if start <= address < start + SEGMENT)
        after = self.free.pop(address + taken, 0) if address + taken < inside + SEGMENT else 0
        before = next((s for s, r in self.free.items() if s + r == address and s >= inside), None)
        start = address if before is None else before
        self.free[start] = (self.free.get(start, 0) if before is not None else 0) + taken + after

    def phase(self, name: str, start: int) -> None:
        self.spans.append(
            {
                "kind": ContextKind.PHASE,
                "name": self.names.string(name),
                "number": self.step,
                "first": start,
                "end": len(self.rows),
            }
        )

    def enter(self, phase: str, module: str) -> None:
        step = self.names.context(0, ContextKind.STEP, "step", self.step)
        at = self.names.context(step, ContextKind.PHASE, phase)
        self.context = self.names.context(at, ContextKind.MODULE, module) if module else at


LAYERS = tuple(f"encoder.layers.{number}.{part}" for number in range(4) for part in ("attention", "mlp"))


def training_trace(steps: int = 3, batch: int = 24) -> Trace:
    """Steps of a model with eight layers: forward, backward, optimizer."""
    run = Run()
    shape = (512, 900)
    for layer in LAYERS:
        run.alloc(Role.PARAMETER, shape, 12, "build", f"{layer}.weight")
    run.alloc(Role.BUFFER, (1, 512), 13, "build", "encoder.positions")
    for step in range(steps):
        run.step = step
        first = len(run.rows)
        run.enter("forward", "")
        batch_block = run.alloc(Role.INPUT, (batch, 900), 30, "load")
        saved = []
        for layer in LAYERS:
            run.enter("forward", layer)
            scratch = run.alloc(Role.TEMPORARY, (batch, 7000), 52, "forward")
            saved.append(run.alloc(Role.ACTIVATION, (batch, 20_000 + 700 * (len(saved) % 3)), 53, "forward"))
            run.release(scratch)
        run.phase("forward", first)
        start = len(run.rows)
        gradients = []
        for layer in reversed(LAYERS):
            run.enter("backward", layer)
            workspace = run.alloc(Role.WORKSPACE, (2_000_000,), 0, "") if layer == LAYERS[-1] else None
            gradients.append(run.alloc(Role.GRADIENT, shape, 40, "train", f"{layer}.weight"))
            run.release(saved.pop())
            if workspace is not None:
                run.release(workspace)
        run.phase("backward", start)
        start = len(run.rows)
        run.enter("optimizer", "")
        if step == 0:
            for layer in LAYERS:
                for part in ("exp_avg", "exp_avg_sq"):
                    run.alloc(Role.OPTIMIZER_STATE, shape, 41, "train", f"{part} of {layer}.weight")
        for gradient in gradients:
            run.release(gradient)
        run.release(batch_block)
        run.phase("optimizer", start)
        run.spans.append(
            {
                "kind": ContextKind.STEP,
                "name": run.names.string("step"),
                "number": step,
                "first": first,
                "end": len(run.rows),
            }
        )
    return finished(run)


def finished(run: Run) -> Trace:
    """The trace of a run."""
    events = Events.from_rows(run.rows)
    final = Blocks.from_rows({"address": address, "size": size} for address, size in sorted(run.live.items()))
    segments = Segments.from_rows({"address": address, "size": SEGMENT} for address in run.segments)
    found = derive(events, final, segments, SplitRules())
    assert found.disagreements == 0 and not len(found.initial)
    events = Events.of({name: getattr(events, name) for name in Events.DTYPES} | {"block_size": found.block_size})
    return Trace(
        meta=TraceMeta(
            torch="2.14.1+cu130", command=("train.py", "--batch", "24"),
            devices=(DeviceInfo(index=0, name="NVIDIA Example 256MB", capacity=CAPACITY, context=CONTEXT),),
        ),
        events=events, owners=Owners.from_rows(run.owners), spans=Spans.from_rows(run.spans),
        contexts=run.names.contexts, frames=run.names.frames, stacks=run.names.stacks, strings=run.names.strings,
        shapes=run.names.shapes,
    )  # fmt: skip


def renamed(trace: Trace, command: str) -> Trace:
    """The same trace of another command."""
    return replace(trace, meta=replace(trace.meta, command=(command,)))
