"""The answer of `check` for a terminal: the reason on one line, then what grew."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from peakmem.report.diff import signed
from peakmem.units import format_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from peakmem.advise.budgets import Checked
    from peakmem.trace.compare import Change

MOST_ROWS = 8


def print_checked(checked: Checked, console: Console) -> None:
    """Print the answer."""
    style = "bold green" if checked.passed else "bold red"
    word, _, rest = checked.reason.partition(":")
    console.print(Text(f"peakmem check: {word}", style=style) + Text(f":{rest}", style=""), soft_wrap=True)
    for remark in checked.remarks:
        console.print(Text(f"  {remark}", style="yellow"), soft_wrap=True)
    for title, changes in (("by role", checked.roles), ("by module", checked.modules)):
        if changes:
            console.print()
            console.print(_table(title, changes))


def _table(title: str, changes: Sequence[Change]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(title)
    for name in ("baseline", "now", "change"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in changes[:MOST_ROWS]:
        table.add_row(Text(one.name.replace("_", " ")), format_size(one.a), format_size(one.b), signed(one.change))
    rest = changes[MOST_ROWS:]
    if rest:
        a, b = sum(one.a for one in rest), sum(one.b for one in rest)
        table.add_row(f"{len(rest)} more", format_size(a), format_size(b), signed(b - a), style="dim")
    return table
