"""Options of every command that makes several runs of a command line or a model (`subject.py`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--gpu", metavar="NAME", help="The card: 4090, a100-80, ... (peakmem gpus lists them). [A100 80GB]"),
    click.option("--memory", metavar="SIZE", help="Total memory of the card instead of its own, such as 24GiB."),
    click.option("--steps", default="auto", show_default=True, metavar="N|auto|all", help="Optimizer steps to watch."),
    click.option("--alloc-conf", metavar="STR", help="Value of PYTORCH_CUDA_ALLOC_CONF."),
    click.option("--context", metavar="SIZE", help="What the CUDA context takes, where you have measured it."),
    click.option("--cudnn", type=click.Choice(["likely", "own", "least"]), default="likely", show_default=True,
                 help="Convolution plans: see docs/fidelity.md."),
    click.option("--assume", default="", metavar="KEY=VALUE,...", help="Values that only a GPU would know."),
    click.option("--build-on-device", is_flag=True, help="Make the parameters on the GPU straight away."),
    click.option("--no-weights", is_flag=True, help="Build pretrained models from their configuration alone."),
    click.option("--timeout", type=float, metavar="SECONDS", help="Give a single run up after this time."),
    click.option("--json", "json_target", metavar="FILE", help="Write the result as JSON; - is standard output."),
    click.option("--force", is_flag=True, help="Write over files that exist."),
    click.option("-m", "module", is_flag=True, help="The first word is a Python module, as in python -m."),
    click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[--] COMMAND... | WHAT"),
)  # fmt: skip


def subject_options(function: F) -> F:
    """Add the options."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function
