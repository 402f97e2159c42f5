"""`peakmem report`: a trace as one HTML file."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(epilog="Exit codes: 0 written, 2 bad input.")
@click.option("-o", "--output", metavar="FILE", help="The file to make. [the trace's name with .html]")
@click.option("--device", type=click.IntRange(min=0), metavar="N", help="Which device. [the one that held most]")
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@click.argument("trace", metavar="TRACE|SNAPSHOT")
def command(trace: str, output: str | None, device: int | None, *, force: bool) -> None:
    """Make an HTML report of a trace: memory over time, what holds it, the segments at the peak.

    \b
    peakmem report run.peakmem
    peakmem report snapshot.pickle -o report.html

    A PyTorch snapshot (torch.cuda.memory._dump_snapshot) of a real run works as well. The report is one file that needs
    no network.
    """
    from peakmem.errors import PeakmemError
    from peakmem.report.html import write_html
    from peakmem.trace.load import load_trace

    source = Path(trace)
    loaded = load_trace(source)
    if device is not None and device not in loaded.device_indices:
        known = ", ".join(map(str, loaded.device_indices))
        raise PeakmemError(f"{trace} has no device {device}", hint=f"it has: {known}")
    target = write_html(loaded, output or source.with_suffix(".html"), title=source.name, device=device, force=force)
    click.echo(str(target))
