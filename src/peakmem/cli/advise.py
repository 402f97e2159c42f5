"""`peakmem advise`: what would make it fit?"""

from __future__ import annotations

from typing import Any

import click

from peakmem.cli.subject import SubjectCommand
from peakmem.cli.subject_options import subject_options


@click.command(
    cls=SubjectCommand,
    epilog="Exit codes: 0 it fits or there is a plan, 1 nothing that was tried is enough, 2 bad input, "
    "3 the script itself failed, 130 interrupted.",
)
@click.option(
    "--batch-is",
    metavar="NAME=N",
    help="Present batch size, where {NAME} stands for it in the command (env:NAME=N: a variable): smaller ones are "
    "then tried, also with accumulation.",
)
@click.option("--all", "everything", is_flag=True, help="Try the changes even if it fits.")
@subject_options
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Find changes that make a run fit a card, each verified by running it.

    \b
    peakmem advise --gpu 4090 -- python train.py
    peakmem advise --gpu t4 --batch-is batch=64 -- python train.py --batch {batch}
    peakmem advise --gpu 4090 torchvision:resnet50 --batch 512 --optimizer adam

    What keeps the mathematics is tried first: allocator settings, where gradients are dropped, the optimizer's
    implementation, activation checkpointing, accumulation; then what changes it. A script is not edited: the changes
    are made in the running process, as with peakmem run --set.
    """
    from peakmem.cli.advising import advise

    ctx.exit(advise(options))
