"""Pieces of the texts in which a forecast for a card and one for the CPU are printed."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from peakmem.forecast.model import Assumption, ScriptError
from peakmem.report.wording import times
from peakmem.units import format_size

VERDICT_STYLES = {"fits": "bold green", "tight": "bold yellow", "does_not_fit": "bold red"}
MOST_STEPS_SHOWN = 6

T = TypeVar("T")


def print_parts(parts: Iterable[RenderableType], console: Console) -> None:
    """Print one below the other, with a margin."""
    with console.capture() as capture:
        console.print(Padding(Group(*parts), (1, 0, 0, 1), expand=False))
    # rich fills lines up with blanks; whoever pastes or compares the text wants none.
    console.file.write("".join(line.rstrip() + "\n" for line in capture.get().splitlines()))


def plain_text(show: Callable[[Console], None]) -> str:
    """What is printed to a file, 80 columns wide.

    Args:
        show: prints to a console.
    """
    stream = io.StringIO()
    show(Console(file=stream, width=80, highlight=False, force_terminal=False, force_jupyter=False))
    return stream.getvalue()


def failure(error: ScriptError, taken: str) -> Text:
    """The headline where the script failed.

    Args:
        error: how.
        taken: what it had taken until then.
    """
    where = f" at {error.line}" if error.line else ""
    text = Text().append(f"the script failed{where}\n", style="bold red").append(f"{error.type}: {error.message}\n")
    return text.append(f"until then: {taken}", style="dim")


def statement_table() -> Table:
    """Columns for names, sizes, bytes and remarks."""
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(justify="right")
    table.add_column(justify="right", style="dim")
    table.add_column(style="dim")
    return table


def addend(size: int) -> str:
    """A size with its sign, as it is added to the sum before it."""
    return f"{'- ' if size < 0 else '+ '}{format_size(abs(size))}"


def steps_table(columns: Iterable[str]) -> Table:
    """A table of steps, with columns of sizes."""
    table = Table(box=None, pad_edge=False, padding=(0, 2), header_style="dim")
    table.add_column("step")
    for name in columns:
        table.add_column(name, justify="right")
    return table


def steps_shown(steps: Sequence[T]) -> Sequence[T | None]:
    """The first and the last steps; None for those between, where there are many."""
    return steps if len(steps) <= MOST_STEPS_SHOWN else (*steps[:3], None, *steps[-2:])


def step_name(index: int, *, steady: bool) -> str:
    """How a step is called: they are counted from 1 in print."""
    return f"{index + 1} (steady)" if steady else f"{index + 1}"


def remarks(notes: Iterable[str], assumptions: Sequence[Assumption], *, teller: str) -> list[Text]:
    """The notes, and what was assumed.

    Args:
        notes: in words.
        assumptions: what was taken for values that were not known.
        teller: what alone could tell them, for instance "a GPU".
    """
    lines = [Text(f"note: {note}", style="dim") for note in notes]
    if assumptions:
        lines.append(Text(f"assumed, since only {teller} could tell:", style="dim"))
    for row in assumptions:
        place = f" (first at {row.where})" if row.where else ""
        lines.append(Text(f"  {row.what}: {row.assumed}, {times(row.count)}{place}", style="dim"))
    return lines
