"""A Jupyter notebook as one script, and the cell magics that concern the environment."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from peakmem.allocator.settings.lint.events import Act, Event, shell_exports
from peakmem.errors import PeakmemError

_ENV = re.compile(r"\s*%(?:set_)?env\s+(\w+)\s*[= ]\s*(.*)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """A code cell: its number from 1, its Python with magics blanked, and what its magics do (lines from 1)."""

    number: int
    source: str
    magic: tuple[Event, ...]


def cells(data: bytes, path: str) -> list[Cell]:
    """The code cells of a notebook, in order.

    Raises:
        PeakmemError: this is no notebook.
    """
    try:
        notebook = msgspec.json.decode(data)
        found: list[dict[str, Any]] = notebook["cells"]
        sources = [
            ("".join(cell["source"]) if isinstance(cell["source"], list) else cell["source"], number)
            for number, cell in enumerate(found, 1)
            if cell["cell_type"] == "code"
        ]
    except (msgspec.DecodeError, KeyError, TypeError):
        raise PeakmemError(f"{path} is not a Jupyter notebook", hint="give a .ipynb file of format 4") from None
    return [_cell(source, number) for source, number in sources]


def _cell(source: str, number: int) -> Cell:
    lines = source.splitlines()
    magic: list[Event] = []
    kept: list[str] = []
    if lines and lines[0].startswith("%%") and lines[0][2:].split()[:1] in (["bash"], ["sh"], ["script"]):
        for index, line in enumerate(lines, 1):
            magic.extend(shell_exports(line, index, 0))
        return Cell(number=number, source="", magic=tuple(magic))
    for index, line in enumerate(lines, 1):
        if line.lstrip().startswith(("%", "!", "?")):
            magic.extend(_magic(line, index))
            # The statement may be the only one of its block.
            kept.append(line[: len(line) - len(line.lstrip())] + "pass")
        else:
            kept.append(line)
    return Cell(number=number, source="\n".join(kept), magic=tuple(magic))


def _magic(line: str, index: int) -> Iterator[Event]:
    environment = _ENV.match(line)
    if environment is not None:
        # %env keeps quotes, unlike a shell.
        yield Event(act=Act.SET, line=index, column=0, name=environment[1], value=environment[2].strip())
    elif line.lstrip().startswith("!"):
        yield from shell_exports(line.lstrip()[1:], index, 0)
