"""Traces made by hand: programs of requests, for tests of replay and tune."""

from __future__ import annotations

import random
from typing import Any

from peakmem.trace.model import DeviceInfo, Trace, TraceMeta
from peakmem.trace.roles import Action
from peakmem.trace.tables import Blocks, Events, Segments

MIB, GIB = 1 << 20, 1 << 30


class Program:
    """Requests, one after the other; every block gets an address of its own."""

    def __init__(self, *, conf: str = "", device: int = 0, capacity: int = 0) -> None:
        self._rows: list[dict[str, int]] = []
        self._live: dict[str, dict[str, int]] = {}
        self._next = 1 << 40
        self._device = device
        self._meta = TraceMeta(
            source="snapshot", alloc_conf=conf, devices=(DeviceInfo(index=device, capacity=capacity),)
        )
        self.initial: list[dict[str, int]] = []
        self.segments: list[dict[str, int]] = []

    def event(self, action: Action, *, address: int = 0, size: int = 0, stream: int = 0, **fields: int) -> None:
        self._rows.append(
            {"action": int(action), "address": address, "size": size, "block_size": size, "stream": stream,
             "device": self._device, **fields}
        )  # fmt: skip

    def take(self, name: str, size: int, *, stream: int = 0) -> None:
        block = {"address": self._next, "size": size, "stream": stream}
        self._next += max(size, 512) + (1 << 30)
        self._live[name] = block
        self.event(Action.ALLOC, **block)

    def give(self, name: str) -> None:
        block = self._live.pop(name)
        self.event(Action.FREE_REQUESTED, **block)
        self.event(Action.FREE_COMPLETED, **block)

    def give_later(self, name: str) -> dict[str, int]:
        """Free a block that another stream still uses; `done` ends that."""
        block = self._live.pop(name)
        self.event(Action.FREE_REQUESTED, **block)
        return block

    def done(self, block: dict[str, int]) -> None:
        self.event(Action.FREE_COMPLETED, **block)

    def trace(self, **fields: Any) -> Trace:
        return Trace(
            meta=self._meta,
            events=Events.from_rows(self._rows),
            initial=Blocks.from_rows(self.initial),
            initial_segments=Segments.from_rows(self.segments),
            **fields,
        )


def program(text: str, **fields: Any) -> Program:
    """A program in short: `a=3M b=20M@1 -a` (sizes in MiB, a stream's number behind @)."""
    made = Program(**fields)
    for word in text.split():
        if word.startswith("-"):
            made.give(word[1:])
        else:
            name, _, rest = word.partition("=")
            size, _, stream = rest.partition("@")
            made.take(name, int(float(size.rstrip("M")) * MIB), stream=int(stream or 0))
    return made


def variable_length(steps: int, *, layers: int = 8, shortest: int = 64, longest: int = 512, seed: int = 0) -> Trace:
    """Training with a batch length of its own in every step: activations of all layers live until the backward pass."""
    lengths = random.Random(seed)
    made = Program()
    for layer in range(layers):
        made.take(f"weight{layer}", 48 * MIB)
    for _ in range(steps):
        length = lengths.randint(shortest, longest)
        for layer in range(layers):
            made.take(f"wide{layer}", length * 96_000)
            made.take("temporary", length * 48_000)
            made.take(f"narrow{layer}", length * 32_000)
            made.give("temporary")
        made.take("logits", length * 512_000)
        made.take("loss", length * 512_000)
        for layer in reversed(range(layers)):
            made.take("gradient", length * 96_000)
            made.give(f"wide{layer}")
            made.give(f"narrow{layer}")
            made.give("gradient")
        made.give("logits")
        made.give("loss")
    return made.trace()
