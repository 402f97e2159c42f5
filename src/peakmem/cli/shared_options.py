"""Options that several commands have, written once.

A command puts on the groups, or the single options, in the order in which its help is to list them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])
Decorator = Callable[[F], F]

DEVICE = click.option(
    "--device",
    type=click.Choice(["gpu", "cpu"]),
    default="gpu",
    show_default=True,
    help="What it trains on: a card, or the processor and the host's memory.",
)
GPU = click.option(
    "--gpu", metavar="NAME", help="The card: 4090, a100-80, t4, ... (peakmem gpus lists them). [A100 80GB]"
)
MEMORY = click.option(
    "--memory",
    metavar="SIZE",
    help="Memory of the card, or with --device cpu of the machine, instead of its own: 24GiB.",
)
ALLOC_CONF = click.option("--alloc-conf", metavar="STR", help="Value of PYTORCH_CUDA_ALLOC_CONF.")
CONTEXT = click.option("--context", metavar="SIZE", help="What the CUDA context takes, where you have measured it.")
CUDNN = click.option(
    "--cudnn",
    type=click.Choice(["likely", "own", "least"]),
    default="likely",
    show_default=True,
    help="Convolution plans: see docs/fidelity.md.",
)
NO_RANGE = click.option(
    "--no-range", is_flag=True, help="Skip the further runs that give convolutional results a range."
)
ASSUME = click.option(
    "--assume",
    default="",
    metavar="KEY=VALUE,...",
    help="What to take for values that only a GPU would know, such as bool=false or nonzero=0.25.",
)
BUILD_ON_DEVICE = click.option(
    "--build-on-device", is_flag=True, help="Make the parameters on the GPU straight away: saves host memory."
)
NO_WEIGHTS = click.option("--no-weights", is_flag=True, help="Build pretrained models from their configuration alone.")
RANKS_PER_NODE = click.option(
    "--ranks-per-node",
    type=click.IntRange(min=1),
    metavar="N",
    help="Processes that will train on one node, for host memory. [as many as the command starts]",
)
FORMAT = click.option(
    "--format",
    "scheduler",
    type=click.Choice(["slurm", "kubernetes", "docker", "lsf"]),
    help="Print what to request of a scheduler; the report goes to standard error.",
)
MARGIN = click.option(
    "--margin",
    metavar="SIZE|SHARE",
    help="With --format: host memory to request beyond the forecast, such as 10% or 2GiB. [what is uncertain]",
)
JSON = click.option("--json", "json_target", metavar="FILE", help="Write the forecast as JSON; - is standard output.")
SAVE = click.option(
    "--save", "save_target", metavar="FILE", help="Write the trace to a file, for peakmem report and others."
)
FORCE = click.option("--force", is_flag=True, help="Write over files that exist.")
TIMEOUT = click.option("--timeout", type=float, metavar="SECONDS", help="Give up after this time.")
MODULE = click.option("-m", "module", is_flag=True, help="The first word is a Python module, as in python -m.")


def together(*options: Decorator[Any]) -> Decorator[F]:
    """One decorator for several options, in the order in which the help lists them."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


card_options: Decorator[Any] = together(ALLOC_CONF, CONTEXT, CUDNN, NO_RANGE)
"""How memory on a card is accounted."""

result_options: Decorator[Any] = together(RANKS_PER_NODE, FORMAT, MARGIN, JSON, SAVE, FORCE, TIMEOUT)
"""What becomes of a forecast."""
