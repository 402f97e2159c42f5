"""`peakmem predict jax:file.py:function`: what XLA says that a compiled function takes."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from peakmem.errors import ExitCode, PeakmemError
from peakmem.units import format_size
from peakmem.workload.jax.analysis import PREFIX, JaxMemory, JaxRoom, analyse, room_on

if TYPE_CHECKING:
    from peakmem.cli.predict_options import PredictOptions
    from peakmem.vgpu.catalogue import Device


def predict_jax(options: PredictOptions) -> int:
    """Compile, say what it takes, and give the exit code.

    Raises:
        PeakmemError: there is no such function, or it can't be compiled.
    """
    from peakmem.cli.planning import DEFAULT_GPU
    from peakmem.files import write_json
    from peakmem.units import parse_size
    from peakmem.vgpu.catalogue import custom_device, find_device
    from peakmem.vgpu.context import estimate_context
    from peakmem.workload.sources.function import locate

    if importlib.util.find_spec("jax") is None:
        raise PeakmemError("a function of JAX needs jax, which is not here", hint="pip install jax")
    module, _, name = options.what.removeprefix(PREFIX).rpartition(":")
    if not module or not name.isidentifier():
        raise PeakmemError(
            f"{options.what!r} names no function",
            hint="jax:file.py:function, which returns (function, arguments) or (function, arguments, options for jit)",
        )
    folder, imported = locate(module, name)
    device = find_device(options.gpu or DEFAULT_GPU)
    if options.memory is not None:
        device = custom_device(memory=parse_size(options.memory), like=device if options.gpu else None)
    memory = analyse(imported, name, folder, batch=options.batch, device=device)
    context = estimate_context(device, "12.0", lazy_loading=True, libraries_used=("cublas",))
    size = parse_size(options.context) if options.context is not None else context.size
    room = room_on(device, memory, usable=device.total_memory - size)
    if options.json_target is not None:
        write_json(_as_json(options.what, device, memory, room, size), options.json_target, force=options.force)
    if options.json_target != "-":
        _print(options.what, device, memory, room)
    return ExitCode.FITS if room.fits else ExitCode.DOES_NOT_FIT


def _as_json(what: str, device: Device, memory: JaxMemory, room: JaxRoom, context: int) -> dict[str, object]:
    return {
        "schema": "peakmem/jax/1",
        "what": what,
        "jax": memory.jax,
        "gpu": {"name": device.name, "total": device.total_memory},
        "compiled_for": memory.target,
        "why_cpu": memory.why_cpu or None,
        "verdict": "fits" if room.fits else "does_not_fit",
        "arguments": memory.arguments,
        "outputs": memory.outputs,
        "aliased": memory.aliased,
        "temporary": memory.temporary,
        "code": memory.code,
        "in_use": memory.in_use,
        "xla_peak": memory.peak or None,
        "preallocated": room.limit,
        "allocator": {"in_use": room.in_use, "reserved_with_growth": room.grown},
        "context": context,
    }


def _print(what: str, device: Device, memory: JaxMemory, room: JaxRoom) -> None:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    from peakmem.cli.plain import text_console

    console = text_console()
    verdict = Text("fits" if room.fits else "does not fit", style="bold green" if room.fits else "bold red")
    console.print(Padding(verdict + Text(f" on {device.name}: one call of {what.removeprefix(PREFIX)}"), (1, 0, 1, 1)))
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(justify="right")
    table.add_column(justify="right", style="dim")
    table.add_column(style="dim")
    rows = [
        ("arguments", "", memory.arguments, "weights, states, batch"),
        ("outputs", "+ ", memory.outputs, "what the call returns"),
        ("aliased", "- ", memory.aliased, "outputs in the place of donated arguments"),
        ("temporary", "+ ", memory.temporary, "activations and workspaces, one block"),
        ("in use", "", memory.in_use, "during the call"),
    ]
    for name, sign, size, remark in rows:
        table.add_row(Text(name, style="" if sign else "bold"), f"{sign}{format_size(size)}", f"{size:,}", Text(remark))
    console.print(Padding(table, (0, 0, 1, 1)))
    for line in _lines(device, memory, room):
        console.print(Padding(Text(line, style="dim"), (0, 0, 0, 1)))


def _lines(device: Device, memory: JaxMemory, room: JaxRoom) -> list[str]:
    lines = [
        f"JAX takes {format_size(room.limit)} of this card at its first operation, whatever it needs (75 %; "
        "XLA_CLIENT_MEM_FRACTION changes it).",
        f"With XLA_PYTHON_CLIENT_PREALLOCATE=false its allocator would hold {format_size(room.grown)}, of which "
        f"{format_size(room.in_use)} are in use.",
    ]
    if memory.target == "GPU":
        lines.append(
            f"Compiled for the card by XLA of JAX {memory.jax}, without a GPU: plans that are tried out on a card "
            "(autotuning) may need other workspaces."
        )
    else:
        lines.append(
            f"Compiled for the CPU by XLA of JAX {memory.jax}, since it could not be for {device.name} "
            f"({memory.why_cpu}): arguments and outputs are the same there, temporaries are not. "
            "pip install 'jax[cuda12]' lets it compile for a GPU, which need not be there."
        )
    return lines
