"""`peakmem tune`: which allocator settings make it fit, or take less memory?"""

from __future__ import annotations

from typing import Any

import click


@click.command(
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
    epilog="Exit codes: 0 it fits under the settings named (or no memory was given), 1 it fits under none, 2 bad "
    "input, 3 the script itself failed, 130 interrupted (what was found until then is printed).",
)
@click.option("--gpu", metavar="NAME", help="The card to fit into: 4090, a100-80, ... (peakmem gpus lists them).")
@click.option("--memory", metavar="SIZE", help="Total memory of the card instead, such as 24GiB.")
@click.option("--alloc-conf", metavar="STR", help="Settings to compare with. [those of the trace or the command]")
@click.option("--budget-seconds", type=click.FloatRange(min=1), default=60, show_default=True, metavar="N",
              help="How long the search may take; runs of a command come on top.")  # fmt: skip
@click.option("--steps", default="auto", metavar="N|auto|all", show_default=True,
              help="With a command: optimizer steps to watch, as in peakmem run.")  # fmt: skip
@click.option("--no-verify", is_flag=True, help="With a command: don't run it again under the best settings.")
@click.option("--device", type=int, metavar="N", help="With a trace: which device of it. [the one that held most]")
@click.option("--python", metavar="PATH", help="With a trace: the interpreter whose PyTorch replays.")
@click.option("--all", "show_all", is_flag=True, help="Show every setting that was tried, not the best alone.")
@click.option("--json", "json_target", metavar="FILE", help="Write JSON; - is standard output.")
@click.option("--force", is_flag=True, help="Write over a file that exists.")
@click.option("-m", "module", is_flag=True, help="The first word of the command is a Python module, as in python -m.")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="TRACE|SNAPSHOT | [--] COMMAND [ARGUMENTS]...")
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Find the allocator settings under which a run needs the least memory.

    \b
    peakmem tune snapshot.pickle
    peakmem tune --gpu 4090 run.peakmem
    peakmem tune --memory 24GiB -- python train.py

    Every candidate is replayed through the real allocator of your own PyTorch; values come from the sizes that the
    trace asks for. With a command, the best is verified by running the command again.
    """
    from peakmem.cli.tuning import TuneOptions, tune

    ctx.exit(tune(TuneOptions(**options)))
