"""`peakmem scenarios`: what a steady training step does not show."""

from __future__ import annotations

from typing import Any

import click

from peakmem.cli.subject import SubjectCommand
from peakmem.cli.subject_options import subject_options


@click.command(
    cls=SubjectCommand,
    epilog="Exit codes: 0 all of them fit, 1 one does not fit, 2 bad input, 3 the model's own code failed, "
    "130 interrupted.",
)
@click.option("--eval-batch", type=click.IntRange(min=1), metavar="N", help="Samples in a batch of the evaluation.")
@click.option("--last-batch", type=click.IntRange(min=1), metavar="N", help="Samples in the last batch of an epoch.")
@click.option(
    "--lengths",
    metavar="FILE|normal:MEAN,SD:MAX",
    help="Lengths of the sequences: the longest batch, and batches as they come.",
)
@subject_options
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Compare the first step, the steady one, evaluation, saving, resuming, ... of a model in one table.

    \b
    peakmem scenarios torchvision:resnet50 --batch 64 --eval-batch 256
    peakmem scenarios hf:./my-model --batch 8 --lengths normal:350,120:512
    peakmem scenarios --gpu t4 dense:1000-4000-4000-10 --batch 256 --last-batch 17

    The options of peakmem predict say how the model is trained. Every row is a run of its training script with the
    scenario added.
    """
    from peakmem.cli.scenario_runs import scenarios

    ctx.exit(scenarios(options))
