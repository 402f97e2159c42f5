"""What the watched process does around the import of torch; tested in processes of their own, which it changes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import peakmem.session

INSIDE = Path(peakmem.session.__file__).parent

GARBAGE = "from inside import garbage; import gc; usual = gc.get_threshold()\n"


def run(code: str, **modules: str) -> Any:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import json, sys\nsys.path.insert(0, {str(INSIDE)!r})\n{code}\nprint(json.dumps(result))",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_function_is_called_before_a_module_and_one_after(tmp_path: Path) -> None:
    (tmp_path / "followed.py").write_text("import builtins\nbuiltins.told.append('body')\n")
    assert run(
        f"""
import builtins
told = builtins.told = []
sys.path.insert(0, {str(tmp_path)!r})
from inside import importing
importing.when_imported("followed", lambda module: told.append(module.__name__), first=lambda: told.append("first"))
import importlib.util
importlib.util.find_spec("followed")
told.append("found")
import followed
importing.when_imported("followed", lambda module: told.append("again"), first=lambda: told.append("never"))
result = told
"""
    ) == ["found", "first", "body", "followed", "again"]


def test_garbage_is_looked_for_rarely_until_training_begins() -> None:
    found = run(
        GARBAGE
        + """
garbage.look_rarely()
rarely = gc.get_threshold()
garbage.look_rarely()
again = gc.get_threshold()
garbage.look_as_ever()
after = gc.get_threshold()
garbage.look_as_ever()
result = [rarely[0] > usual[0], again == rarely, after == usual, gc.get_threshold() == usual]
"""
    )
    assert found == [True] * 4


def test_what_a_script_says_of_garbage_stays() -> None:
    assert run(GARBAGE + "gc.set_threshold(50_000, 5, 5); garbage.look_rarely(); result = gc.get_threshold()") == [
        50_000,
        5,
        5,
    ]
    assert run(GARBAGE + "gc.set_threshold(0); garbage.look_rarely(); result = gc.get_threshold()")[0] == 0
    assert run(
        GARBAGE
        + "garbage.look_rarely(); gc.set_threshold(900, 5, 5); garbage.look_as_ever(); result = gc.get_threshold()"
    ) == [900, 5, 5]


def test_files_that_nobody_closed_are_written_when_python_is_left_standing(tmp_path: Path) -> None:
    code = f"""
import sys
sys.path.insert(0, {str(INSIDE)!r})
from inside import stopping
stopping.install()
stopping.leave_early()
{{how}}
class Keeps:
    pass
kept = Keeps()
kept.itself = kept  # a circle of references
kept.file = open({str(tmp_path / "log")!r}, "w")
kept.file.write("the last line")
print("said", end="")
{{end}}
"""
    for how, end, status in (
        ("", "stopping.stop()", 0),
        ("import types; sys.modules['torch'] = types.ModuleType('torch')", "sys.exit(3)", 3),
    ):
        (tmp_path / "log").unlink(missing_ok=True)
        done = subprocess.run(
            [sys.executable, "-c", code.format(how=how, end=end)], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (status, "said", "")
        assert (tmp_path / "log").read_text() == "the last line"


def test_programs_without_torch_are_taken_apart_as_ever() -> None:
    code = f"""
import sys
sys.path.insert(0, {str(INSIDE)!r})
from inside import stopping
stopping.install()
stopping.leave_early()
class Writer:
    def __del__(self):
        print("closed")
writer = Writer()
writer.itself = writer
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "closed\n"
