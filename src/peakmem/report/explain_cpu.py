"""The calculation by hand beside what a training on the CPU holds, as text for a terminal."""

from __future__ import annotations

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from peakmem.forecast.cpu import CpuForecast
from peakmem.forecast.explain import OPTIMIZER_STATE, WEIGHT_GRADIENTS
from peakmem.forecast.explain_cpu import BATCH, HELD, IMPORTED, LATER, CpuExplanation
from peakmem.report.explain import count_table
from peakmem.report.pieces import print_parts
from peakmem.units import format_size


def print_cpu_explanation(explained: CpuExplanation, forecast: CpuForecast, console: Console) -> None:
    """Print an explanation."""
    parts: list[RenderableType] = [
        Text("the calculation by hand", style="bold"),
        count_table(explained.count),
        Text(),
        Text("beside what is resident", style="bold"),
        _beside(explained),
        Text(),
        _ratio(explained),
        Text(),
        _reasons(explained, forecast),
    ]
    print_parts(parts, console)


def _beside(explained: CpuExplanation) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(justify="right")
    table.add_column(justify="right")
    table.add_row("", Text("by hand", style="dim"), Text("at the peak", style="dim"))
    for line in explained.lines:
        if line.by_hand or line.at_peak:
            by_hand = Text("not counted", style="dim") if line.by_hand is None else Text(format_size(line.by_hand))
            table.add_row(line.what, by_hand, format_size(line.at_peak))
    table.add_row(Text("resident", style="bold"), "", Text(format_size(explained.resident), style="bold"))
    return table


def _ratio(explained: CpuExplanation) -> Text:
    by_hand = explained.count.bytes + explained.count.parameter_bytes
    return Text(
        f"By hand it is {format_size(by_hand)} with weights and biases. The process is resident with "
        f"{explained.resident / by_hand:,.1f} times that."
    )


def _reasons(explained: CpuExplanation, forecast: CpuForecast) -> Table:
    table = Table.grid(padding=(0, 1))
    for reason in cpu_reasons(explained, forecast):
        table.add_row("-", reason)
    return table


def cpu_reasons(explained: CpuExplanation, forecast: CpuForecast) -> list[str]:
    """Where the rest comes from, one sentence each, largest share first."""
    imported, later, held = (explained.at_peak(what) for what in (IMPORTED, LATER, HELD))
    found = [
        (imported, f"Python and torch take {format_size(imported)} as soon as they are imported, whatever the model"),
        (later, f"modules, kernels' code and MKL's buffers that are loaded later take {format_size(later)}"),
    ]
    more = explained.at_peak(WEIGHT_GRADIENTS) + explained.at_peak(OPTIMIZER_STATE)
    if more:
        times = more / max(explained.count.parameter_bytes, 1)
        found.append((more, f"gradients and optimizer state are {times:.1f} more values for each weight"))
    if held > 0:
        found.append((held, f"malloc keeps {format_size(held)} that was given back, for what comes next"))
    batch, by_hand = explained.at_peak(BATCH), explained.count.bytes
    if batch > 1.05 * by_hand:
        text = (
            f"other tensors take {format_size(batch)}, not {format_size(by_hand)}: activation functions, norms, "
            "dropout, attention, the loss and the optimizer make tensors of their own"
        )
        found.append((batch - by_hand, text))
    elif batch < by_hand:
        text = (
            "outputs and their gradients are given back as soon as they are used: at the peak "
            f"{format_size(batch)} of them are left, not {format_size(by_hand)}"
        )
        found.append((0, text))
    if forecast.host.phase == "exit":
        more = forecast.host.peak_rss - explained.resident
        found.append((more, f"the end of the process takes {format_size(more)} more, when libraries are unloaded"))
    return [reason for _, reason in sorted(found, key=lambda row: -row[0])]
