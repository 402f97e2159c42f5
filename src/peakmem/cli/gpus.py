"""`peakmem gpus`: the cards that peakmem knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.table import Table

    from peakmem.vgpu.catalogue import Device

SCHEMA = "peakmem/gpus/1"
_MARKS = {"reported": "", "given": "", "reported_rounded": "~", "derived": "?"}
_WIDE = 110


@click.command(epilog="Exit codes: 0, or 2 where no card fits.")
@click.argument("pattern", nargs=-1, metavar="[PATTERN]...")
@click.option("--json", "json_target", metavar="FILE", help="Write the list as JSON; - is standard output.")
@click.option("--force", is_flag=True, help="Write over a file that exists.")
def command(pattern: tuple[str, ...], json_target: str | None, force: bool) -> None:
    """List the cards that peakmem knows, all or those that fit a pattern.

    \b
    peakmem gpus
    peakmem gpus 4090
    peakmem gpus laptop ada
    peakmem gpus 80gb --json -

    The name to type for --gpu is in the second column; so is any other that means one card only ("A100 80GB").
    """
    from peakmem.files import write_json
    from peakmem.vgpu.catalogue import search_devices

    found = search_devices(" ".join(pattern))
    if json_target is not None:
        results = [device.as_dict() for device in found]
        write_json({"schema": SCHEMA, "results": results}, json_target, force=force)
    if json_target != "-":
        _print(found)


def _print(found: Sequence[Device]) -> None:
    from rich.console import Console
    from rich.text import Text

    from peakmem.cli.piped import PipedConsole

    console = Console(highlight=False)
    if not console.is_terminal:
        console = PipedConsole(width=console.width)
    console.print(_table(found, width=console.width))
    kinds = {device.total_memory_is for device in found}
    notes = []
    if "reported_rounded" in kinds:
        notes.append("~ printed in MiB or GiB by such a card")
    if "derived" in kinds:
        notes.append("? worked out from related cards")
    if any("multiprocessors" in device.guesses for device in found):
        notes.append("SMs with ? have no source")
    cards = "1 card" if len(found) == 1 else f"{len(found)} cards"
    memory = "Memory is what CUDA gives on Linux."
    console.print(Text(f"{cards}. {memory}" + (" " + "; ".join(notes) + "." if notes else ""), style="dim"))


def _table(found: Sequence[Device], *, width: int) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("GPU", overflow="fold")
    table.add_column("--gpu", style="cyan", no_wrap=True)
    table.add_column("GiB", justify="right", no_wrap=True)
    table.add_column("bytes", justify="right", no_wrap=True)
    table.add_column("CC", justify="right", no_wrap=True)
    table.add_column("SMs", justify="right", no_wrap=True)
    if width >= _WIDE:
        table.add_column("or", style="dim", overflow="fold")
    for device in found:
        mark = _MARKS[device.total_memory_is]
        guessed = "?" if "multiprocessors" in device.guesses else ""
        row = [
            device.name.removeprefix("NVIDIA ").removesuffix(" GPU"),
            device.short_name,
            f"{mark}{device.total_memory / 2**30:.2f}",
            f"{mark}{device.total_memory}",
            device.capability,
            f"{guessed}{device.multiprocessors}",
        ]
        if width >= _WIDE:
            row.append(", ".join(device.aliases[1:]))
        table.add_row(*row)
    return table
