"""Scenarios as one table for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from peakmem.units import format_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from peakmem.advise.scenarios import Scenario
    from peakmem.vgpu.catalogue import Device


def print_scenarios(title: str, device: Device, rows: Sequence[Scenario], console: Console) -> None:
    """Print the table, the highest row marked."""
    size = format_size(device.total_memory)
    card = device.name if size in device.name else f"{device.name} ({size})"
    console.print(Padding(Text(f"{title} on {card}\n"), (0, 0, 0, 1), expand=False))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("scenario", overflow="fold")
    for name in ("allocated", "reserved", "used"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("", overflow="fold")
    highest = max((row.used for row in rows if row.used is not None), default=None)
    for row in rows:
        style = "bold" if row.used == highest else ""
        fits = {True: Text("fits", style="green"), False: Text("too large", style="red"), None: Text("")}[row.fits]
        sizes = [format_size(size) if size is not None else "-" for size in (row.allocated, row.reserved, row.used)]
        table.add_row(Text(row.title, style=style), *sizes, fits, Text(row.remark, style="dim"))
    console.print(Padding(table, (0, 0, 0, 1), expand=False))
