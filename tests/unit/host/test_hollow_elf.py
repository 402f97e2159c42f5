"""Hollow libraries, as the machine's own loader takes them."""

from __future__ import annotations

import _ctypes
import ctypes
import platform
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from peakmem.host.hollow_elf import hollow_library
from peakmem.vgpu.elf import Exports

MACHINE = platform.machine()
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.]{0,40}", fullmatch=True)
# The last two are told by what they are called; here every function gives a number.
ONE = NAMES.filter(lambda name: not name.endswith(("Name", "String")))


@st.composite
def exports(draw: st.DrawFn) -> Exports:
    versions = draw(st.lists(NAMES, unique=True, max_size=5))
    names = draw(st.lists(ONE, unique=True, max_size=40))
    last = 1 + len(versions)
    return Exports(symbols=tuple((name, draw(st.integers(1, last))) for name in names), versions=tuple(versions))


@contextmanager
def loaded(path: Path, exports: Exports, soname: str = "libhollow-test.so.7") -> Iterator[ctypes.CDLL]:
    path.unlink(missing_ok=True)
    path.write_bytes(hollow_library(soname, exports, machine=MACHINE))
    library = ctypes.CDLL(str(path))
    try:
        yield library
    finally:
        _ctypes.dlclose(library._handle)


def address(library: ctypes.CDLL, name: str, version: str) -> int | None:
    find = ctypes.CDLL(None).dlvsym
    find.restype, find.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p]
    found: int | None = find(library._handle, name.encode(), version.encode())
    return found


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(exports=exports())
def test_the_loader_finds_each_name_in_its_version(tmp_path: Path, exports: Exports) -> None:
    with loaded(tmp_path / "a.so", exports) as library:
        for name, number in exports.symbols:
            assert library[name]() == 1
            versions = dict(enumerate(exports.versions, start=2))
            for other, version in versions.items():
                assert (address(library, name, version) is not None) == (other == number)
        with pytest.raises(AttributeError):
            library["no-such-name"]


@pytest.mark.parametrize("count", [0, 1, 20_000])
def test_few_names_and_many(tmp_path: Path, count: int) -> None:
    symbols = tuple((f"function_{index}", 2) for index in range(count))
    with loaded(tmp_path / "a.so", Exports(symbols=symbols, versions=("V",))) as library:
        for name, _ in symbols[:: max(count // 100, 1)]:
            assert library[name]() == 1
            assert address(library, name, "V") and not address(library, name, "W")
        assert not hasattr(library, f"function_{count}")


def test_who_asks_by_its_name_gets_it(tmp_path: Path) -> None:
    none = Exports(symbols=(), versions=())
    with pytest.raises(OSError, match=r"libasked-for\.so\.7"):
        ctypes.CDLL("libasked-for.so.7")
    with loaded(tmp_path / "another name.so", none, soname="libasked-for.so.7") as library:
        asked = ctypes.CDLL("libasked-for.so.7")
        assert asked._handle == library._handle
        _ctypes.dlclose(asked._handle)


@pytest.mark.parametrize(
    ("name", "tells"),
    [
        ("nvrtcGetErrorString", True),
        ("cublasLtGetStatusName", True),
        ("cusparseLtGetErrorName", True),
        ("nvrtcGetLoweredName", False),
        ("nvrtcAddNameExpression", False),
    ],
)
def test_what_a_status_means_is_text(tmp_path: Path, name: str, tells: bool) -> None:
    """Who gets a status that is no success asks for its meaning: 1 as the address of a text would end the process."""
    with loaded(tmp_path / "a.so", Exports(symbols=((name, 1),), versions=())) as library:
        function = library[name]
        if tells:
            function.restype = ctypes.c_char_p
            assert function(1) == b"peakmem stands in for this library: there is no GPU"
        else:
            assert function(1) == 1


@pytest.mark.parametrize(
    ("machine", "number", "one", "text"),
    [
        ("x86_64", 62, "b801000000c3", "488d0501000000c3"),
        ("aarch64", 183, "20008052c0035fd6", "40000010c0035fd6"),
    ],
)
def test_each_machine_has_its_header_and_its_code(machine: str, number: int, one: str, text: str) -> None:
    symbols = (("aGetErrorString", 1), ("b", 1))
    file = hollow_library("liba.so.1", Exports(symbols=symbols, versions=()), machine=machine)
    kind, found, _, _, segments_at = struct.unpack_from("<HHIQQ", file, 16)
    assert (kind, found) == (3, number)  # ET_DYN
    segments = [struct.unpack_from("<IIQQQQQQ", file, segments_at + 56 * index) for index in range(4)]
    load = [segment for segment in segments if segment[0] == 1]
    assert [segment[1] for segment in load] == [5, 6]  # read and execute; read and write
    assert all((segment[2] - segment[3]) % segment[7] == 0 for segment in load)
    assert load[1][3] // 0x10000 > (load[0][3] + load[0][6] - 1) // 0x10000  # not in one page, whatever its size
    code = 64 + 4 * 56
    assert file[code:].startswith(bytes.fromhex(one))
    assert file[code + 16 :].startswith(bytes.fromhex(text) + b"peakmem stands in")
    assert len(file) == load[1][2] + load[1][5]


def test_another_machine_has_none() -> None:
    with pytest.raises(KeyError):
        hollow_library("liba.so.1", Exports(symbols=(), versions=()), machine="ppc64le")
