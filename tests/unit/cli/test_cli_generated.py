"""The script that `peakmem predict` writes, on disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from peakmem.cli.generated import on_disk


@dataclass(frozen=True)
class Told:
    line: str


def test_a_script_goes_with_its_run_and_its_folder_is_not_told() -> None:
    with on_disk("print(1)\n", keep=None) as file:
        assert file.path.read_text() == "print(1)\n"
        assert file.command[1] == str(file.path)
    assert not file.path.parent.exists()
    assert file.named(Told(line=f"{file.path}:12")) == Told(line="predict.py:12")


def test_a_script_is_kept_where_it_was_asked_for(tmp_path: Path) -> None:
    with on_disk("print(1)\n", keep=str(tmp_path / "kept.py")) as file:
        pass
    assert (tmp_path / "kept.py").read_text() == "print(1)\n"
    assert file.named(Told(line=f"{file.path}:12")) == Told(line=f"{tmp_path}/kept.py:12")
