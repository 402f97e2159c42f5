"""`peakmem doctor`: what was found here, and whether the virtual GPU works."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from peakmem.vgpu.check import Check
    from peakmem.vgpu.probe import TorchFacts

SCHEMA = "peakmem/doctor/1"


@click.command(epilog="Exit codes: 0 the virtual GPU works, 2 it does not, or something is missing.")
@click.option("--python", metavar="PATH", help="The interpreter that has torch [that of the active environment].")
@click.option("--gpu", default="a100-80", show_default=True, metavar="NAME", help="The card to stand for.")
@click.option("--json", "json_target", metavar="FILE", help="Write what was found as JSON; - is standard output.")
@click.option("--force", is_flag=True, help="Write over a file that exists.")
def command(python: str | None, gpu: str, json_target: str | None, force: bool) -> None:
    """Show what was found here, and run a small training step on the virtual GPU.

    \b
    peakmem doctor
    peakmem doctor --python ~/project/.venv/bin/python
    """
    from peakmem.cli.plain import item, text_console
    from peakmem.errors import ExitCode, PeakmemError
    from peakmem.files import write_json
    from peakmem.vgpu import build
    from peakmem.vgpu.catalogue import find_device
    from peakmem.vgpu.check import check
    from peakmem.vgpu.probe import find_interpreter, probe

    console = text_console(to_stderr=json_target == "-")
    found: dict[str, Any] = {"schema": SCHEMA, "works": False}

    def finish(code: ExitCode) -> None:
        if json_target is not None:
            write_json(found, json_target, force=force)
        sys.exit(code)

    device = find_device(gpu)
    try:
        interpreter = find_interpreter(python)
        found["python"] = str(interpreter)
        facts = probe(interpreter)
        found |= _facts_as_dict(facts)
        item(console, "python", f"{facts.python_version}, {facts.python}")
        item(console, "torch", f"{facts.version}, for CUDA {facts.cuda}, {facts.folder}")
        library = build.ensure_library(facts, progress=lambda text: item(console, "", text, style="dim"))
        found["library"] = str(library)
        item(console, "library", _library_text(library))
        result = check(facts, device)
    except PeakmemError as error:
        found |= {"problem": error.message, "hint": error.hint}
        item(console, "problem", error.message, style="bold red", hint=error.hint)
        finish(ExitCode.BAD_INPUT)
        return
    found |= _check_as_dict(result)
    _print_check(console, result, device_name=device.name)
    finish(ExitCode.FITS if result.works else ExitCode.BAD_INPUT)


def _facts_as_dict(facts: TorchFacts) -> dict[str, Any]:
    return {
        "python_version": facts.python_version,
        "machine": facts.machine,
        "torch": facts.version,
        "cuda": facts.cuda,
        "torch_folder": str(facts.folder),
    }


def _check_as_dict(result: Check) -> dict[str, Any]:
    return {
        "works": result.works,
        "problem": result.problem,
        "cudnn": result.cudnn,
        "seconds": round(result.seconds, 3),
        "peak": {"allocated": result.allocated, "reserved": result.reserved},
        "unsupported": dict(result.unsupported),
        "estimates": dict(result.estimates),
        "missing_symbols": list(result.missing_symbols),
    }


def _library_text(library: Path) -> str:
    from peakmem.units import format_size
    from peakmem.vgpu import build

    source = "came with the package" if build.find_prebuilt() is not None else "built here"
    return f"{format_size(library.stat().st_size)}, {source}, {library.parent}"


def _print_check(console: Console, result: Check, *, device_name: str) -> None:
    from peakmem.cli.plain import item
    from peakmem.units import format_size

    if result.missing_symbols:
        names = ", ".join(result.missing_symbols[:8]) + (", ..." if len(result.missing_symbols) > 8 else "")
        item(
            console,
            "missing",
            f"{len(result.missing_symbols)} functions that this PyTorch may call: {names}",
            style="yellow",
            hint="programs that don't need them run; please report this version of PyTorch",
        )
    if result.cudnn is not None:
        item(console, "cuDNN", _cudnn_text(result.cudnn))
    for what, count in result.unsupported:
        item(console, "unsupported", f"{what} (called {count} times)", style="yellow")
    if result.works:
        peak = f"{format_size(result.allocated)} allocated, {format_size(result.reserved)} reserved"
        item(
            console, "test step", f"on a virtual {device_name}: {peak}, {result.seconds:.1f} s with the import of torch"
        )
        item(console, "result", "the virtual GPU works", style="bold green")
        return
    item(
        console,
        "problem",
        f"the virtual GPU does not work here: {result.problem}",
        style="bold red",
        hint="please report this, with the lines above",
    )


def _cudnn_text(version: int) -> str:
    text = f"{version // 10000}.{version // 100 % 100}.{version % 100}"
    if version >= 90800:  # the device-less mode came with cuDNN 9.8
        return text + ", plans its convolutions for the chosen card"
    return text + ", can't plan without a card: sizes of convolution workspaces come from stated rules"
