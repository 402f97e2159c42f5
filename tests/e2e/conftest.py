"""Running the installed command, in a process of its own."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from peakmem.vgpu.build import ensure_library

EXAMPLES = Path(__file__).parents[2] / "examples"


def _cuda_build() -> bool:
    spec = importlib.util.find_spec("torch")
    return spec is not None and (Path(spec.origin or "").parent / "lib" / "libtorch_cuda.so").exists()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not _cuda_build():
        skip = pytest.mark.skip(reason="needs a CUDA build of PyTorch")
        for item in items:
            if item.get_closest_marker("torch"):
                item.add_marker(skip)


@pytest.fixture(scope="session", autouse=True)
def _library_is_built() -> None:
    """Build the virtual GPU before the first test, so that none is timed or interrupted while it is being built."""
    if _cuda_build():
        ensure_library()


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @cached_property
    def json(self) -> dict[str, Any]:
        """Standard output as JSON."""
        result: dict[str, Any] = json.loads(self.out)
        return result


def run_peakmem(*words: str | Path, cwd: Path | None = None, timeout: float = 300, **variables: str) -> Done:
    """Run `peakmem` with some words; nothing of it may be a traceback."""
    import os

    done = subprocess.run(
        [sys.executable, "-m", "peakmem", *map(str, words)],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=timeout,
        env={**os.environ, "COLUMNS": "100", **variables},
        check=False,
    )
    # What the script printed is shown indented; a traceback at the margin is peakmem's own.
    assert not re.search(r"^Traceback", done.stderr, re.MULTILINE), done.stderr
    return Done(done.returncode, done.stdout, done.stderr)


_MEASURE = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:])
print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def measured(*words: str | Path, **variables: str) -> tuple[str, int]:
    """Run a command for real: what it printed, and the resident memory of its largest process, bytes.

    A small process of its own starts it, since a child's peak begins with that of the process that made it.
    """
    import os

    done = subprocess.run(
        [sys.executable, "-c", _MEASURE, *map(str, words)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **variables},
    )
    printed, _, last = done.stdout.rstrip("\n").rpartition("\n")
    code, largest_kib = map(int, last.split())
    assert code == 0, done.stderr
    return printed, largest_kib * 1024


@pytest.fixture
def script(tmp_path: Path):
    """Write a script and give its path."""

    def write(text: str, name: str = "train.py") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return write
