"""How much hangs on an object, against what really became resident when it was made."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections import deque
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import peakmem

_PATH = Path(peakmem.__file__).parent / "session" / "inside" / "objects.py"
_SPEC = importlib.util.spec_from_file_location("objects_under_test", _PATH)
assert _SPEC is not None
assert _SPEC.loader is not None
objects = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(objects)

MEASURED = """
import gc, importlib.util, json, sys
import numpy as np
spec = importlib.util.spec_from_file_location("objects", {path!r})
objects = importlib.util.module_from_spec(spec)
spec.loader.exec_module(objects)
def resident():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
N = 200_000
before = resident()
made = {code}
grown = resident() - before
print(json.dumps([objects.weigh(made).row(), grown]))
"""


@pytest.mark.parametrize(
    "code",
    [
        '[f"image_{i:08d}.jpg" for i in range(N)]',
        'np.array([f"image_{i:08d}.jpg" for i in range(N)], dtype=object)',
        '[{"file": f"a{i}", "box": [i * 1.5, i * 2.5], "label": i} for i in range(N // 4)]',
        "{i + 1000: str(i) * 10 for i in range(N)}",
        "[(i * 1.1, i * 2.2) for i in range(N)]",
    ],
)
def test_what_is_weighed_is_what_became_resident(code: str) -> None:
    program = MEASURED.format(path=str(_PATH), code=code)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    row, grown = json.loads(done.stdout)
    assert not row["partial"]
    assert row["objects"] + row["buffers"] == pytest.approx(grown, rel=0.12)
    assert row["objects"] > 0.5 * grown


def test_arrays_are_buffers_and_counted_once() -> None:
    array = np.ones(1_000_000)
    row = objects.weigh([array, array[10:], array.reshape(1000, 1000), {"again": array}]).row()
    assert row["buffers"] == 8_000_000
    assert row["objects"] < 2000


def test_small_arrays_lie_between_objects() -> None:
    row = objects.weigh([np.arange(10) for _ in range(100)]).row()
    assert row["buffers"] == 0
    assert row["objects"] > 100 * 80


def test_mapped_files_are_told_apart(tmp_path: Path) -> None:
    np.save(tmp_path / "data.npy", np.zeros(100_000))
    row = objects.weigh({"data": np.load(tmp_path / "data.npy", mmap_mode="r")}).row()
    assert row["mapped"] == 800_000
    assert row["buffers"] == 0


def test_of_one_long_buffer_a_page_counts_as_an_object() -> None:
    row = objects.weigh([b"x" * 1_000_000]).row()
    assert row["objects"] == pytest.approx(4096, abs=200)
    assert row["buffers"] == pytest.approx(1_000_000 - 4096, abs=200)


def test_the_same_few_items_many_times_are_those_few_items() -> None:
    names = [f"a rather long name of category {i}" for i in range(100)]
    row = objects.weigh([names[i % 100] for i in range(1_000_000)]).row()
    assert row["objects"] < 100 * 150 + 4096
    assert row["buffers"] == pytest.approx(8_000_000, rel=0.15)  # a list has room to spare


def test_attributes_slots_cycles_and_other_containers_are_followed() -> None:
    @dataclass
    class Item:
        name: str
        other: object = None

    class Slotted:
        __slots__ = ("data",)

        def __init__(self) -> None:
            self.data = bytearray(500_000)

    item = Item(name="n" * 2000)
    item.other = {"back": item, "set": {frozenset(["q" * 3000])}, "deque": deque([Slotted()])}
    row = objects.weigh(item).row()
    assert row["objects"] + row["buffers"] > 505_000
    assert not row["partial"]


def test_a_class_that_counts_in_all_that_hangs_on_it_is_weighed_once() -> None:
    class Frame:  # as pandas' DataFrame does
        def __init__(self) -> None:
            self.data = np.ones(100_000)

        def __sizeof__(self) -> int:
            return int(self.data.nbytes) + 16

    row = objects.weigh(Frame()).row()
    assert row["buffers"] == 800_000
    assert row["objects"] < 1000


def test_classes_that_raise_and_modules_do_no_harm() -> None:
    class Hostile:
        def __sizeof__(self) -> int:
            raise RuntimeError

    assert objects.weigh(Hostile(), sys, Hostile, print).row()["objects"] < 1000


def test_the_time_allowed_is_kept() -> None:
    things = [[[str(i), str(j)] for j in range(1000)] for i in range(300)]
    found = objects.weigh(things, seconds=0.0)
    assert found.partial
