"""A forecast of training on the CPU as text for a terminal."""

from __future__ import annotations

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from peakmem.forecast.cpu import CpuForecast
from peakmem.forecast.host import Host
from peakmem.report import pieces
from peakmem.report.wording import VERDICT_WORDS
from peakmem.units import format_size

_PHASES = ("forward", "backward", "optimizer")
_SHORT = {"activation or temporary": "other"}
_BLOCKS = " ▁▂▃▄▅▆▇█"
_WIDTH = 64


def print_cpu_forecast(forecast: CpuForecast, console: Console) -> None:
    """Print a forecast."""
    parts: list[RenderableType] = [_headline(forecast), Text(), _statement(forecast.host), Text()]
    if forecast.host.steps:
        parts += [_steps(forecast), Text()]
    parts += [*_course(forecast.host), *_remarks(forecast)]
    pieces.print_parts(parts, console)


def cpu_forecast_text(forecast: CpuForecast) -> str:
    """A forecast as `print_cpu_forecast` prints it to a file, 80 columns wide."""
    return pieces.plain_text(lambda console: print_cpu_forecast(forecast, console))


def _headline(forecast: CpuForecast) -> Text:
    text, host = Text(), forecast.host
    if forecast.error is not None:
        return pieces.failure(forecast.error, f"{format_size(host.peak_rss)} resident")
    text.append(VERDICT_WORDS[forecast.verdict], style=pieces.VERDICT_STYLES[forecast.verdict])
    taken = host.peak_rss if host.tree_rss is None else host.tree_rss
    if host.limit is not None:
        text.append(f" in {format_size(host.limit)} ({host.limit_name})")
    text.append(f"\n{format_size(host.peak_rss)} resident at the peak")
    if host.tree_rss is not None:
        text.append(f", {format_size(host.tree_rss)} with its worker processes")
    if host.limit is not None:
        spare = host.limit - taken
        text.append(f", {format_size(abs(spare))} {'spare' if spare >= 0 else 'missing'}")
    return text


def _statement(host: Host) -> Table:
    table = pieces.statement_table()
    for index, part in enumerate(host.parts):
        shown = pieces.addend(part.bytes) if index else format_size(part.bytes)
        table.add_row(part.name, shown, f"{part.bytes:,}", f"{part.note}, {part.source}")
        if part.name == "tensors" and host.phase != "exit":  # what is left of them by then nobody knows by role
            for role in host.roles:
                name = f"  {_SHORT.get(role.name, role.name)}"
                table.add_row(name, Text(format_size(role.bytes), style="dim"), f"{role.bytes:,}", "")
    table.add_row(
        Text("resident", style="bold"), format_size(host.peak_rss), f"{host.peak_rss:,}", "VmHWM of /proc/PID/status"
    )
    return table


def _steps(forecast: CpuForecast) -> Table:
    steps = forecast.host.steps
    # TensorFlow's steps have no phases that could be told from each other.
    phases = tuple(name for name in _PHASES if any(name in step.phases for step in steps))
    table = pieces.steps_table((*(phases or ("peak",)), "left at its end"))
    last = len(steps) - 1
    for step in pieces.steps_shown(steps):
        if step is None:
            table.add_row("...")
            continue
        name = pieces.step_name(step.index, steady=forecast.steady and step.index == last)
        sizes = [format_size(step.phases[phase]) if phase in step.phases else "" for phase in phases]
        table.add_row(name, *(sizes or [format_size(step.peak_rss)]), format_size(step.end_rss))
    return table


def _course(host: Host) -> list[RenderableType]:
    """The last step as a line of blocks."""
    if host.course is None or not host.steps:
        return []
    last = host.steps[-1].index
    rss = [size for size, step in zip(host.course.rss, host.course.step, strict=True) if step == last]
    if len(rss) < 8:
        return []
    low, high = min(rss), max(rss)
    columns = min(_WIDTH, len(rss))
    drawn = ""
    for column in range(columns):
        part = rss[column * len(rss) // columns : (column + 1) * len(rss) // columns]
        drawn += _BLOCKS[1 + round((max(part) - low) / max(1, high - low) * (len(_BLOCKS) - 2))]
    label = f"over step {last + 1}, from {format_size(low)} to {format_size(high)}"
    return [Text(label, style="dim"), Text(drawn), Text()]


def _remarks(forecast: CpuForecast) -> list[Text]:
    lines, host = [], forecast.host
    if host.phase is not None and host.step is not None:
        phase = "" if host.phase == "other" else f", {host.phase}"
        lines.append(Text(f"the peak is reached in step {host.step + 1}{phase}"))
    if host.phase == "exit":
        training = max((step.peak_rss for step in host.steps), default=0)
        while_training = f"; in training it was {format_size(training)}" if training else ""
        lines.append(Text(f"the peak is reached when the process ends{while_training}"))
    if host.by_hand and not forecast.framework:  # of TensorFlow only large tensors are known by their roles
        share = f"{host.by_hand / host.peak_rss:.1%}".replace("%", " %")
        lines.append(
            Text(f"a count by hand of parameters, gradients and optimizer states: {format_size(host.by_hand)}, {share}")
        )
    threads = f"{host.threads} thread{'s' if host.threads != 1 else ''}"
    framework = forecast.framework or f"torch {forecast.torch}"
    lines.append(Text(f"{threads}, {framework}, {forecast.libc}, {forecast.seconds:.1f} s", style="dim"))
    return lines + pieces.remarks(forecast.notes, forecast.assumptions, teller="computing")
