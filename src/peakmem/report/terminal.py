"""A forecast as text for a terminal: the verdict, the statement of memory, the steps, what was assumed."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from peakmem.forecast.model import Forecast, OutOfMemory, Range
from peakmem.report.roles import short_line, who_holds_it
from peakmem.units import format_size

_VERDICTS = {
    "fits": ("fits", "bold green"),
    "tight": ("fits, but tightly", "bold yellow"),
    "does_not_fit": ("does not fit", "bold red"),
}
MOST_STEPS_SHOWN = 6


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
    parts += _remarks(forecast)
    with console.capture() as capture:
        console.print(Padding(Group(*parts), (1, 0, 0, 1), expand=False))
    # rich fills lines up with blanks; whoever pastes or compares the text wants none.
    console.file.write("".join(line.rstrip() + "\n" for line in capture.get().splitlines()))


def _headline(forecast: Forecast) -> Text:
    word, style = _VERDICTS[forecast.verdict]
    gpu, peak = forecast.gpu, forecast.peak
    text = Text()
    if forecast.error is not None:
        where = f" at {forecast.error.line}" if forecast.error.line else ""
        text.append(f"the script failed{where}\n", style="bold red")
        text.append(f"{forecast.error.type}: {forecast.error.message}\n")
        text.append(f"until then: {format_size(peak.used)} used", style="dim")
        return text
    text.append(word, style=style)
    size = format_size(gpu.total)
    text.append(f" on {gpu.name}\n" if size in gpu.name else f" on {gpu.name} ({size})\n")
    spare = gpu.total - peak.used
    if spare >= 0:
        text.append(f"{format_size(peak.used)} used at the peak, {format_size(spare)} spare")
    else:
        text.append(f"{format_size(peak.used)} would be used at the peak, {format_size(-spare)} more than there is")
    return text


def _out_of_memory(oom: OutOfMemory, floor: int | None) -> Text:
    where = [f"step {oom.step + 1}", oom.phase]
    where += [part for part in (oom.op, oom.module, oom.line) if part]
    text = Text()
    text.append("out of memory ", style="red")
    text.append("in " + ", ".join(where) + "\n")
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
    peak = forecast.peak
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(justify="right")
    table.add_column(justify="right", style="dim")
    table.add_column(style="dim")

    def row(name: str, size: int, remark: str = "", *, sum_: bool = False) -> None:
        shown = format_size(size) if sum_ else f"{'-' if size < 0 else '+'} {format_size(abs(size))}"
        table.add_row(Text(name, style="bold" if sum_ else ""), shown, f"{size:,}", remark)

    row("requested", peak.requested, "what the program asked for", sum_=True)
    row("rounding", peak.allocated - peak.requested, "to 512 B and unsplit blocks")
    row("allocated", peak.allocated, "torch.cuda.max_memory_allocated", sum_=True)
    if peak.active != peak.allocated:
        row("waiting", peak.active - peak.allocated, "freed, another stream may still use it")
    row("stranded", peak.reserved - peak.active, "held by the allocator, but free")
    row("reserved", peak.reserved, "torch.cuda.max_memory_reserved", sum_=True)
    row("context", peak.context, f"estimate, ± {format_size(peak.context_error, digits=0)}")
    row("used", peak.used, "what nvidia-smi would show", sum_=True)
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
    table = Table(box=None, pad_edge=False, padding=(0, 2), header_style="dim")
    table.add_column("step")
    table.add_column("allocated", justify="right")
    table.add_column("reserved", justify="right")
    steps = forecast.steps
    shown = steps if len(steps) <= MOST_STEPS_SHOWN else (*steps[:3], None, *steps[-2:])
    for step in shown:
        if step is None:
            table.add_row("...", "", "")
            continue
        steady = forecast.steady and step.index == len(steps) - 1
        name = f"{step.index + 1} (steady)" if steady else f"{step.index + 1}"
        table.add_row(name, format_size(step.allocated), format_size(step.reserved))
    return table


def _remarks(forecast: Forecast) -> list[Text]:
    peak = forecast.peak
    lines = []
    where = [f"step {peak.step + 1}"] if peak.step is not None else []
    where += [part for part in (peak.phase if peak.phase != "other" else None, peak.op, peak.module) if part]
    where += [short_line(peak.line)] if peak.line else []
    if where:
        lines.append(Text("the peak is reached in " + ", ".join(where)))
    counts = f"{forecast.segments} segments, {forecast.retries} retries"
    lines.append(Text(f"{counts}, torch {forecast.torch}, {forecast.seconds:.1f} s", style="dim"))
    for note in forecast.notes:
        lines.append(Text(f"note: {note}", style="dim"))
    if forecast.assumptions:
        lines.append(Text("assumed, since only a GPU could tell:", style="dim"))
        for row in forecast.assumptions:
            place = f" (first at {row.where})" if row.where else ""
            lines.append(Text(f"  {row.what}: {row.assumed}, {_times(row.count)}{place}", style="dim"))
    return lines


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"
