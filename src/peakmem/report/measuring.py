"""A measurement as text for a terminal."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from peakmem.host.limits import WHAT_HAPPENS
from peakmem.report.area import area_chart
from peakmem.units import format_size

if TYPE_CHECKING:
    from rich.console import Console

    from peakmem.host.measurement import Measurement, ProcessPeak
    from peakmem.report.beside import Beside

MOST_PROCESSES = 8
NEAR = 0.9
"""A limit of which more than this share was used is pointed out."""
_WIDTH, _HEIGHT = 60, 8


def print_measurement(measured: Measurement, console: Console) -> None:
    """Print a measurement."""
    console.print()
    console.print(_headline(measured))
    console.print()
    console.print(_peaks(measured))
    if len(measured.processes) > 1:
        console.print()
        console.print(_processes(measured))
    if measured.gpus or measured.torch:
        console.print()
        console.print(_gpus(measured))
    chart = _chart(measured)
    if chart is not None:
        console.print()
        console.print(chart)
    if measured.limits:
        console.print()
        console.print(_limits(measured))
        console.print(_first_limit(measured) or "")
    console.print()
    for note in measured.notes[1:] if measured.ending != "ended" else measured.notes:
        console.print(Text(f" note: {note}", style="dim"))
    cost = measured.cost
    console.print(
        Text(
            f" looked {cost.samples:,} times, counted pages {cost.page_samples:,} times: "
            f"{cost.cpu_seconds:.2f} s of processor time, {cost.share:.1%} of the run",
            style="dim",
        )
    )


def print_beside(beside: Beside, console: Console) -> None:
    """Print a forecast and a measurement side by side."""
    table = _table(("", False), (beside.columns[0], True), (beside.columns[1], True), ("difference", True), ("", True))
    for row in beside.rows:
        sign = "+" if row.difference > 0 else "-"
        off = f"{row.difference / row.measured:+.1%}" if row.measured else ""
        difference = f"{sign}{format_size(abs(row.difference))}" if row.difference else "same"
        table.add_row(row.name, format_size(row.predicted), format_size(row.measured), difference, off)
    console.print()
    console.print(Text(f" {beside.forecast} and {beside.measurement}", style="bold"))
    console.print(table)
    for note in beside.notes:
        console.print(Text(f" note: {note}", style="dim"))


def _headline(measured: Measurement) -> Text:
    text = Text(" ")
    if measured.ending == "ended":
        text.append(f"took {format_size(measured.peak.pss or measured.peak.rss)} of host memory", style="bold")
    else:
        text.append(measured.notes[0], style="bold red")
    words = " ".join(measured.command)
    shown = words if len(words) <= 60 else words[:57] + "..."
    text.append(f"\n {shown}: {measured.seconds:.1f} s, exit code {measured.exit_code}", style="dim")
    return text


def _peaks(measured: Measurement) -> Table:
    peak = measured.peak
    rows = [
        ("all processes", peak.pss, "PSS: shared pages divided among them"),
        ("largest process", peak.process, "RSS, the kernel's own peak (VmHWM)"),
    ]
    if len(measured.processes) > 1:
        rows += [
            ("sum of RSS", peak.rss, "shared pages counted in each process"),
            ("for themselves", peak.uss, "USS: pages that no other process has"),
        ]
    rows.append(("/dev/shm", peak.shm, "growth while it ran"))
    if peak.swap:
        rows.append(("swap", peak.swap, "moved out of memory"))
    if measured.group is not None:
        kept = "kernel's peak" if measured.group.peak is not None else "sampled"
        remark = f"with page cache, {kept}; {format_size(measured.group.before, digits=0)} before"
        rows.append(("control group", measured.group.highest, remark))
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(justify="right")
    table.add_column(justify="right", style="dim")
    table.add_column(style="dim")
    for name, size, remark in rows:
        table.add_row(f" {name}", format_size(size), f"{size:,}", remark)
    return table


def _processes(measured: Measurement) -> Table:
    table = _table(("process", False), ("peak RSS", True), ("USS", True), ("no file's", True), ("files'", True),
                   ("shared", True), ("lived", True))  # fmt: skip
    for one in measured.processes[:MOST_PROCESSES]:
        table.add_row(
            f"{one.pid} {_name(one)}",
            *(format_size(size, digits=1) for size in (one.rss, one.uss, one.anonymous, one.file, one.shared)),
            f"{one.last - one.first:.1f} s",
        )
    rest = measured.processes[MOST_PROCESSES:]
    if rest:
        table.add_row(f"{len(rest)} more", f"<= {format_size(max(one.rss for one in rest), digits=1)}")
    return table


def _name(process: ProcessPeak) -> str:
    words = [word for word in process.command if word.endswith(".py")] or list(process.command[:1]) or ["?"]
    return PurePosixPath(words[0]).name[:20]


def _gpus(measured: Measurement) -> Table:
    table = _table(("GPU", False), ("used", True), ("of", True), ("", False))
    for gpu in measured.gpus:
        remark = "growth of the whole card" if gpu.whole_card else "NVML, these processes"
        table.add_row(f"{gpu.index} {gpu.name}", format_size(gpu.used), format_size(gpu.total), remark)
    for peak in measured.torch:
        table.add_row(f"{peak.device} process {peak.pid}", format_size(peak.reserved), "", "max_memory_reserved")
        table.add_row("", format_size(peak.allocated), "", "max_memory_allocated")
        if peak.pinned:
            table.add_row("", format_size(peak.pinned), "", "pinned host memory")
    return table


def _chart(measured: Measurement) -> Text | None:
    points = measured.points
    lines = area_chart(points.seconds, points.rss, width=_WIDTH, height=_HEIGHT)
    if len(points.seconds) < 3 or not lines:
        return None
    text = Text()
    for number, line in enumerate(lines):
        label = format_size(max(points.rss), digits=1) if number == 0 else ""
        text.append(f" {label:>10} ", style="dim")
        text.append("▏")
        text.append(f"{line}\n", style="cyan")
    end = f"{points.seconds[-1]:.1f} s"
    text.append(f" {'0':>10} ▏{'sum of RSS over time':<{_WIDTH - len(end)}}{end}", style="dim")
    return text


def _limits(measured: Measurement) -> Table:
    table = _table(("limit", False), ("", True), ("used", True), ("", True))
    for use in measured.limits:
        share = f"{use.share:.0%}" if use.used is not None else ""
        used = format_size(use.used) if use.used is not None else "not counted"
        style = "bold red" if use.share > NEAR else ""
        table.add_row(use.limit.name, format_size(use.limit.bytes), used, share, style=style)
    return table


def _first_limit(measured: Measurement) -> Text | None:
    first = next((use for use in measured.limits if use.used is not None), None)
    if first is None:
        return None
    return Text(f" beyond {first.limit.name}, the first to be met, {WHAT_HAPPENS[first.limit.kind]}", style="dim")


def _table(*columns: tuple[str, bool]) -> Table:
    table = Table(box=None, pad_edge=True, padding=(0, 1), header_style="dim")
    for title, right in columns:
        table.add_column(title, justify="right" if right else "left", overflow="fold")
    return table
