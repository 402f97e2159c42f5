"""The calculation by hand beside what is held, as text for a terminal."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from peakmem.forecast.explain import (
    OPTIMIZER_STATE,
    OUTPUT_GRADIENTS,
    OUTPUTS,
    WEIGHT_GRADIENTS,
    Explanation,
    HandCount,
)
from peakmem.forecast.model import Forecast
from peakmem.units import format_size


def print_explanation(explained: Explanation, forecast: Forecast, console: Console) -> None:
    """Print an explanation."""
    console.print(Padding(Group(*_parts(explained, forecast)), (1, 0, 0, 1), expand=False))


def _parts(explained: Explanation, forecast: Forecast) -> list[RenderableType]:
    return [
        Text("the calculation by hand", style="bold"),
        count_table(explained.count),
        Text(),
        Text("beside what is held", style="bold"),
        _beside(explained, forecast),
        Text(),
        _ratios(explained, forecast),
        Text(),
        _reasons(explained, forecast),
    ]


def count_table(count: HandCount) -> Table:
    """The calculation by hand, for a sample and for the batch."""
    table = Table.grid(padding=(0, 2))
    table.add_column()
    for _ in range(3):
        table.add_column(justify="right")
    table.add_row("", *(Text(title, style="dim") for title in ("a sample", f"batch of {count.batch:,}", "bytes")))

    def row(what: str, elements: int, size: int, *, style: str = "") -> None:
        each = f"{elements // count.batch:,}" if elements % count.batch == 0 else f"{elements / count.batch:,.1f}"
        table.add_row(what, each, f"{elements:,}", format_size(size), style=style)

    plural = "s" if count.layers > 1 else ""
    row("input", count.input_elements, count.input_bytes)
    row(f"outputs of {count.layers} layer{plural}, forward", count.output_elements, count.output_bytes)
    row("their gradients, backward", count.output_elements, count.output_bytes)
    row("together", count.elements, count.bytes, style="bold")
    table.add_row("weights and biases", "", f"{count.parameters:,}", format_size(count.parameter_bytes))
    return table


def _beside(explained: Explanation, forecast: Forecast) -> Table:
    peak = forecast.peak
    table = Table.grid(padding=(0, 2))
    table.add_column()
    for _ in range(3):
        table.add_column(justify="right")
    table.add_row("", *(Text(title, style="dim") for title in ("by hand", "most at once", "at the peak")))
    for line in explained.lines:
        if not (line.by_hand or line.most or line.at_peak):
            continue
        by_hand = Text("not counted", style="dim") if line.by_hand is None else Text(format_size(line.by_hand))
        table.add_row(line.what, by_hand, format_size(line.most), format_size(line.at_peak))

    def total(what: str, size: int, *, style: str = "bold", sign: str = "") -> None:
        table.add_row(Text(what, style=style), "", "", Text(f"{sign}{format_size(size)}", style=style))

    total("allocated", explained.allocated)
    total("stranded in segments", peak.reserved - peak.active, style="", sign="+ ")
    if peak.active != explained.allocated:
        total("waiting for another stream", peak.active - explained.allocated, style="", sign="+ ")
    total("reserved", peak.reserved)
    total("context", peak.context, style="", sign="+ ")
    total("used", peak.used)
    return table


def _ratios(explained: Explanation, forecast: Forecast) -> Text:
    by_hand = explained.count.bytes
    workspaces = sum(size * count for size, count in explained.workspaces.items())
    text = Text()
    if not by_hand:
        return text
    text.append(f"Input, outputs and their gradients take {format_size(by_hand)} by hand. ")
    text.append(f"torch.cuda.max_memory_allocated gives {explained.allocated / by_hand:.1f} times that")
    if 20 * workspaces > explained.allocated:
        text.append(f" ({(explained.allocated - workspaces) / by_hand:.1f} times without the workspaces of cuBLAS)")
    text.append(f", torch.cuda.max_memory_reserved {forecast.peak.reserved / by_hand:.1f} times")
    text.append(f", nvidia-smi {forecast.peak.used / by_hand:,.1f} times.")
    return text


def _reasons(explained: Explanation, forecast: Forecast) -> Table:
    table = Table.grid(padding=(0, 1))
    for reason in reasons(explained, forecast):
        table.add_row("-", reason)
    return table


def reasons(explained: Explanation, forecast: Forecast) -> list[str]:
    """Where the rest comes from, one sentence each, largest share first."""
    peak = forecast.peak
    lines = {line.what: line for line in explained.lines}
    found = [
        (
            peak.context,
            f"the CUDA context takes {format_size(peak.context)} (± {format_size(peak.context_error, digits=0)}): "
            "kernels and library handles, whatever the model",
        )
    ]
    if explained.workspaces:
        size = sum(each * count for each, count in explained.workspaces.items())
        kinds = " and ".join(
            f"{count} x {format_size(each, digits=3)}"
            for each, count in sorted(explained.workspaces.items(), reverse=True)[:3]
        )
        found.append((size, f"cuBLAS holds workspaces of {kinds}, whatever the batch"))
    for name, size in list(explained.scratch.items())[:2]:
        found.append((size, f"{name} takes {format_size(size)} at the peak"))
    more = lines[WEIGHT_GRADIENTS].at_peak + lines[OPTIMIZER_STATE].at_peak
    if more:
        times = more / max(explained.count.parameter_bytes, 1)
        found.append((more, f"gradients and optimizer state are {times:.1f} more values for each weight"))
    stranded = peak.reserved - peak.active
    if stranded:
        kinds = ", ".join(f"{count} of {format_size(size)}" for size, count in sorted(explained.segments.items()))
        if len(explained.segments) > 4:
            sizes = sorted(explained.segments)
            kinds = f"{sum(explained.segments.values())} of {format_size(sizes[0])} to {format_size(sizes[-1])}"
        found.append(
            (
                stranded,
                f"the allocator takes memory in segments ({kinds}): small tensors from segments of 2 MiB, others up to "
                f"10 MiB from 20 MiB, and {format_size(stranded)} of them is in no block",
            )
        )
    rounding = explained.allocated - explained.requested
    if rounding:
        found.append((rounding, f"each tensor is rounded up to 512 B or keeps a rest: {format_size(rounding)}"))
    saved = lines[OUTPUTS]
    if saved.by_hand and saved.most > 1.05 * saved.by_hand:
        found.append(
            (
                saved.most - saved.by_hand,
                f"autograd saves {format_size(saved.most)} for the backward pass, not only the outputs of layers: "
                "activation functions, norms, dropout, attention and the loss keep tensors of their own",
            )
        )
    gradients = lines[OUTPUT_GRADIENTS]
    if gradients.by_hand and gradients.most < gradients.by_hand:
        found.append(
            (
                0,
                "gradients of outputs are given back as soon as they are used: at most "
                f"{format_size(gradients.most)} of them exist at once, not {format_size(gradients.by_hand)}",
            )
        )
    return [reason for _, reason in sorted(found, key=lambda row: -row[0])]
