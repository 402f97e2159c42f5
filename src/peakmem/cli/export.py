"""`peakmem export`: a trace in the format of another tool."""

from __future__ import annotations

from pathlib import Path

import click

_ENDINGS = {"snapshot": ".pickle", "perfetto": ".perfetto.json"}


@click.command(epilog="Exit codes: 0 written, 2 bad input.")
@click.option("--format", "form", type=click.Choice(list(_ENDINGS)), required=True,
              help="A PyTorch memory snapshot, or a Chrome trace.")  # fmt: skip
@click.option("-o", "--output", metavar="FILE", help="The file to make. [the trace's name with another ending]")
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@click.argument("trace")
def command(trace: str, form: str, output: str | None, *, force: bool) -> None:
    """Write a trace in the format of another tool.

    \b
    peakmem export run.peakmem --format snapshot -o run.pickle
    peakmem export run.peakmem --format perfetto -o run.json

    snapshot: what torch.cuda.memory._dump_snapshot writes; https://pytorch.org/memory_viz shows it.
    perfetto: Chrome trace JSON with counters, steps and phases; https://ui.perfetto.dev shows it.
    """
    from peakmem.errors import PeakmemError
    from peakmem.trace.load import load_trace
    from peakmem.trace.perfetto import write_perfetto
    from peakmem.trace.snapshot_write import write_snapshot

    source = Path(trace)
    target = Path(output) if output else source.with_suffix(_ENDINGS[form])
    if target.exists() and target.samefile(source):
        raise PeakmemError(f"{target} is the trace itself", hint="name another file with -o")
    write = write_snapshot if form == "snapshot" else write_perfetto
    click.echo(str(write(load_trace(source), target, force=force)))
