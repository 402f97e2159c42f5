from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from trace_samples import DATA

from peakmem.errors import PeakmemError
from peakmem.trace.builder import Interner
from peakmem.trace.file import _Column, _pack, _unpack, read_trace, write_trace
from peakmem.trace.load import load_trace
from peakmem.trace.model import DeviceInfo, Trace, TraceMeta
from peakmem.trace.roles import Action, ContextKind, Role
from peakmem.trace.tables import Events, Owners, Spans


def rich_trace(count: int = 400) -> Trace:
    """A trace with something in every table."""
    rng = np.random.default_rng(7)
    names = Interner()
    stacks = [names.stack([names.frame(f"m{i}.py", j, f"f{j}") for j in range(1 + i % 5)]) for i in range(30)]
    step = names.context(0, ContextKind.STEP, "step", 3)
    module = names.context(step, ContextKind.MODULE, "encoder.layers.0")
    half = count // 2
    size = rng.integers(1, 1 << 24, half)
    return Trace(
        meta=TraceMeta(
            torch="2.14.1",
            command=("train.py", "--x"),
            devices=(DeviceInfo(index=0, name="A100", capacity=1 << 36),),
            settings={"max_split_size": -1, "roundup": {"1": 0}},
            notes=("a note",),
            pools=((0, 0), (0, 1)),
        ),
        events=Events.of(
            {
                "action": [Action.ALLOC, Action.FREE_REQUESTED] * half,
                "address": np.repeat(rng.integers(1 << 46, 1 << 47, half), 2),
                "size": np.repeat(size, 2),
                "block_size": np.repeat(-(-size // 512) * 512, 2),
                "time_us": np.arange(2 * half),
                "stack": rng.choice(stacks, 2 * half),
                "context": [module] * (2 * half),
                "stream": [-1] * (2 * half),
                "device": [0] * (2 * half),
            }
        ),
        owners=Owners.from_rows(
            {
                "allocation": i,
                "since": 0,
                "role": Role.PARAMETER,
                "name": names.string(f"w{i}"),
                "shape": names.shape((i, 4)),
            }
            for i in range(20)
        ),
        spans=Spans.from_rows(
            [{"kind": ContextKind.STEP, "name": names.string("step"), "number": 3, "first": 0, "end": 9}]
        ),
        contexts=names.contexts,
        frames=names.frames,
        stacks=names.stacks,
        strings=names.strings,
        shapes=names.shapes,
    )


def test_a_trace_comes_back_as_it_was(tmp_path: Path) -> None:
    trace = rich_trace()
    assert read_trace(write_trace(trace, tmp_path / "t.peakmem")) == trace
    assert read_trace(write_trace(Trace(), tmp_path / "empty.peakmem")) == Trace()


def test_an_imported_snapshot_comes_back_as_it_was(tmp_path: Path, snapshot_name: str) -> None:
    trace = load_trace(DATA / f"{snapshot_name}.pickle")
    assert load_trace(write_trace(trace, tmp_path / "t.peakmem")) == trace


@given(st.sampled_from(["u1", "i2", "i4", "i8", "u8"]).flatmap(lambda kind: arrays(kind, st.integers(0, 50))))
@settings(deadline=None)
def test_packing_loses_nothing(array: np.ndarray) -> None:  # type: ignore[type-arg]
    encoding, data = _pack(array)
    dtype = array.dtype.str.lstrip("<|")
    back = _unpack(data, _Column(dtype=dtype, count=len(array), encoding=encoding), dtype)
    assert back.dtype == array.dtype and np.array_equal(back, array)


def test_equal_traces_give_equal_files(tmp_path: Path) -> None:
    first = write_trace(rich_trace(), tmp_path / "a.peakmem")
    second = write_trace(rich_trace(), tmp_path / "b.peakmem")
    assert first.read_bytes() == second.read_bytes()


def test_100_000_events_take_less_than_5_mb(tmp_path: Path) -> None:
    # Random sizes and addresses: nothing that a real run has in common between its steps helps here.
    path = write_trace(rich_trace(100_000), tmp_path / "big.peakmem")
    assert path.stat().st_size < 5_000_000
    assert len(read_trace(path).events) == 100_000


def test_a_file_is_not_replaced_unless_told_so(tmp_path: Path) -> None:
    path = tmp_path / "t.peakmem"
    path.write_text("precious")
    with pytest.raises(PeakmemError, match="exists already") as error:
        write_trace(Trace(), path)
    assert "--force" in error.value.hint and path.read_text() == "precious"
    write_trace(Trace(), path, force=True)
    assert read_trace(path) == Trace()
    assert [item.name for item in tmp_path.iterdir()] == ["t.peakmem"]


def test_nothing_is_left_behind_when_writing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(zipfile.ZipFile, "writestr", fail)
    with pytest.raises(PeakmemError, match="No space left on device"):
        write_trace(Trace(), tmp_path / "t.peakmem")
    assert list(tmp_path.iterdir()) == []


def rewritten(tmp_path: Path, name: str, content: bytes) -> Path:
    """A trace with one of its entries replaced."""
    source = write_trace(rich_trace(), tmp_path / "good.peakmem", force=True)
    path = tmp_path / "bad.peakmem"
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(path, "w") as new:
        for entry in old.namelist():
            new.writestr(entry, content if entry == name else old.read(entry))
    return path


def test_a_newer_file_says_what_to_do(tmp_path: Path) -> None:
    header = {"format": "peakmem/trace", "version": 9, "peakmem": "4.2", "columns": {"new": "things"}}
    path = rewritten(tmp_path, "header.json", json.dumps(header).encode())
    with pytest.raises(PeakmemError, match=r"written by peakmem 4\.2 in version 9") as error:
        read_trace(path)
    assert "upgrade" in error.value.hint


@pytest.mark.parametrize("keep", [30, 1000, 0.5, 0.98])
def test_a_file_that_is_cut_off_says_so(tmp_path: Path, keep: float) -> None:
    data = write_trace(rich_trace(), tmp_path / "t.peakmem").read_bytes()
    path = tmp_path / "cut.peakmem"
    path.write_bytes(data[: int(keep * len(data)) if keep < 1 else int(keep)])
    with pytest.raises(PeakmemError, match=r"cut off or damaged|not a peakmem trace"):
        read_trace(path)


def test_a_flipped_bit_is_noticed(tmp_path: Path) -> None:
    data = bytearray(write_trace(rich_trace(), tmp_path / "t.peakmem").read_bytes())
    data[len(data) // 2] ^= 4
    path = tmp_path / "flipped.peakmem"
    path.write_bytes(data)
    with pytest.raises(PeakmemError, match="damaged"):
        read_trace(path)


@pytest.mark.parametrize(
    ("entry", "content"),
    [
        ("header.json", b"{"),
        ("header.json", b'{"format": "other"}'),
        ("events/size", b"short"),
        ("strings.json", b'["only one"]'),
        ("shapes.json", b"[]"),
        ("contexts/parent", b"\x05" * 12),
        ("stacks/offsets", b""),
    ],
)
def test_a_damaged_entry_gives_our_error(tmp_path: Path, entry: str, content: bytes) -> None:
    with pytest.raises(PeakmemError):
        read_trace(rewritten(tmp_path, entry, content))


def test_foreign_files_are_named(tmp_path: Path) -> None:
    other = tmp_path / "other.zip"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("data.txt", "x")
    with pytest.raises(PeakmemError, match="zip archive, but not a peakmem trace"):
        load_trace(other)
    with pytest.raises(PeakmemError, match="does not exist"):
        read_trace(tmp_path / "missing.peakmem")
    with pytest.raises(PeakmemError, match="folder"):
        load_trace(tmp_path)


def test_tables_compare_by_content() -> None:
    trace = rich_trace()
    assert replace(trace, events=trace.events.take(np.arange(len(trace.events)))) == trace
    assert replace(trace, events=trace.events.take(np.arange(5))) != trace
