"""What loading CUDA's libraries takes: measured in a process of its own."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from peakmem.host.cuda_libraries import loaded_libraries


def test_without_libraries_nothing_is_measured(tmp_path: Path) -> None:
    assert loaded_libraries(sys.executable, tmp_path) is None


def test_what_is_no_library_takes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "cublas" / "lib"
    folder.mkdir(parents=True)
    (folder / "libcublas.so.12").write_text("text")
    found = loaded_libraries(sys.executable, tmp_path)
    assert found is not None
    assert found.anonymous + found.file < 2**20


def test_a_library_that_was_not_loaded_yet_becomes_resident(tmp_path: Path) -> None:
    mapped = Path("/proc/self/maps").read_text()
    import numpy.linalg  # brings a large library of its own

    assert numpy.linalg
    files = set(re.findall(r"(/\S*(?:openblas|libstdc\+\+)\S*\.so\S*)", Path("/proc/self/maps").read_text() + mapped))
    if not files:
        pytest.skip("no library to take")
    folder = tmp_path / "cublas" / "lib"
    folder.mkdir(parents=True)
    shutil.copy(max(files, key=lambda name: Path(name).stat().st_size), folder / "libcublas.so.12")
    found = loaded_libraries(sys.executable, tmp_path)
    assert found is not None
    assert found.file > 0


def test_an_interpreter_that_is_not_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "cublas" / "lib").mkdir(parents=True)
    (tmp_path / "cublas" / "lib" / "libcublas.so.12").touch()
    assert loaded_libraries(tmp_path / "python", tmp_path) is None
