"""The host's side of a GPU job as text for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from peakmem.report.host_wording import host_rows, host_warnings
from peakmem.units import format_size

if TYPE_CHECKING:
    from rich.console import RenderableType

    from peakmem.forecast.host import Host


def host_section(host: Host) -> list[RenderableType]:
    """The section: what the process that trains takes of the host, what all take, and what a longer run adds."""
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(justify="right")
    table.add_column(style="dim")
    for row in host_rows(host):
        shown = format_size(row.bytes) if row.is_sum else f"+ {format_size(row.bytes)}"
        table.add_row(Text(row.name, style="bold" if row.is_sum else ""), shown, row.remark)
    warnings = [Text(f"note: {text}", style="yellow") for text in host_warnings(host)]
    return [table, *warnings, Text()]
