"""Printing that several commands share."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

WIDTH_WHEN_PIPED = 80


def text_console(*, to_stderr: bool = False) -> Console:
    """A console as wide as the terminal, at most 100 columns; 80 where there is none."""
    from rich.console import Console

    from peakmem.cli.piped import PipedConsole

    probe = Console(stderr=to_stderr, highlight=False)
    if probe.is_terminal:
        return Console(stderr=to_stderr, highlight=False, width=min(probe.width, 100), soft_wrap=False)
    return PipedConsole(to_stderr=to_stderr, width=WIDTH_WHEN_PIPED)


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
