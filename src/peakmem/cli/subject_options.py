"""Options of every command that makes several runs of a command line or a model (`subject.py`)."""

from __future__ import annotations

from typing import Any

import click

from peakmem.cli.shared_options import (
    ALLOC_CONF,
    ASSUME,
    BUILD_ON_DEVICE,
    CONTEXT,
    CUDNN,
    FORCE,
    GPU,
    MODULE,
    NO_WEIGHTS,
    Decorator,
    together,
)

subject_options: Decorator[Any] = together(
    GPU,
    click.option("--memory", metavar="SIZE", help="Total memory of the card instead of its own, such as 24GiB."),
    click.option("--steps", default="auto", show_default=True, metavar="N|auto|all", help="Optimizer steps to watch."),
    ALLOC_CONF,
    CONTEXT,
    CUDNN,
    ASSUME,
    BUILD_ON_DEVICE,
    NO_WEIGHTS,
    click.option("--timeout", type=float, metavar="SECONDS", help="Give a single run up after this time."),
    click.option("--json", "json_target", metavar="FILE", help="Write the result as JSON; - is standard output."),
    FORCE,
    MODULE,
    click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[--] COMMAND... | WHAT"),
)
"""Adds the options."""
