"""Who holds the memory at the peak, as text for a terminal: roles, the largest holders, what need not be alive."""

from __future__ import annotations

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from peakmem.forecast.model import Forecast, Holder
from peakmem.report.wording import example_text, holder_text, role_title, short_line
from peakmem.units import format_size

MOST_HOLDERS_SHOWN = 8
BAR_WIDTH = 30
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_STYLES = {
    "parameter": "blue",
    "buffer": "bright_blue",
    "gradient": "magenta",
    "optimizer_state": "cyan",
    "activation": "green",
    "autocast_copy": "bright_green",
    "input": "bright_cyan",
    "workspace": "yellow",
    "communication": "bright_magenta",
    "temporary": "bright_yellow",
    "unattributed": "red",
}


def who_holds_it(forecast: Forecast) -> list[RenderableType]:
    """The parts to print; none if nothing was recorded."""
    if not forecast.roles_at_peak:
        return []
    parts: list[RenderableType] = [_roles(forecast.roles_at_peak), Text()]
    if forecast.holders_at_peak:
        parts += [_holders(forecast.holders_at_peak), Text()]
    if forecast.unneeded_at_peak:
        parts += [_unneeded(forecast), Text()]
    return parts


def bar(share: float, width: int = BAR_WIDTH) -> str:
    """A bar of a share of `width` columns, to an eighth of one."""
    eighths = round(share * width * 8)
    whole, part = divmod(eighths, 8)
    return "█" * whole + (_EIGHTHS[part] if part else "")


def _roles(roles: dict[str, int]) -> Table:
    total = sum(roles.values())
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(justify="right")
    table.add_column(justify="right", style="dim")
    table.add_column()
    shown = sorted(((word, size) for word, size in roles.items() if size), key=lambda row: -row[1])
    table.add_row(Text("at the peak", style="bold"), format_size(total), "", Text("allocated", style="dim"))
    for word, size in shown:
        share = size / total
        table.add_row(
            role_title(word), format_size(size), f"{100 * share:.1f} %", Text(bar(share), style=_STYLES[word])
        )
    return table


def _holders(holders: tuple[Holder, ...]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", expand=False)
    table.add_column("largest holders", justify="right", no_wrap=True)
    table.add_column("what", overflow="fold")
    lines = any(holder.line for holder in holders)  # TensorFlow tells of no lines
    if lines:
        table.add_column("made at", style="dim", overflow="fold")
    for holder in holders[:MOST_HOLDERS_SHOWN]:
        table.add_row(format_size(holder.bytes), _what(holder), *([short_line(holder.line)] if lines else []))
    rest = holders[MOST_HOLDERS_SHOWN:]
    if rest:
        table.add_row(Text("...", style="dim"), Text(f"{len(rest)} more in --json", style="dim"))
    return table


def _what(holder: Holder) -> Text:
    count = f"{holder.count} x " if holder.count > 1 else ""
    text = Text(f"{count}{role_title(holder.role)}", style=_STYLES[holder.role])
    which = holder_text(holder)
    if which:
        text.append(f" {which}", style="default")
    return text


def _unneeded(forecast: Forecast) -> Text:
    text = Text("alive at the peak that need not be", style="bold")
    for row in forecast.unneeded_at_peak:
        blocks = f"{row.count} blocks" if row.count > 1 else "1 block"
        text.append(f"\n{format_size(row.bytes)}", style="yellow")
        text.append(f" {row.what} ({blocks})", style="default not bold")
        for example in row.examples[:2]:
            text.append(f"\n    {example_text(example)}", style="dim not bold")
        text.append(f"\n    {row.remedy}", style="not bold italic")
    return text
