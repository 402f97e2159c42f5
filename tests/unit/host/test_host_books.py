"""The books of would-be resident memory, against what really is resident once all of it has been written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from peakmem.host.library import HOST, ensure_host_library
from peakmem.vgpu import build, compiling

MIB = 2**20
PAGE = 4096

_CHILD = r"""
import ctypes, json, sys
c = ctypes.CDLL(None)
c.malloc.restype = ctypes.c_void_p
c.malloc.argtypes = [ctypes.c_size_t]
c.free.argtypes = [ctypes.c_void_p]
c.posix_memalign.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.c_size_t]
c.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
for name in ("peakmem_host_look", "peakmem_host_reset_peak"):
    getattr(c, name).restype = None
NAMES = ("live", "mapped", "heap", "outside", "peak", "peak_live", "peak_outside", "events")

def books():
    out = (ctypes.c_uint64 * len(NAMES))()
    c.peakmem_host_look()
    c.peakmem_host_read(out)
    return dict(zip(NAMES, out))

def tensor(size, write=True):
    p = ctypes.c_void_p()
    assert c.posix_memalign(ctypes.byref(p), 64, size) == 0
    if write:
        c.memset(p, 1, size)
    return p.value
"""


@pytest.fixture(scope="module")
def library() -> Path:
    if build.find_prebuilt(library=HOST) is None and compiling.find_compiler() is None:
        pytest.skip("no C++ compiler")
    return ensure_host_library()


def run(library: Path, code: str, **variables: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"{_CHILD}\n{code}\nprint(json.dumps(result))"],
        capture_output=True,
        text=True,
        env={"LD_PRELOAD": str(library), "PATH": os.environ["PATH"], **variables},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


requests = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.sampled_from([2_000, 50_000, 200_000, 3 * MIB, 20 * MIB, 40 * MIB])),
        st.tuples(st.just("small"), st.integers(16, 900)),
        st.tuples(st.just("give"), st.integers(0, 99)),
    ),
    min_size=5,
    max_size=40,
)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(requests)
def test_pages_of_written_blocks_are_those_that_are_resident(library: Path, sequence: list[tuple[str, int]]) -> None:
    result = run(
        library,
        f"""
result = []
live = [tensor(1024)]
before = books()
for what, n in {sequence!r}:
    if what == "take":
        live.append(tensor(n))
    elif what == "small":
        p = c.malloc(n)
    elif len(live) > 1:
        c.free(live.pop(1 + n % (len(live) - 1)))
    result.append(books()["outside"] - before["outside"])
""",
    )
    # What is counted is what is there: nothing of it is left outside of the books, and nothing is in them twice.
    assert max(map(abs, result), default=0) < 0.4 * MIB


def test_what_is_not_written_counts_as_if_it_were(library: Path) -> None:
    result = run(library, "a = books(); p = tensor(100 * 2**20, write=False); b = books(); result = [a, b]")
    before, after = result
    grown = after["mapped"] + after["heap"] + after["outside"] - before["outside"]
    assert 100 * MIB <= grown < 100.5 * MIB
    assert after["live"] == 100 * MIB


def test_a_freed_mapping_goes_and_a_held_heap_stays(library: Path) -> None:
    result = run(
        library,
        """
result = []
c.free(tensor(20 * 2**20, write=False))  # from now on malloc takes blocks below 20 MiB from its heap
blocks = [tensor(10 * 2**20, write=False) for _ in range(10)]
pin = c.malloc(1 << 17)
for block in blocks:
    c.free(block)
result = [books()]
c.free(tensor(40 * 2**20, write=False))
result.append(books())
c.free(pin)
c.malloc_trim(0)
result.append(books())
""",
    )
    held, after_mapping, trimmed = result
    assert held["live"] == 0
    assert held["heap"] >= 100 * MIB  # the block above keeps them
    assert after_mapping["mapped"] == 0
    assert trimmed["heap"] == 0


def test_the_peak_is_kept_until_it_is_reset(library: Path) -> None:
    result = run(
        library,
        """
base = books()
c.peakmem_host_reset_peak()
p = tensor(64 * 2**20, write=False)
c.free(p)
one = books()
c.peakmem_host_reset_peak()
result = [base, one, books()]
""",
    )
    base, one, two = result
    assert one["peak"] - base["outside"] >= 64 * MIB
    assert one["peak_live"] == 64 * MIB
    assert two["peak"] < base["outside"] + 2 * MIB


def test_a_block_that_is_written_in_part_counts_in_part(library: Path) -> None:
    result = run(
        library,
        """
c.peakmem_host_partly.argtypes = [ctypes.c_uint64] * 3
c.peakmem_host_partly(64 * 2**20, 2**20, 1)
a = tensor(64 * 2**20, write=False)
one = books()
b = tensor(64 * 2**20, write=False)
result = [one, books()]
""",
    )
    one, two = result
    assert MIB <= one["mapped"] <= MIB + 2 * PAGE
    assert two["mapped"] - one["mapped"] >= 64 * MIB


def test_what_peakmem_allocates_for_itself_is_not_asked_of_malloc(library: Path) -> None:
    found = run(
        library,
        """
tensor(200_000)
own = c.peakmem_host_own
own.restype = ctypes.POINTER(ctypes.c_int)
c.calloc.restype = c.realloc.restype = ctypes.c_void_p
c.calloc.argtypes, c.realloc.argtypes = [ctypes.c_size_t] * 2, [ctypes.c_void_p, ctypes.c_size_t]
def heap():
    line = next(line for line in open("/proc/self/maps") if "[heap]" in line)
    return tuple(int(x, 16) for x in line.split()[0].split("-"))
flag = own().contents
flag.value = 1
pieces = [c.malloc(n) for n in (1, 16, 17, 1000, 5000, 1 << 20)]
again = c.malloc(1000)
c.memset(again, 7, 1000)
grown = c.realloc(again, 3000)
kept = ctypes.string_at(grown, 1000) == bytes([7]) * 1000
c.free(pieces[3])
reused = c.malloc(1001)
zeros = c.calloc(100, 10)
zeroed = ctypes.string_at(zeros, 1000) == bytes(1000)
flag.value = 0
program = c.malloc(1000)
moved = c.realloc(grown, 100_000)
low, high = heap()
result = {
    "in_heap": [low <= p < high for p in pieces], "aligned": all(p % 16 == 0 for p in pieces), "kept": kept,
    "kept_moved": ctypes.string_at(moved, 1000) == bytes([7]) * 1000, "reused": reused == pieces[3], "zeroed": zeroed,
    "program": low <= program < high, "distinct": len({*pieces, grown, zeros}),
}
for p in (*pieces[:3], *pieces[4:], reused, zeros, program, moved):
    c.free(p)
""",
    )
    assert found == {
        "in_heap": [False] * 6,
        "aligned": True,
        "kept": True,
        "kept_moved": True,
        "reused": True,
        "zeroed": True,
        "program": True,
        "distinct": 8,
    }
