"""Sends what a cell takes from the cells before it to the process that runs the cell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from peakmem.errors import PeakmemError
from peakmem.notebook.names import names_read
from peakmem.workload.live import ship


def ship_names(path: Path, source: str, namespace: dict[str, Any]) -> tuple[str, ...]:
    """Write what a cell reads of a notebook's names to a file, tensors by their shape alone.

    Args:
        path: the file to write.
        source: the cell, as Python.
        namespace: the notebook's names.

    Returns:
        The names that were written.

    Raises:
        PeakmemError: one of them can't be sent.
        SyntaxError: the cell is no Python.
    """
    wanted = {name: namespace[name] for name in sorted(names_read(source)) if name in namespace}
    try:
        ship(path, **wanted)
    except PeakmemError as error:
        raise _named(error, path, wanted) from error
    return tuple(wanted)


def _named(error: PeakmemError, path: Path, wanted: dict[str, Any]) -> PeakmemError:
    """The same error with the name of what can't be sent."""
    for name, value in wanted.items():
        try:
            ship(path, **{name: value})
        except PeakmemError as found:
            reason = found.message.partition(": ")[2] or found.message
            return PeakmemError(
                f"the cell uses {name!r}, of the type {type(value).__name__}, which can't be sent to the process that "
                f"runs it: {reason}",
                hint=f"make {name} in the cell itself, or run all cells: %%peakmem --from-start",
            )
    return error
