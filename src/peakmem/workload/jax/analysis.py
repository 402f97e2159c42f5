"""What a function of JAX takes: XLA's own figures, and what its allocator makes of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import msgspec

from peakmem.allocator.bfc import BfcAllocator, BfcError, BfcOptions
from peakmem.errors import ExitCode, PeakmemError
from peakmem.vgpu.catalogue import Device
from peakmem.workload.jax.target import target_config

PREFIX = "jax:"
PREALLOCATED = 0.75
"""Share of the card's total memory that is taken at the first operation (JAX 0.10.2, its notes on GPU memory)."""
_CHILD = Path(__file__).parent / "child.py"


@dataclass(frozen=True, kw_only=True, slots=True)
class JaxMemory:
    """One call of a compiled function, bytes.

    Attributes:
        jax: version of JAX.
        target: "GPU" (compiled for the card, without one) or "CPU".
        why_cpu: why it could not be compiled for the card; empty where it was.
        arguments, outputs: what goes in and comes out.
        aliased: outputs that take the place of donated arguments.
        temporary: what the call needs besides: XLA lays all of it out in one block.
        code: generated code.
        peak: XLA's own peak from lifetimes, which may be less than the sum; 0 where it is not told.
        argument_sizes, output_sizes: of each array.
    """

    jax: str
    target: str
    why_cpu: str
    arguments: int
    outputs: int
    aliased: int
    temporary: int
    code: int
    peak: int
    argument_sizes: tuple[int, ...]
    output_sizes: tuple[int, ...]

    @property
    def in_use(self) -> int:
        """Bytes in use during a call (xla/pjrt/compiled_memory_stats.h)."""
        return self.arguments + self.outputs - self.aliased + self.temporary + self.code


@dataclass(frozen=True, kw_only=True, slots=True)
class JaxRoom:
    """What XLA's allocator makes of it on a card, bytes.

    Attributes:
        limit: what it takes at most: its share of the card.
        in_use: in chunks handed out, during a call.
        grown: regions taken where memory is taken as needed (`XLA_PYTHON_CLIENT_PREALLOCATE=false`).
        fits: whether a call finds room.
    """

    limit: int
    in_use: int
    grown: int
    fits: bool


def analyse(module: str, name: str, folder: str, *, batch: int | None, device: Device | None) -> JaxMemory:
    """Compile a function in a process of its own, and read what it takes.

    Args:
        module: name of the module.
        name: of the function that makes (function, arguments).
        folder: where the module is.
        batch: what that function is called with, if it takes something.
        device: the card to compile for; None: the CPU.

    Raises:
        PeakmemError: it can't be compiled.
    """
    with tempfile.TemporaryDirectory(prefix="peakmem-jax-") as place:
        result = Path(place, "result.json")
        asked = {
            "folder": folder,
            "module": module,
            "name": name,
            "batch": batch,
            "target": None if device is None else target_config(device),
            "result": str(result),
        }
        done = subprocess.run(
            [sys.executable, str(_CHILD), json.dumps(asked)],
            capture_output=True,
            text=True,
            env={**os.environ, "JAX_PLATFORMS": "cpu"},
            check=False,
        )
        if done.returncode or not result.exists():
            lines = done.stderr.strip().splitlines() or ["no output"]
            code = ExitCode.BAD_INPUT if "Traceback" not in done.stderr else ExitCode.SCRIPT_FAILED
            raise PeakmemError(
                f"{module}:{name} can't be compiled: {lines[-1]}",
                hint="" if code is ExitCode.BAD_INPUT else "\n".join(lines[-15:-1]),
                exit_code=code,
            )
        found = json.loads(result.read_text(encoding="utf-8"))
    return msgspec.convert(found, JaxMemory)


def room_on(device: Device, memory: JaxMemory, *, usable: int, share: float = PREALLOCATED) -> JaxRoom:
    """What the allocator makes of a call on a card.

    Args:
        device: the card.
        memory: what the call takes.
        usable: bytes that are left of the card beside the context.
        share: of the total memory that the process may take.
    """
    limit = min(int(device.total_memory * share), usable)
    bfc = BfcAllocator(BfcOptions(limit=limit, growth=True))
    fits = True
    # Arguments are there before; then the block of temporaries and the results that no argument gives its place to.
    fresh = max(memory.outputs - memory.aliased, 0)
    for size in (*memory.argument_sizes, memory.temporary, *_split(fresh, memory.output_sizes)):
        try:
            bfc.allocate(size)
        except BfcError:
            fits = False
            break
    figures = bfc.statistics
    return JaxRoom(limit=limit, in_use=figures.peak_in_use, grown=figures.peak_pool, fits=fits)


def _split(total: int, sizes: tuple[int, ...]) -> list[int]:
    """The sizes of the results that are new: all of them, or what is left where some take another's place."""
    if sum(sizes) <= total:
        return [*sizes, total - sum(sizes)]
    return [total]
