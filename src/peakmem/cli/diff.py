"""`peakmem diff`: what grew from one run to another."""

from __future__ import annotations

import click


@click.command(epilog="Exit codes: 0 compared, 2 bad input.")
@click.option(
    "--top", type=click.IntRange(min=1), default=12, show_default=True, metavar="N", help="Rows of each table."
)
@click.option("--json", "json_target", metavar="FILE", help="Write all of it as JSON; - is standard output.")
@click.option("--force", is_flag=True, help="Replace the JSON file if it exists.")
@click.argument("a")
@click.argument("b")
def command(a: str, b: str, top: int, json_target: str | None, *, force: bool) -> None:
    """Compare two runs at their peaks: what grew, and which tensors appeared or went.

    \b
    peakmem diff before.peakmem after.peakmem
    peakmem diff main.json branch.json
    peakmem diff forecast.json measured.json

    A and B are traces, PyTorch snapshots, or forecasts in JSON (peakmem run --json). A line that only moved within its
    function is no difference. A measurement (peakmem run --measure --json) is put beside a forecast, or another one.
    """
    from peakmem.cli.plain import text_console
    from peakmem.files import write_json
    from peakmem.report.beside import beside_of
    from peakmem.report.diff import diff_json, print_diff
    from peakmem.report.measuring import print_beside
    from peakmem.trace.compare import compare, load_side

    beside = beside_of(a, b)
    if beside is not None:
        if json_target is not None:
            write_json(beside, json_target, force=force)
        if json_target != "-":
            print_beside(beside, text_console())
        return
    comparison = compare(load_side(a), load_side(b))
    if json_target is not None:
        write_json(diff_json(comparison), json_target, force=force)
    if json_target != "-":
        print_diff(comparison, text_console(), top=top)
