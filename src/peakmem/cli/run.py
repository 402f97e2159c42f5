"""`peakmem run`: the main job."""

from __future__ import annotations

from typing import Any

import click


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
@click.option("--device", type=click.Choice(["gpu", "cpu"]), default="gpu", show_default=True,
              help="What it trains on: a card, or the processor and the host's memory.")  # fmt: skip
@click.option("--gpu", metavar="NAME", help="The card: 4090, a100-80, t4, ... (peakmem gpus lists them). [A100 80GB]")
@click.option(
    "--memory",
    metavar="SIZE",
    help="Memory of the card, or with --device cpu of the machine, instead of its own: 24GiB.",
)
@click.option(
    "--steps",
    default="auto",
    metavar="N|auto|all",
    show_default=True,
    help="Optimizer steps to watch: until the peak is steady, a number, or to the script's own end.",
)
@click.option("--alloc-conf", metavar="STR", help="Value of PYTORCH_CUDA_ALLOC_CONF for the script.")
@click.option("--context", metavar="SIZE", help="What the CUDA context takes, where you have measured it.")
@click.option("--cudnn", type=click.Choice(["likely", "own", "least"]), default="likely", show_default=True,
              help="Convolution plans: see docs/fidelity.md.")  # fmt: skip
@click.option("--no-range", is_flag=True, help="Skip the further runs that give convolutional results a range.")
@click.option(
    "--assume",
    default="",
    metavar="KEY=VALUE,...",
    help="What to take for values that only a GPU would know, such as bool=false or nonzero=0.25.",
)
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="NAME=VALUE",
    help="Change a training setting in the running script: amp=bf16, optimizer.fused=true, optimizer.foreach=false, "
    "zero_grad=end, checkpoint=blocks, accumulate=N, cudnn.benchmark=false. May be repeated.",
)
@click.option(
    "--build-on-device", is_flag=True, help="Make the parameters on the GPU straight away: saves host memory."
)
@click.option("--no-weights", is_flag=True, help="Build pretrained models from their configuration alone.")
@click.option("--output", metavar="hide|show|FILE",
              help="What to do with what the script prints.  [hide; with --measure: show]")  # fmt: skip
@click.option("--measure", is_flag=True, help="Run it for real, and measure what it takes of the host and of a GPU.")
@click.option("--against", metavar="FORECAST.json", help="With --measure: put a forecast beside what was measured.")
@click.option("--explain", is_flag=True, help="Put a calculation by hand beside what is held, and say why they differ.")
@click.option(
    "--ranks-per-node",
    type=click.IntRange(min=1),
    metavar="N",
    help="Processes that will train on one node, for host memory. [as many as the command starts]",
)
@click.option(
    "--format",
    "scheduler",
    type=click.Choice(["slurm", "kubernetes", "docker", "lsf"]),
    help="Print what to request of a scheduler; the report goes to standard error.",
)
@click.option(
    "--margin",
    metavar="SIZE|SHARE",
    help="With --format: host memory to request beyond the forecast, such as 10% or 2GiB. [what is uncertain]",
)
@click.option("--json", "json_target", metavar="FILE", help="Write the forecast as JSON; - is standard output.")
@click.option("--save", "save_target", metavar="FILE", help="Write the trace to a file, for peakmem report and others.")
@click.option("--force", is_flag=True, help="Write over files that exist.")
@click.option("--timeout", type=float, metavar="SECONDS", help="Give up after this time.")
@click.option("-m", "module", is_flag=True, help="The first word is a Python module, as in python -m.")
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
