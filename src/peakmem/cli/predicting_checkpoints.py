"""`peakmem predict CHECKPOINT`: what loading it takes, and what training its parameters holds at least."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from peakmem.cli.forecasting import make_forecast
from peakmem.cli.generated import on_disk
from peakmem.cli.planning import estimate, plan_run
from peakmem.errors import ExitCode
from peakmem.files import write_json
from peakmem.units import format_size
from peakmem.workload.checkpoints.loading import ways_of_loading
from peakmem.workload.checkpoints.model import Checkpoint
from peakmem.workload.checkpoints.reading import read_checkpoint
from peakmem.workload.checkpoints.training import write_checkpoint_script
from peakmem.workload.training import Training

if TYPE_CHECKING:
    from rich.console import Console

    from peakmem.cli.predict_options import PredictOptions

STEPS = 3
LEFT_OUT = ("activations", "inputs", "workspaces")
_ACTIVATIONS = "activations, inputs and workspaces need the architecture and a batch: whether it fits is not known"


def predict_checkpoint(options: PredictOptions, training: Training) -> int:
    """Read the checkpoint, run what is known of its training, report, and give the exit code.

    Raises:
        PeakmemError: it can't be read, or an option needs the architecture.
    """
    from peakmem.cli.ending import exit_code
    from peakmem.cli.plain import text_console
    from peakmem.cli.progress import RunProgress
    from peakmem.report.terminal import print_forecast

    path = Path(options.what)
    checkpoint = read_checkpoint(path)
    script = write_checkpoint_script(checkpoint, training, steps=STEPS)
    if options.print_script:
        click.echo(script, nl=False)
        return ExitCode.FITS
    started = time.monotonic()
    held = _Held()
    with on_disk(script, keep=options.save_script) as file, RunProgress("hide", (options.what,)) as shown:
        run = replace(options.run(), command=file.command, steps="all")
        plan, card = plan_run(run)
        held.say, held.line = shown.say, shown.line
        made = make_forecast(
            plan,
            card,
            context_with=partial(estimate, run, plan.device, plan.facts),
            with_range=False,
            progress=held,
            started=started,
        )
    described = _described(checkpoint, training)
    forecast = replace(
        file.named(made.forecast),
        command=("peakmem", "predict", options.what),
        left_out=LEFT_OUT,
        notes=(_ACTIVATIONS, *checkpoint.notes, *made.forecast.notes),
        workload=described | {f"held with {what}": f"{size} bytes" for what, size in held.sizes.items()},
    )
    if options.json_target is not None:
        write_json(forecast, options.json_target, force=options.force)
    screen = text_console(to_stderr=options.json_target == "-")
    _print(checkpoint, described, held, screen)
    print_forecast(forecast, screen)
    _print_next(path, options, screen)
    return exit_code(forecast, made.ended)


class _Held:
    """Keeps what the script says that it holds."""

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}
        self.say: Callable[[str], None] = lambda text: None
        self.line: Callable[[dict[str, Any]], None] = lambda line: None

    def printed(self, line: str) -> None:
        """Take a line: `held: WHAT ALLOCATED RESERVED`."""
        words = line.split()
        if line.startswith("held: ") and len(words) == 4:
            self.sizes.setdefault(words[1], int(words[2]))


def _described(checkpoint: Checkpoint, training: Training) -> dict[str, str]:
    parameters = checkpoint.parameters
    kinds = Counter[str]()
    for tensor in parameters:
        kinds[tensor.dtype] += tensor.count
    count = sum(tensor.count for tensor in parameters)
    described = {
        "checkpoint": f"{checkpoint.path} ({checkpoint.format}, {format_size(checkpoint.file_size)})",
        "parameters": f"{count:,} in {len(parameters)} tensors, {', '.join(kinds)}",
    }
    others = Counter[str]()
    for tensor in checkpoint.unique():
        if not tensor.trained:
            others["buffers" if tensor.group == "model" else f"{tensor.group} state"] += tensor.size
    if others:
        described["beside them"] = ", ".join(f"{name} {format_size(size)}" for name, size in others.items())
    shared = len(checkpoint.tensors) - len(checkpoint.unique())
    if shared:
        described["shared"] = f"{shared} more names for the same memory"
    described["training"] = training.words()
    return described


def _print(checkpoint: Checkpoint, described: dict[str, str], held: _Held, screen: Console) -> None:
    from rich.padding import Padding
    from rich.table import Table

    from peakmem.cli.describing import print_workload

    print_workload(described, screen)
    ways = ways_of_loading(checkpoint)
    if ways:
        table = Table(box=None, pad_edge=False, padding=(0, 2), header_style="dim")
        for name in ("loading, at its peak (tensors)", "host", "GPU"):
            table.add_column(name, justify="left" if "loading" in name else "right", overflow="fold")
        for way in ways:
            table.add_row(way.how, format_size(way.host), format_size(way.device))
        screen.print(Padding(table, (1, 0, 0, 1), expand=False))
    table = Table(box=None, pad_edge=False, padding=(0, 2), header_style="dim")
    table.add_column("training, at least")
    table.add_column("allocated", justify="right")
    table.add_column("", justify="right", style="dim")
    before = 0
    for what, size in held.sizes.items():
        name = "optimizer states" if what == "states" else what
        table.add_row(name, f"+ {format_size(size - before)}", f"{size - before:,}")
        before = size
    screen.print(Padding(table, (1, 0, 0, 1), expand=False))


def _print_next(path: Path, options: PredictOptions, screen: Console) -> None:
    folder = path if path.is_dir() else path.parent
    what = f"hf:{folder}" if (folder / "config.json").is_file() else "timm:NAME, hf:FOLDER or file.py:function"
    screen.print(f" the whole of it: peakmem predict {what} --batch {options.batch or 'B'}", highlight=False)
