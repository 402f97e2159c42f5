from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from peakmem.errors import PeakmemError
from peakmem.files import atomic_write, check_writable, to_json, write_whole


def test_a_file_that_exists_is_replaced_only_by_force(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_whole(b"first", path, force=False)
    with pytest.raises(PeakmemError, match="exists already"):
        write_whole(b"second", path, force=False)
    assert path.read_bytes() == b"first"
    write_whole(b"second", path, force=True)
    assert path.read_bytes() == b"second"
    assert os.listdir(tmp_path) == ["a.json"]


def test_what_fails_half_way_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), atomic_write(path, force=True) as stream:
        stream.write(b"half")
        raise ZeroDivisionError
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_file_that_appears_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    with pytest.raises(PeakmemError, match="exists already"), atomic_write(path, force=False) as stream:
        stream.write(b"ours")
        path.write_text("theirs")
    assert path.read_text() == "theirs"


@pytest.mark.parametrize("force", [False, True])
def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path: Path, force: bool) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    check_writable(pipe, force=force)
    write_whole(b"text", pipe, force=force)
    reader.join(10)
    assert read == [b"text"]
    assert pipe.is_fifo()


@pytest.mark.parametrize(
    ("name", "message"), [("", "is a folder"), ("gone/a.json", "there is no folder"), ("a.json", "exists already")]
)
def test_what_can_not_be_written_is_told_before(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "a.json").touch()
    with pytest.raises(PeakmemError, match=message):
        check_writable(tmp_path / name, force=False)


def test_lists_of_numbers_take_one_line() -> None:
    assert to_json({"a": [1, -2], "b": ["x"]}) == b'{\n  "a": [1, -2],\n  "b": [\n    "x"\n  ]\n}\n'
