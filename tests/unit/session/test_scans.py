"""What transformers finds in its own files is kept as long as they stay as they are."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import peakmem

_SPEC = importlib.util.spec_from_file_location(
    "scans_under_test", Path(peakmem.__file__).parent / "session" / "inside" / "scans.py"
)
assert _SPEC is not None
assert _SPEC.loader is not None
scans = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(scans)

FOUND = {"gpt2": {frozenset({"torch"}): {"modeling_gpt2": {"GPT2Model"}}, frozenset(): {"configuration_gpt2": {"C"}}}}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    models = tmp_path / "transformers" / "models" / "gpt2"
    models.mkdir(parents=True)
    (models / "modeling_gpt2.py").write_text("__all__ = ['GPT2Model']\n")
    (models / "__pycache__").mkdir()
    (tmp_path / "transformers" / "utils").mkdir()
    (tmp_path / "transformers" / "utils" / "import_utils.py").write_text("")
    return tmp_path / "transformers"


@pytest.fixture
def start(package: Path, tmp_path: Path) -> Callable[[], tuple[Callable[[Any], Any], list[str]]]:
    """Import it anew: its function, and what it was really called with."""

    def start() -> tuple[Callable[[Any], Any], list[str]]:
        calls: list[str] = []

        def look(path: Any) -> Any:
            calls.append(str(path))
            return FOUND

        module = ModuleType("import_utils")
        module.__file__ = str(package / "utils" / "import_utils.py")
        module.create_import_structure_from_path = look  # type: ignore[attr-defined]
        scans.keep(module, str(tmp_path / "kept"))
        return module.create_import_structure_from_path, calls  # type: ignore[attr-defined]

    return start


def test_it_is_found_out_once(start: Any, package: Path) -> None:
    for expected in (1, 0, 0):
        look, calls = start()
        assert look(package / "models") == FOUND
        assert len(calls) == expected


def test_other_folders_are_looked_through_each_time(start: Any, package: Path) -> None:
    for _ in range(2):
        look, calls = start()
        look(str(package / "models" / "gpt2"))
        assert calls == [str(package / "models" / "gpt2")]


@pytest.mark.parametrize("change", ["edited", "added", "removed", "renamed", "import_utils", "touched"])
def test_a_change_of_the_files_is_seen(start: Any, package: Path, change: str) -> None:
    file = package / "models" / "gpt2" / "modeling_gpt2.py"
    start()[0](package / "models")
    if change == "edited":
        file.write_text("__all__ = ['GPT2Model', 'More']\n")
    elif change == "added":
        (package / "models" / "new").mkdir()
        (package / "models" / "new" / "modeling_new.py").write_text("")
    elif change == "removed":
        file.unlink()
    elif change == "renamed":
        file.rename(file.with_name("modeling_other.py"))
    elif change == "import_utils":
        (package / "utils" / "import_utils.py").write_text("# another way to look\n")
    else:
        os.utime(file, ns=(1, 1))
    look, calls = start()
    assert look(package / "models") == FOUND and len(calls) == 1


def test_compiled_files_do_not_matter(start: Any, package: Path) -> None:
    start()[0](package / "models")
    (package / "models" / "gpt2" / "__pycache__" / "modeling_gpt2.pyc").write_text("x")
    look, calls = start()
    look(package / "models")
    assert calls == []


@pytest.mark.parametrize("damage", [b"", b"abc", b"\0\0\0\0rest", None])
def test_a_damaged_file_is_found_out_again(start: Any, package: Path, tmp_path: Path, damage: bytes | None) -> None:
    start()[0](package / "models")
    (kept,) = (tmp_path / "kept").iterdir()
    kept.write_bytes(kept.read_bytes()[:-3] if damage is None else damage)
    for expected in (1, 0):
        look, calls = start()
        assert look(package / "models") == FOUND
        assert len(calls) == expected


def test_a_folder_that_can_not_be_made_is_no_error(start: Any, package: Path, tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("a file")
    for _ in range(2):
        look, calls = start()
        assert look(package / "models") == FOUND and len(calls) == 1


def test_an_older_transformers_is_left_alone(tmp_path: Path) -> None:
    module = ModuleType("import_utils")
    scans.keep(module, str(tmp_path))
    assert not hasattr(module, "create_import_structure_from_path")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_leaves_nothing_behind(start: Any, package: Path, tmp_path: Path, monkeypatch: Any) -> None:
    real = open

    def full(path: Any, mode: str = "r") -> Any:
        if "w" not in mode:
            return real(path, mode)
        real(path, mode).close()
        return real("/dev/full", mode)

    monkeypatch.setattr(scans, "open", full, raising=False)
    assert start()[0](package / "models") == FOUND
    assert list((tmp_path / "kept").iterdir()) == []
