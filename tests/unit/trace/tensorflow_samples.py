"""Recordings of TensorFlow made by hand: what its allocator was asked for, by which operator, in what order."""

from __future__ import annotations

from typing import Any

import numpy as np

from peakmem.trace.recorded import EVENT
from peakmem.trace.tensorflow_log import CHUNK, DYNAMIC, OUTPUT, REGION

START = 0x7F00_0000_0000
CALL = "StatefulPartitionedCall/"


class Training:
    """Builds a recording from what a training does, chunk by chunk."""

    def __init__(self) -> None:
        self._events: list[tuple[int, ...]] = []
        self._chunks: list[tuple[int, ...]] = []
        self._names: dict[str, int] = {}
        self._live: dict[str, tuple[int, int, int]] = {}
        self._regions: list[tuple[int, ...]] = []
        self._steps: list[dict[str, int]] = []
        self._keys: dict[tuple[Any, ...], int] = {}
        self._notes: list[tuple[int, int, int]] = []
        self._allocated = self._reserved = 0
        self._next = START
        self.contexts: list[tuple[int, str, str]] = [(0, "", "")]
        self.phases: dict[str, list[str]] = {"backward": [], "optimizer": []}
        self.layers = {"net_1": "net", "net_1/dense_1": "net/dense"}
        self.context = self.thread = 0

    @property
    def now(self) -> int:
        return len(self._events)

    def region(self, size: int) -> None:
        """Take a region (a negative size: give one of that size back)."""
        address = self._next if size > 0 else next(row[1] for row in self._regions if row[2] == -size)
        self._next += max(size, 0)
        self._reserved += size
        self._regions.append((self.now, address, size, 0, 0))

    def take(
        self, name: str, requested: int, op: str, *, region: int = OUTPUT, shape: str = "", running: bool = True
    ) -> None:
        """An operator takes a chunk of a name."""
        size = -(-requested // 256) * 256
        address = START + 2**20 * (1 + self.now)
        self._live[name] = (address, size, requested)
        self._allocated += size
        self._event(address, size)
        self._chunks.append((requested, self._number(op), self._number(shape), 1, region, running))

    def copy(self, name: str, requested: int, *, op: str = "_EagerConst") -> None:
        """Something is copied from the host."""
        self.take(name, requested, op, region=DYNAMIC, shape="[0]", running=":" in op)

    def give(self, name: str, op: str, *, running: bool = False) -> None:
        """A chunk goes back after its last use by an operator, or while that runs."""
        address, size, requested = self._live.pop(name)
        self._allocated -= size
        self._event(address, -size)
        self._chunks.append((requested, self._number(op), self._number(""), 0, 0, running))

    def note(self, name: str, role: str, variable: str, shape: tuple[int, ...] = ()) -> None:
        """A variable was found in a chunk."""
        number = self._keys.setdefault((role, variable, shape, "float32"), len(self._keys))
        self._notes.append((self.now, self._live[name][0], number))

    def step(self) -> None:
        """A step ends."""
        self._steps.append({"end": self.now, "allocated": 0, "reserved": 0, "optimizers": 1, "backwards": 0})

    def recording(self, **fields: Any) -> dict[str, Any]:
        """What the watching side would have written."""
        return {
            "framework": "TensorFlow 2.21.0",
            "torch": "",
            "command": ["python", "train.py"],
            "devices": [{"name": "card"}],
            "events": np.asarray(self._events, dtype=EVENT).tobytes(),
            "contexts": self.contexts,
            "steps": self._steps,
            "operators": b"",
            "operator_names": [],
            "uses": b"",
            "error": None,
            "tensorflow": {
                "chunks": np.asarray(self._chunks, dtype=CHUNK).tobytes(),
                "chunk_names": list(self._names),
                "regions": np.asarray(self._regions, dtype=REGION).tobytes(),
                "notes": {"keys": list(self._keys), "rows": self._notes},
                "phases": self.phases,
                "layers": self.layers,
                "failure": "",
                "growth": True,
                "roles": {},
            },
            **fields,
        }

    def _event(self, address: int, size: int) -> None:
        self._events.append((address, size, self._allocated, self._reserved, self.context, 0, self.thread))

    def _number(self, name: str) -> int:
        return self._names.setdefault(name, len(self._names))


def one_step() -> Training:
    """A step of a dense layer in a function: its weight, what it saves, its gradient, an update in place."""
    made = Training()
    made.region(2**21)
    made.take("weight", 4000, "Fill:Fill", shape="[100,10]")
    made.copy("batch", 800, op="IteratorGetNext/_2:_Recv")
    made.note("weight", "parameter", "net/dense/kernel", (100, 10))
    made.take("hidden", 2560, f"{CALL}net_1/dense_1/MatMul:MatMul", shape="[64,10]")
    made.take("mean", 256, f"{CALL}net_1/loss/Mean:Mean")
    made.give("mean", f"{CALL}net_1/loss/Cast:Cast")
    wide = f"{CALL}gradient_tape/net_1/dense_1/MatMul/MatMul_1:MatMul"
    made.take("gradient", 4000, wide, shape="[100,10]")
    made.take("scratch", 100_000, wide, region=2, shape="[100000]")
    made.give("scratch", wide, running=True)
    made.give("hidden", wide)
    made.take("update", 4000, f"{CALL}adam/Sub:Sub")
    made.give("gradient", f"{CALL}adam/Sub:Sub")
    made.give("update", f"{CALL}adam/AssignSubVariableOp:AssignSubVariableOp")
    made.phases["optimizer"] += ["adam/Sub", "adam/AssignSubVariableOp"]
    made.step()
    return made
