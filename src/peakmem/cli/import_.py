"""`peakmem import`: a PyTorch memory snapshot as a trace."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("import", epilog="Exit codes: 0 written, 2 bad input.")
@click.option("-o", "--output", metavar="FILE", help="The file to make. [the snapshot's name with .peakmem]")
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@click.argument("snapshot")
def command(snapshot: str, output: str | None, *, force: bool) -> None:
    """Turn a PyTorch memory snapshot of a real run into a trace.

    \b
    peakmem import snapshot.pickle -o run.peakmem

    All forms are read: the pickle of torch.cuda.memory._dump_snapshot (2.0 and later), the list of segments of older
    versions (pickle or JSON), and the HTML page around a snapshot. Nothing in a file is executed.
    """
    from peakmem.trace.file import write_trace
    from peakmem.trace.load import import_snapshot
    from peakmem.trace.replay import Replay
    from peakmem.units import format_size

    source = Path(snapshot)
    trace = import_snapshot(source)
    target = write_trace(trace, output or source.with_suffix(".peakmem"), force=force)
    replay = Replay(trace)
    click.echo(f"{target}  {target.stat().st_size:,} bytes, {len(trace.events):,} events")
    click.echo(
        f"cuda:{replay.device}  peak {format_size(replay.peak('allocated').allocated)} allocated, "
        f"{format_size(replay.peak('reserved').reserved)} reserved"
    )
    for note in trace.meta.notes:
        click.echo(f"note: {note}", err=True)
