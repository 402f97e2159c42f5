"""Python runs this file at start-up, since its folder stands first in PYTHONPATH below `peakmem run`.

It loads the watching side of peakmem by its path, so that the interpreter of the user needs no peakmem of its own, and
then the `sitecustomize` that would have run without it.
"""

import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _start_watching():
    if not os.environ.get("PEAKMEM_SESSION"):
        return
    folder = os.path.join(os.path.dirname(_HERE), "inside")
    spec = importlib.util.spec_from_file_location(
        "peakmem_inside", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["peakmem_inside"] = module
    spec.loader.exec_module(module)
    module.start()


def _run_the_other_sitecustomize():
    others = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


_start_watching()
_run_the_other_sitecustomize()
