"""Large tensors of floats whose pages are resident to the kernel's count, and take none of the machine's memory."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from peakmem.host.tensorflow import TENSORFLOW_HOST, ensure_tensorflow_library
from peakmem.vgpu.compiling import find_compiler

MIB = 2**20
FAKE = Path(__file__).parent / "fake_tensorflow.cpp"

_CHILD = r"""
import ctypes, json, re, sys
MIB = 2**20
FLOAT, INT64 = 1, 9  # tensorflow/core/framework/types.proto
MALLOC, REGION = 0, 1
fake = ctypes.CDLL(sys.argv[1])
c = ctypes.CDLL(None)
c.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
MAKE = "_ZN10tensorflow6TensorC1EPN3tsl9AllocatorENS_8DataTypeERKNS_11TensorShapeE"
make = getattr(c, MAKE)
make.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]
make.restype = None
drop = c._ZN3tsl12BFCAllocator13DeallocateRawEPv
free = c._ZN3tsl4port11AlignedFreeEPv
for function in (drop, free):
    function.restype = None
drop.argtypes, free.argtypes = [ctypes.c_void_p] * 2, [ctypes.c_void_p]
NAMES = ("live", "events", "highest", "highest_live", "regions", "resident", "shared", "pool")

def tensor(size, kind, where, write=1, kernel=True):
    p, n = ctypes.c_void_p(), ctypes.c_size_t(size)
    if kernel:
        assert fake.in_kernel(ctypes.byref(p), ctypes.c_void_p(where), kind, ctypes.byref(n)) == 7
    else:
        make(ctypes.byref(p), where, kind, ctypes.byref(n))
    if write:
        c.memset(p, write, size)
    return p.value

def known():
    out = (ctypes.c_uint64 * len(NAMES))()
    c.peakmem_tensorflow_read(out)
    return dict(zip(NAMES, out))

def status():
    with open("/proc/self/status") as file:
        found = re.findall(r"(VmRSS|RssAnon|RssShmem|VmHWM):\s+(\d+)", file.read())
    return {name: int(size) * 1024 for name, size in found}

def byte(p):
    return ctypes.c_uint8.from_address(p).value
before = status()
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    compiler = find_compiler()
    if compiler is None:
        pytest.skip("no C++ compiler")
    library = ensure_tensorflow_library()
    fake = tmp_path_factory.mktemp("fake") / "libtensorflow_framework.so.2"
    words = [*compiler, "-shared", "-fPIC", "-O1", f"-Wl,-soname,{fake.name}", "-o", str(fake), str(FAKE)]
    subprocess.run(words, check=True, capture_output=True)

    def child(code: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-S", "-c", f"{_CHILD}\n{code}\nprint(json.dumps(result))", str(fake)],
            capture_output=True,
            text=True,
            env={"LD_PRELOAD": str(library), "PATH": os.environ["PATH"]},
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return child


@pytest.mark.parametrize("where", ["MALLOC", "REGION"])
def test_floats_count_in_full_and_take_the_pool_alone(run: Any, where: str) -> None:
    found = run(f"tensor(48 * MIB, FLOAT, {where}); result = [before, status(), known()]")
    before, after, known = found
    assert after["VmRSS"] - before["VmRSS"] == pytest.approx(48 * MIB, rel=0.02)
    assert after["VmHWM"] >= after["VmRSS"] - MIB
    assert after["RssAnon"] - before["RssAnon"] < 2 * MIB
    assert known["live"] == 48 * MIB
    assert known["shared"] == pytest.approx(48 * MIB, rel=0.01)
    assert known["pool"] == 16 * MIB


def test_what_is_not_written_is_not_resident(run: Any) -> None:
    before, after = run("tensor(48 * MIB, FLOAT, REGION, write=0); result = [before, status()]")
    assert after["VmRSS"] - before["VmRSS"] < 2 * MIB


@pytest.mark.parametrize("where", ["MALLOC", "REGION"])
def test_integers_keep_their_values(run: Any, where: str) -> None:
    values = run(
        f"""
labels = tensor(2 * MIB, INT64, {where}, write=7)
tensor(40 * MIB, FLOAT, {where}, write=3)
result = {{byte(labels + i) for i in range(2 * MIB)}}
result = sorted(result)
"""
    )
    assert values == [7]


@pytest.mark.parametrize("which", ["2 * MIB, FLOAT, REGION, 7, kernel=False", "900_000, FLOAT, REGION, 7"])
def test_floats_of_the_scripts_own_and_small_ones_keep_their_values(run: Any, which: str) -> None:
    values = run(
        f"""
data = tensor({which})
tensor(40 * MIB, FLOAT, REGION, write=3)
result = sorted({{byte(data + i) for i in range(900_000)}})
"""
    )
    assert values == [7]


def test_a_chunk_that_is_taken_again_for_integers_stays_resident_and_is_its_own(run: Any) -> None:
    after, again, values = run(
        """
p = tensor(40 * MIB + 100, FLOAT, REGION)
after = status()
drop(None, p)
labels = tensor(10 * MIB + 50, INT64, REGION, write=0)
again = status()
c.memset(labels, 7, 10 * MIB + 50)
tensor(30 * MIB, FLOAT, REGION, write=3)
result = [after, again, sorted({byte(labels + i) for i in range(0, 10 * MIB + 50)})]
"""
    )
    assert values == [7]
    assert again["VmRSS"] == pytest.approx(after["VmRSS"], abs=MIB)
    assert again["RssAnon"] - after["RssAnon"] == pytest.approx(10 * MIB, abs=MIB)


def test_a_block_that_is_given_back_is_gone(run: Any) -> None:
    before, after, known = run(
        """
p = tensor(48 * MIB, FLOAT, MALLOC)
free(p)
result = [before, status(), known()]
"""
    )
    assert after["VmRSS"] - before["VmRSS"] < 2 * MIB
    assert (known["live"], known["regions"], known["highest_live"]) == (0, 0, 48 * MIB)
    assert known["highest"] > after["VmRSS"] + 40 * MIB


def test_more_than_the_machine_has_can_be_asked_for(run: Any) -> None:
    asked = 2 * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    after = run(f"p = tensor({asked}, FLOAT, MALLOC, write=0); c.memset(p, 1, 64 * MIB); result = [p, known()]")
    assert after[0]
    assert after[1]["resident"] == pytest.approx(64 * MIB, rel=0.01)


def test_the_library_has_the_names_that_it_stands_in_front_of() -> None:
    names = shlex.split((TENSORFLOW_HOST.sources / "exports.map").read_text().replace(";", " ").split("global:")[1])
    assert any("BFCAllocator11AllocateRaw" in name for name in names)
