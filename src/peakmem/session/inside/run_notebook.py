"""Runs the code cells of a notebook from the first to the last: `python run_notebook.py NOTEBOOK [ARGUMENTS]`.

`peakmem run train.ipynb` starts this in the user's interpreter, so it uses the standard library alone. A line of the
third cell is reported as `train.ipynb[3]:7`.
"""

from __future__ import annotations

import builtins
import linecache
import os
import sys
import types
from typing import Any


def main() -> None:
    """Run the notebook that the command line names."""
    here = sys.path.pop(0)
    sys.path.insert(0, here)
    import cells  # type: ignore[import-not-found]  # beside this file

    sys.path.remove(here)
    del sys.argv[0]
    path = os.path.abspath(sys.argv[0])
    with open(path, encoding="utf-8") as file:
        found = cells.code_cells(file.read())
    os.chdir(os.path.dirname(path))  # as Jupyter does
    sys.path.insert(0, "")
    namespace = new_main()
    for number, source in found:
        run_cell(cells.python_of(source), f"{os.path.basename(path)}[{number}]", namespace)


def new_main() -> dict[str, Any]:
    """The names of a new main module, in which cells find what IPython would give them, without effect."""
    if os.environ.get("MPLBACKEND", "module://").startswith("module://"):  # a kernel's own backend draws in its cells
        os.environ["MPLBACKEND"] = "agg"
    builtins.display = lambda *values, **options: None  # type: ignore[attr-defined]
    builtins.get_ipython = lambda: None  # type: ignore[attr-defined]  # it asks whether there is one
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    return module.__dict__


def run_cell(source: str, name: str, namespace: dict[str, Any]) -> None:
    """Run a cell; tracebacks and `inspect` find its lines under this name."""
    linecache.cache[name] = (len(source), None, [line + "\n" for line in source.split("\n")], name)
    exec(compile(source, name, "exec"), namespace)


if __name__ == "__main__":
    main()
