"""A Jupyter notebook as one script, and the cell magics that concern the environment."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from peakmem.allocator.settings.lint.events import Act, Event, shell_exports
from peakmem.errors import PeakmemError
from peakmem.session.inside.cells import code_cells, python_of

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
        found = code_cells(data)
    except ValueError as error:
        raise PeakmemError(f"{path} is {error}", hint="give a .ipynb file as Jupyter or Colab writes it") from None
    return [Cell(number=number, source=python_of(source), magic=tuple(_magics(source))) for number, source in found]


def _magics(source: str) -> Iterator[Event]:
    lines = source.splitlines()
    shell = bool(lines) and lines[0].startswith("%%") and lines[0][2:].split()[:1] in (["bash"], ["sh"], ["script"])
    for index, line in enumerate(lines, 1):
        if shell:
            yield from shell_exports(line, index, 0)
        elif line.lstrip().startswith(("%", "!", "?")):
            yield from _magic(line, index)


def _magic(line: str, index: int) -> Iterator[Event]:
    environment = _ENV.match(line)
    if environment is not None:
        # %env keeps quotes, unlike a shell.
        yield Event(act=Act.SET, line=index, column=0, name=environment[1], value=environment[2].strip())
    elif line.lstrip().startswith("!"):
        yield from shell_exports(line.lstrip()[1:], index, 0)
