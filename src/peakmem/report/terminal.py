"""A forecast as text for a terminal: the verdict, the statement of memory, the steps, what was assumed."""

from __future__ import annotations

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from peakmem.forecast.model import Forecast, OutOfMemory, Range
from peakmem.report import pieces
from peakmem.report.host_side import host_section
from peakmem.report.roles import who_holds_it
from peakmem.report.wording import (
    card_text,
    framework_text,
    place_of_failure,
    place_of_peak,
    statement_rows,
    usage_text,
    verdict_text,
)
from peakmem.units import format_size


def print_forecast(forecast: Forecast, console: Console) -> None:
    """Print a forecast."""
    parts: list[RenderableType] = [_headline(forecast), Text()]
    if forecast.oom is not None:
        parts += [_out_of_memory(forecast.oom, forecast.floor), Text()]
    parts += [_statement(forecast), Text(), *who_holds_it(forecast)]
    if forecast.convolution_range is not None:
        parts += [_convolution_range(forecast.convolution_range), Text()]
    if forecast.steps:
        parts += [_steps(forecast), Text()]
    if forecast.host is not None and forecast.host.node_peak is not None:
        parts += host_section(forecast.host)
    parts += _remarks(forecast)
    pieces.print_parts(parts, console)


def forecast_text(forecast: Forecast) -> str:
    """A forecast as `print_forecast` prints it to a file, 80 columns wide."""
    return pieces.plain_text(lambda console: print_forecast(forecast, console))


def _headline(forecast: Forecast) -> Text:
    if forecast.error is not None:
        return pieces.failure(forecast.error, f"{format_size(forecast.peak.used)} used")
    text = Text()
    unsure = forecast.left_out and forecast.verdict != "does_not_fit"
    text.append(verdict_text(forecast), style="bold yellow" if unsure else pieces.VERDICT_STYLES[forecast.verdict])
    text.append(f" on {card_text(forecast.gpu)}\n{usage_text(forecast)}")
    return text


def _out_of_memory(oom: OutOfMemory, floor: int | None) -> Text:
    text = Text()
    text.append("out of memory ", style="red")
    text.append(f"in {place_of_failure(oom)}\n")
    text.append(f"{format_size(oom.requested)} asked for, {format_size(oom.missing)} missing")
    if oom.caught:
        text.append("; the script caught the error and went on")
    elif oom.needed is not None:
        text.append(f"; without a limit the run takes {format_size(oom.needed)}")
        if floor is not None:
            text.append("\nthe smallest memory that works: ")
            text.append(f"{format_size(floor)} ({floor:,} bytes)", style="bold")
    return text


def _statement(forecast: Forecast) -> Table:
    table = pieces.statement_table()
    for row in statement_rows(forecast.peak, forecast.framework):
        shown = format_size(row.bytes) if row.is_sum else pieces.addend(row.bytes)
        table.add_row(Text(row.name, style="bold" if row.is_sum else ""), shown, f"{row.bytes:,}", row.remark)
    return table


def _convolution_range(span: Range) -> Text:
    text = Text("reserved lies between ")
    text.append(f"{format_size(min(span.least, span.likely, span.own))} and ", style="bold")
    text.append(f"{format_size(max(span.least, span.likely, span.own))}", style="bold")
    text.append(
        f", as cuDNN chooses on the card:\nwithout workspaces {format_size(span.least)}, "
        f"likely {format_size(span.likely)}, its own plans {format_size(span.own)}",
        style="dim",
    )
    return text


def _steps(forecast: Forecast) -> Table:
    table = pieces.steps_table(("allocated", "reserved"))
    last = len(forecast.steps) - 1
    for step in pieces.steps_shown(forecast.steps):
        if step is None:
            table.add_row("...", "", "")
            continue
        name = pieces.step_name(step.index, steady=forecast.steady and step.index == last)
        table.add_row(name, format_size(step.allocated), format_size(step.reserved))
    return table


def _remarks(forecast: Forecast) -> list[Text]:
    lines = []
    where = place_of_peak(forecast.peak)
    if where:
        lines.append(Text(f"the peak is reached in {where}"))
    segments = f"{forecast.segments} segment{'s' if forecast.segments != 1 else ''}"
    counts = f"{segments}, {forecast.retries} {'retries' if forecast.retries != 1 else 'retry'}"
    lines.append(Text(f"{counts}, {framework_text(forecast)}, {forecast.seconds:.1f} s", style="dim"))
    return lines + pieces.remarks(forecast.notes, forecast.assumptions, teller="a GPU")
