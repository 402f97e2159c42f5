"""The cells of a Jupyter notebook as Python: what belongs to IPython (magics, shell commands) is blanked, line by line.

The standard library alone: `run_notebook.py` loads this in the user's interpreter.
"""

from __future__ import annotations

import ast
import json
import re

PYTHON_CELLS = ("%%capture", "%%prun", "%%time", "%%timeit")
"""Cell magics whose cell is Python all the same; the cells of all others (%%bash, %%writefile, %%html) are left out."""
_LINE = re.compile(r"\s*(?:[%!?]|[\w.]+\?{1,2}\s*$)")
_ASSIGNED = re.compile(r"(\s*[A-Za-z_][\w, ]*=\s*)(?:!|%[A-Za-z])")


def code_cells(text: str | bytes) -> list[tuple[int, str]]:
    """The code cells of a notebook, in order.

    Args:
        text: a file of the Jupyter format 4, `str` or `bytes`.

    Returns:
        Pairs: the number of the cell among all cells, from 1, and its source as it stands.

    Raises:
        ValueError: this is no notebook.
    """
    try:
        found = []
        for number, cell in enumerate(json.loads(text)["cells"], 1):
            source = cell["source"]
            if cell["cell_type"] == "code":
                found.append((number, source if isinstance(source, str) else "".join(source)))
        return found
    except (KeyError, TypeError, ValueError, RecursionError):
        raise ValueError("not a Jupyter notebook of format 4") from None


def python_of(source: str) -> str:
    """A cell as Python, its lines where they were; empty where the whole cell is for another program.

    A line that is left out becomes `pass`, since it may be the only one of its block; where its result is assigned,
    that is an empty list.
    """
    lines = source.splitlines()
    try:
        ast.parse(source)
        return "\n".join(lines)  # a line may begin with the operator %
    except (SyntaxError, ValueError, RecursionError):
        pass
    first = next((line.split()[0] for line in lines if line.strip()), "")
    if first.startswith("%%") and first not in PYTHON_CELLS:
        return ""
    return "\n".join(map(_python, lines))


def _python(line: str) -> str:
    if _LINE.match(line):
        return line[: len(line) - len(line.lstrip())] + "pass"
    assigned = _ASSIGNED.match(line)
    return f"{assigned[1]}[]" if assigned else line
