"""`peakmem run`: the main job."""

from __future__ import annotations

from typing import Any

import click

from peakmem.cli.shared_options import (
    ASSUME,
    BUILD_ON_DEVICE,
    DEVICE,
    GPU,
    MEMORY,
    MODULE,
    NO_WEIGHTS,
    card_options,
    result_options,
)


class _Command(click.Command):
    """Takes `--explain` at the very end too (`peakmem run train.py --explain`), unless `--` parts off the script."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[-1] == "--explain" and "--" not in args:
            args = ["--explain", *args[:-1]]
        return super().parse_args(ctx, args)


@click.command(
    cls=_Command,
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
    epilog="Exit codes: 0 it fits, 1 it does not fit, 2 bad input, 3 the script itself failed, 130 interrupted.",
)
@DEVICE
@GPU
@MEMORY
@click.option(
    "--steps",
    default="auto",
    metavar="N|auto|all",
    show_default=True,
    help="Optimizer steps to watch: until the peak is steady, a number, or to the script's own end.",
)
@card_options
@ASSUME
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="NAME=VALUE",
    help="Change a training setting in the running script: amp=bf16, optimizer.fused=true, optimizer.foreach=false, "
    "zero_grad=end, checkpoint=blocks, accumulate=N, cudnn.benchmark=false. May be repeated.",
)
@BUILD_ON_DEVICE
@NO_WEIGHTS
@click.option("--output", metavar="hide|show|FILE",
              help="What to do with what the script prints.  [hide; with --measure: show]")  # fmt: skip
@click.option("--measure", is_flag=True, help="Run it for real, and measure what it takes of the host and of a GPU.")
@click.option("--against", metavar="FORECAST.json", help="With --measure: put a forecast beside what was measured.")
@click.option("--explain", is_flag=True, help="Put a calculation by hand beside what is held, and say why they differ.")
@result_options
@MODULE
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[--] COMMAND [ARGUMENTS]...")
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Run a training script on a virtual GPU and say what memory it takes.

    \b
    peakmem run train.py --epochs 1
    peakmem run --gpu 4090 -- python train.py
    peakmem run --gpu t4 --json - -- torchrun train.py
    peakmem run --device cpu -- python train.py
    peakmem run --measure -- python train.py

    The script is run as it is, with the PyTorch that it would use anyway, and is ended once the peak is steady.
    """
    from peakmem.cli.planning import RunOptions
    from peakmem.errors import PeakmemError

    options["output"] = options["output"] or ("show" if options["measure"] else "hide")
    if options["measure"]:
        from peakmem.cli.measuring import run_measured

        ctx.exit(run_measured(RunOptions(**options)))
    if options["against"] is not None:
        raise PeakmemError("--against needs a real run beside it", hint="add --measure, or use peakmem diff")
    if options["device"] == "cpu":
        from peakmem.cli.running_cpu import run_on_cpu

        ctx.exit(run_on_cpu(RunOptions(**options)))
    from peakmem.cli.running import run

    ctx.exit(run(RunOptions(**options)))
