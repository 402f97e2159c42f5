"""When hollow libraries are loaded, and when they count; with a torch of one line, in processes of their own."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import peakmem.session
from peakmem.host.hollow_elf import hollow_library
from peakmem.vgpu.elf import Exports

INSIDE = Path(peakmem.session.__file__).parent
NAMES = ("libcublasLt.so.13", "libcufft.so.12")

CODE = """
import ctypes, json, os, sys
sys.path[:0] = [{inside!r}, {site!r}]
from inside import importing
from inside.cpu import hollow
asked = json.loads({asked!r})
importing.when_imported("torch", lambda module: None, first=lambda: hollow.install(asked))
{before}
import torch
mapped = [os.path.basename(path) for path in hollow._mapped() if "libcu" in path]
{after}
print(json.dumps([hollow.stand_in(asked["libraries"]), sorted(mapped)]))
"""


def library(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    exports = Exports(symbols=(("function", 1),), versions=())
    path.write_bytes(hollow_library(path.name.partition(".bak")[0], exports, machine=platform.machine()))
    return str(path)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    torch = tmp_path / "a site é" / "torch"
    torch.mkdir(parents=True)
    (torch / "__init__.py").write_text("")
    return torch.parent


def run(site: Path, *, before: str = "", after: str = "", **changes: object) -> Any:
    libraries = {name: library(site.parent / "hollow é" / name) for name in NAMES}
    asked = json.dumps({"libraries": libraries, "torch": str(site / "torch"), **changes})
    code = CODE.format(inside=str(INSIDE), site=str(site), asked=asked, before=before, after=after)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_they_are_there_once_torch_is(site: Path) -> None:
    assert run(site) == [True, sorted(NAMES)]


def test_who_asks_for_a_path_gets_them(site: Path, tmp_path: Path) -> None:
    real = library(tmp_path / "real" / NAMES[0])
    assert run(site, after=f"ctypes.CDLL({real!r})") == [True, sorted(NAMES)]


def test_another_torch_is_left_alone(site: Path, tmp_path: Path) -> None:
    """A command may use another environment, whose torch loads others, or none."""
    (tmp_path / "other" / "torch").mkdir(parents=True)
    assert run(site, torch=str(tmp_path / "other" / "torch")) == [False, []]
    assert run(site, torch="") == [False, []]


@pytest.mark.parametrize("name", [NAMES[1], "libcufft.so.12.0.0.15", "libcufft.so.11"])
def test_a_real_one_that_is_there_before(site: Path, tmp_path: Path, name: str) -> None:
    real = library(tmp_path / "real" / name)
    assert run(site, before=f"ctypes.CDLL({real!r})") == [False, [name]]


def test_a_real_one_that_comes_all_the_same(site: Path, tmp_path: Path) -> None:
    """By a way that does not lead through `ctypes` or their names; then what they stand for is there twice."""
    real = library(tmp_path / "real" / "libcufft.so.12.0.0.15")
    assert run(site, after=f"ctypes.CDLL({real!r})")[0] is False


def test_all_are_loaded_or_none(site: Path, tmp_path: Path) -> None:
    """What some of them stand for is not known."""
    good, bad = library(tmp_path / NAMES[0]), tmp_path / NAMES[1]
    bad.write_text("no library")
    assert run(site, libraries={NAMES[0]: good, NAMES[1]: str(bad)}) == [False, []]


def test_a_library_that_is_replaced_meanwhile_still_stands_in(site: Path) -> None:
    """Of two processes that make the cache at once one puts its files in the place of the other's."""
    path = site.parent / "hollow é" / NAMES[0]
    after = f"os.rename({str(path)!r}, {str(path) + '.old'!r}); os.remove({str(path) + '.old'!r})"
    assert run(site, after=after)[0] is True


def test_workers_that_are_begun_anew_load_the_real_ones(site: Path) -> None:
    assert run(site, before="sys.orig_argv = ['python', '-c', 'from multiprocessing.spawn import x']") == [False, []]
