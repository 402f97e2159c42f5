"""`peakmem explain`: what does this out-of-memory message mean, and what helps?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from peakmem.errors import PeakmemError

if TYPE_CHECKING:
    from rich.console import Console

    from peakmem.allocator.messages import Explanation

_SHOWN = 3
"""Messages explained at length; more are counted."""


@click.command(epilog="Exit codes: 0 a message was found, 2 none was.")
@click.option("--alloc-conf", default="", metavar="STR", help="The allocator settings that were in force.")
@click.option("--json", "json_target", metavar="FILE", help="Write JSON; - is standard output.")
@click.argument("source", required=False, metavar="[MESSAGE | FILE | -]")
def command(source: str | None, alloc_conf: str, json_target: str | None) -> None:
    """Explain an out-of-memory message: what happened, whether an allocator option can help, what to try first.

    \b
    peakmem explain "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has ..."
    peakmem explain train.log
    python train.py 2>&1 | peakmem explain -

    A whole log may be given. Messages of PyTorch (all versions; CUDA, ROCm, XPU, MPS), TensorFlow, Keras, JAX, NCCL,
    the CPU allocator, the kernel, and tables of torch.cuda.memory_summary() are known.
    """
    from peakmem.allocator.messages import explain
    from peakmem.cli.plain import text_console
    from peakmem.files import write_json

    text, where = _read(source)
    found = explain(text, alloc_conf=alloc_conf)
    if not found:
        raise PeakmemError(
            f"no out-of-memory message was found in {where}" if text.strip() else f"{where} is empty",
            hint="give the text that begins with 'CUDA out of memory', with all that follows it",
        )
    if json_target is not None:
        write_json(as_json(found), json_target)
    if json_target != "-":
        _print(text_console(), found)


def _read(source: str | None) -> tuple[str, str]:
    if source is None and sys.stdin.isatty():
        raise PeakmemError(
            "there is nothing to explain", hint="give the message, a file with it, or - to read from standard input"
        )
    if source is None or source == "-":
        return sys.stdin.buffer.read().decode("utf-8", errors="replace"), "standard input"
    # A message is longer than a path may be, and has spaces; whatever exists as a file is read.
    path = Path(source)
    try:
        is_file, is_folder = path.is_file(), path.is_dir()
    except (OSError, ValueError):
        return source, "the message"
    if is_file:
        return path.read_bytes().decode("utf-8", errors="replace"), source
    if is_folder:
        raise PeakmemError(f"{source} is a folder", hint="give a file, or the message itself")
    if " " not in source.strip() and ("/" in source or source.endswith((".log", ".txt", ".out", ".err"))):
        raise PeakmemError(
            f"there is no file {source}", hint="give a file that exists, or the message itself in quotes"
        )
    return source, "the message"


def _print(console: Console, found: tuple[Explanation, ...]) -> None:
    from rich.text import Text

    from peakmem.cli.plain import item

    for number, explanation in enumerate(found[:_SHOWN]):
        if number:
            console.print()
        rank = f", rank {explanation.rank}" if explanation.rank is not None else ""
        device = f", GPU {explanation.figures.device}" if explanation.figures.device is not None else ""
        console.print(Text(f"{explanation.verdict.value} ({explanation.wording}{device}{rank})", style="bold"))
        item(console, "happened", explanation.happened)
        item(console, "options", explanation.option)
        item(console, "try first", explanation.first)
        for note in explanation.notes:
            item(console, "note", note, style="dim")
    if len(found) > _SHOWN:
        more = len(found) - _SHOWN
        console.print()
        console.print(Text(f"{more} more message{'s' if more > 1 else ''}; --json - lists all.", style="dim"))


def as_json(found: tuple[Explanation, ...]) -> dict[str, Any]:
    """The explanations as a list of results."""
    from dataclasses import asdict

    results = []
    for explanation in found:
        result = {**asdict(explanation), "verdict": explanation.verdict.value}
        del result["position"]
        results.append(result)
    return {"schema": "peakmem/explain/1", "results": results}
