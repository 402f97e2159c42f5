"""`peakmem solve`: how far can one go?"""

from __future__ import annotations

from typing import Any

import click

from peakmem.cli.subject import SubjectCommand
from peakmem.cli.subject_options import subject_options


@click.command(
    cls=SubjectCommand,
    epilog="Exit codes: 0 there is an answer, 1 nothing fits, 2 bad input, 3 the script itself failed, "
    "130 interrupted.",
)
@click.option(
    "--vary",
    metavar="NAME=LOW..HIGH[:STEP|:powers]",
    help="What is varied; {NAME} stands for it in the command, env:NAME=... is an environment variable.",
)
@click.option("--smallest-card", is_flag=True, help="Look for the smallest card that runs it, instead.")
@subject_options
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Find the largest batch, sequence, width, ... that fits, or the smallest card.

    \b
    peakmem solve --gpu 4090 --vary batch=1..512 -- python train.py --batch {batch}
    peakmem solve --memory 24GiB --vary env:TOKENS=128..8192:128 -- python train.py
    peakmem solve --gpu t4 --vary batch=1..512 torchvision:resnet50 --optimizer sgd
    peakmem solve --smallest-card -- python train.py

    Every figure comes from a run on the virtual GPU. The answer was seen to fit and the next value was seen not to;
    nothing is assumed about how memory grows. With a model's name, the options of peakmem predict say how it is
    trained.
    """
    from peakmem.cli.solving import solve

    ctx.exit(solve(options))
