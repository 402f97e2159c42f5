from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from peakmem.vgpu.elf import asks_for, dynamic_symbols, exports


def test_the_library_gives_the_runtime_and_the_control_interface(library: Path) -> None:
    symbols = dynamic_symbols(library)
    assert {"cudaMalloc", "cuMemCreate", "nvmlInit_v2", "peakmem_events"} <= symbols.defined
    assert "dlopen" in symbols.undefined
    assert not symbols.defined & symbols.undefined


def test_nothing_of_the_cpp_runtime_shows(library: Path) -> None:
    """It is loaded in front of every program, so another C++ runtime must not be replaced by its own."""
    names = dynamic_symbols(library).defined
    assert not {name for name in names if name.startswith(("_ZS", "_ZNS", "_ZNKS", "__cxa", "__gxx", "_Unwind"))}
    assert {name for name in names if name.startswith("_Z")} == {
        "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE",
        # TensorFlow's allocator.
        "_ZN3tsl12BFCAllocator11AllocateRawEmmRKNS_20AllocationAttributesE",
        "_ZN3tsl12BFCAllocator13DeallocateRawEPv",
        "_ZN10tensorflow13BaseGPUDevice7ComputeEPNS_8OpKernelEPNS_15OpKernelContextE",
        "_ZN10tensorflow13BaseGPUDevice12ComputeAsyncEPNS_13AsyncOpKernelEPNS_15OpKernelContextESt8functionIFvvEE",
    }


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.so").write_bytes(b"\x7fELF\x01\x01" + b"\0" * 100)
    with pytest.raises(ValueError, match="no 64-bit little-endian ELF file"):
        dynamic_symbols(tmp_path / "a.so")


@pytest.fixture(scope="module")
def libm() -> Path:
    """A library of the machine, whose names have versions."""
    ctypes.CDLL("libm.so.6")
    maps = Path("/proc/self/maps").read_text().splitlines()
    return next(Path(line.split(maxsplit=5)[5]) for line in maps if "/libm.so.6" in line or "/libm-2." in line)


def test_what_a_library_gives_has_its_versions(libm: Path) -> None:
    found = exports(libm)
    assert {name for name, _ in found.symbols} == dynamic_symbols(libm).defined
    versions = dict(enumerate(found.versions, start=2))
    of_exp = {versions[number] for name, number in found.symbols if name == "exp"}
    assert "GLIBC_2.29" in of_exp  # glibc 2.29, Versions: a new exp without the wrapper for errors
    assert len(of_exp) == 2
    assert all(number == 1 or number in versions for _, number in found.symbols)


def test_what_is_local_is_not_given(library: Path) -> None:
    found = exports(library)
    assert {name for name, _ in found.symbols} == dynamic_symbols(library).defined
    assert found.versions == ()
    assert {number for _, number in found.symbols} == {1}


def test_one_name_is_looked_for_as_all_are(libm: Path) -> None:
    symbols = dynamic_symbols(libm)
    assert symbols.undefined
    for name in symbols.undefined:
        assert asks_for(libm, name)
    for name in [*sorted(symbols.defined)[:50], "no_such_name", "_"]:
        assert not asks_for(libm, name)


@pytest.mark.parametrize("read", [dynamic_symbols, exports, lambda path: asks_for(path, "malloc")])
@pytest.mark.parametrize("length", [0, 3, 100, 5000, -1], ids=str)
def test_a_file_that_is_not_all_there_is_refused(tmp_path: Path, libm: Path, read, length: int) -> None:
    (tmp_path / "a.so").write_bytes(libm.read_bytes()[:length])
    with pytest.raises(ValueError):
        read(tmp_path / "a.so")
