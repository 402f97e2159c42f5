"""Modules that stand in for others until somebody uses them; each test in a process of its own, which it changes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import peakmem.session

INSIDE = Path(peakmem.session.__file__).parent

HEAVY = """
import builtins
builtins.loads = getattr(builtins, "loads", 0) + 1
from .parts import Tensor, twice
__all__ = ["Tensor", "twice"]
LIMIT: int = 128  # of a block
RATIO = LIMIT * 2
"""
PARTS = """
class Tensor:
    kind = "tensor"
    def __init__(self, size=0):
        self.size = size
    @classmethod
    def of(cls, size):
        return cls(size)
def twice(x):
    return 2 * x
"""
START = """
from inside.late_modules import LateModules
from contextlib import contextmanager
entered = []
@contextmanager
def loading():
    entered.append(late.loaded)
    yield
names = {"frame.heavy": ("Tensor", "twice", "LIMIT", "RATIO", "Missing"), "frame.heavy.deep": ()}
late = LateModules(names, "frame", loading)
late.install()
import frame
"""

Run = Callable[[str], Any]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    heavy = tmp_path / "frame" / "heavy"
    (heavy / "deep").mkdir(parents=True)
    (tmp_path / "frame" / "__init__.py").write_text("")
    (tmp_path / "frame" / "own.py").write_text("from frame.heavy import Tensor\n")
    (heavy / "__init__.py").write_text(HEAVY)
    (heavy / "parts.py").write_text(PARTS)
    (heavy / "deep" / "__init__.py").write_text("depth = 3\n")
    (heavy / "deep" / "deeper.py").write_text("depth = 4\n")
    (tmp_path / "library.py").write_text(
        "from frame.heavy import Tensor as T, twice, LIMIT\n"
        "def is_tensor(x):\n    return isinstance(x, T)\n"
        "def kind() -> 'T | None':\n    return T.kind\n"
        "optional = T | None\n"
    )

    def run(code: str) -> Any:
        paths = f"import builtins, json, sys\nsys.path[:0] = [{str(INSIDE)!r}, {str(tmp_path)!r}]\n"
        end = "\nprint(json.dumps(result))"
        done = subprocess.run(
            [sys.executable, "-c", paths + START + code + end], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_a_library_that_only_asks_loads_nothing(run: Run) -> None:
    assert run(
        "import library\n"
        "result = [library.is_tensor(3), issubclass(int, library.T), library.LIMIT, late.left_out, late.loaded]\n"
    ) == [False, False, 128, ["frame.heavy"], False]


def test_what_nobody_imported_is_not_left_out(run: Run) -> None:
    assert run("result = late.left_out") == []


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        ("library.twice(4)", 8),
        ("library.T(5).size", 5),
        ("library.T.of(6).size", 6),
        ("library.kind()", "tensor"),
        ("type('Below', (library.T,), {})(7).size", 7),
        ("sys.modules['frame.heavy'].RATIO", 256),  # no plain value in the text: only the real one knows
        ("sys.modules['frame.heavy'].__all__", ["Tensor", "twice"]),
        ("__import__('frame.heavy.parts').heavy.parts.twice(1)", 2),
        ("__import__('frame.heavy.deep.deeper').heavy.deep.deeper.depth", 4),
        ("__import__('frame.own').own.Tensor(8).size", 8),
        ("[hasattr(sys.modules['frame.heavy'], 'Missing')]", [False]),
    ],
)
def test_whoever_uses_one_gets_the_real_ones(run: Run, use: str, expected: object) -> None:
    found = run(
        f"import library\nused = {use}\n"
        "import frame.heavy, frame.heavy.parts as parts\n"
        "result = [used, late.loaded, late.left_out, builtins.loads, library.T is parts.Tensor, "
        "library.twice is parts.twice, library.is_tensor(parts.Tensor()), frame.heavy is sys.modules['frame.heavy']]"
    )
    assert found == [expected, True, [], 1, True, True, True, True]


def test_a_class_that_was_kept_elsewhere_knows_its_real_instances(run: Run) -> None:
    assert run(
        "import library\nkept = [library.T]\nfrom frame.heavy.parts import Tensor\nimport frame.heavy.deep\n"
        "result = [isinstance(Tensor(), kept[0]), isinstance(3, kept[0]), issubclass(Tensor, kept[0]), "
        "entered, frame.heavy.deep.depth]"
    ) == [True, False, True, [True], 3]


def test_a_star_takes_what_the_real_one_gives(run: Run) -> None:
    assert run("from frame.heavy import *\nresult = [twice(3), Tensor.kind]") == [6, "tensor"]


def test_nothing_stands_in_for_what_is_there_already(run: Run) -> None:
    assert run(
        "for finder in list(sys.meta_path):\n    if type(finder).__module__.startswith('inside'):\n"
        "        sys.meta_path.remove(finder)\n"
        "import frame.heavy\nlate = LateModules(names, 'frame', loading)\nlate.install()\n"
        "import library\nresult = [library.T is frame.heavy.Tensor, late.left_out, late.loaded]"
    ) == [True, [], True]


def test_a_module_that_does_not_exist_is_not_found(run: Run) -> None:
    assert run(
        "import importlib.util\nlate2 = LateModules({'nowhere': ('X',)}, 'nowhere', loading)\nlate2.install()\n"
        "result = [importlib.util.find_spec('nowhere') is None, importlib.util.find_spec('frame.heavy') is not None]\n"
        "try:\n    import nowhere\nexcept ModuleNotFoundError as error:\n    result.append(str(error))\n"
    ) == [True, True, "No module named 'nowhere'"]
