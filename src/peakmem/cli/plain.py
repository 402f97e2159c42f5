"""Printing that several commands share: JSON to a file or standard output, paragraphs that wrap."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peakmem.errors import PeakmemError

if TYPE_CHECKING:
    from rich.console import Console

WIDTH_WHEN_PIPED = 80


def text_console(*, to_stderr: bool = False) -> Console:
    """A console as wide as the terminal, at most 100 columns; 80 where there is none."""
    from rich.console import Console

    probe = Console(stderr=to_stderr, highlight=False)
    width = min(probe.width, 100) if probe.is_terminal else WIDTH_WHEN_PIPED
    return Console(stderr=to_stderr, highlight=False, width=width, soft_wrap=False)


def write_json(value: dict[str, Any], target: str, *, force: bool = False) -> None:
    """Write a JSON object to a file; `-` is standard output.

    Raises:
        PeakmemError: the file exists and `force` is not given, or can't be written.
    """
    import msgspec

    data = msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
    if target == "-":
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
        return
    path = Path(target)
    if path.exists() and not force:
        raise PeakmemError(f"{target} exists", hint="give another name, or --force")
    try:
        path.write_bytes(data)
    except OSError as error:
        raise PeakmemError(f"{target} can't be written: {error.strerror}", hint="give another name") from None


def item(console: Console, label: str, text: str, *, style: str = "", hint: str = "", indent: int = 12) -> None:
    """Print a label and a paragraph beside it, with a hint below it; no line ends in blanks."""
    from rich.text import Text

    lines = textwrap.wrap(text, console.width - indent, break_on_hyphens=False)
    if hint:
        lines += textwrap.wrap(f"-> {hint}", console.width - indent, subsequent_indent="   ", break_on_hyphens=False)
    first = Text(f"{label:{indent}}"[: max(indent, len(label))], style=style)
    for number, line in enumerate(lines):
        start = first if number == 0 else Text(" " * indent)
        console.print(start + Text(line), soft_wrap=True)
