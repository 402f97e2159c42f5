"""Runs cells with what they take from a notebook: `python run_cells.py SHIPPED CELLS PLACES`.

`%%peakmem` starts this on the virtual GPU, in the interpreter of the kernel. SHIPPED holds names and their values,
CELLS is a list of names and sources as JSON, PLACES the kernel's `sys.path` as JSON.
"""

from __future__ import annotations

import json
import sys
import traceback
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
    *before, (name, source) = json.loads(Path(cells).read_text(encoding="utf-8"))
    for earlier, its_source in before:
        try:
            run_cell(its_source, earlier, namespace)
        except Exception:  # in the notebook too, people went on
            traceback.print_exc()
    run_cell(source, name, namespace)


if __name__ == "__main__":
    main()
