"""Runs cells with what they take from a notebook: `python run_cells.py SHIPPED CELLS PLACES`.

`%%peakmem` starts this on the virtual GPU, in the interpreter of the kernel. SHIPPED holds names and their values,
CELLS is a list of names and sources as JSON, PLACES the kernel's `sys.path` as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main() -> None:
    """Run the cells that the command line names."""
    shipped, cells, places = sys.argv[1:]
    sys.path[:] = json.loads(places)
    from peakmem.session.inside.run_notebook import new_main, run_cell
    from peakmem.workload.live import load

    namespace = new_main()
    namespace.update(load(shipped, keep_devices=True))
    sys.argv = ["notebook"]
    for name, source in json.loads(Path(cells).read_text(encoding="utf-8")):
        run_cell(source, name, namespace)


if __name__ == "__main__":
    main()
