"""Hollow libraries of an installation: made once, made anew if damaged, done without where none can be made."""

from __future__ import annotations

import ctypes
import json
import platform
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from peakmem.host import hollow
from peakmem.host.hollow import NOTHING, ensure_hollow, libraries_of
from peakmem.host.library import HOST, CpuFacts, ensure_host_library
from peakmem.vgpu import build, compiling


@pytest.fixture(scope="module")
def host_library() -> Path:
    if build.find_prebuilt(library=HOST) is None and compiling.find_compiler() is None:
        pytest.skip("no C++ compiler")
    return ensure_host_library()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "peakmem" / "hollow"


def libm() -> Path:
    ctypes.CDLL("libm.so.6")
    maps = Path("/proc/self/maps").read_text().splitlines()
    return next(Path(line.split(maxsplit=5)[5]) for line in maps if "/libm.so.6" in line or "/libm-2." in line)


def put(packages: Path, *names: str) -> None:
    """Libraries of the machine under other names."""
    for name in names:
        path = packages / "nvidia" / "a" / "lib" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(libm().read_bytes())


@pytest.fixture
def facts(tmp_path: Path) -> CpuFacts:
    packages = tmp_path / "a folder with blanks é"
    put(packages, "libcufft.so.11")
    return CpuFacts(
        python=Path(sys.executable),
        machine=platform.machine(),
        version="2.14.1",
        folder=packages / "torch",
        libc="glibc 2.36",
    )


def test_only_what_is_there_once_is_found(tmp_path: Path) -> None:
    assert libraries_of(tmp_path) == ()
    put(
        tmp_path,
        "libcufft.so.11",
        "libnvrtc-builtins.so.13.0",
        "libnvrtc.alt.so.13",
        "libcufftw.so.11",
        "libcudnn.so.9",
    )
    assert [path.name for path in libraries_of(tmp_path)] == ["libcufft.so.11"]
    put(tmp_path, "libnvrtc.so.13")
    assert [path.name for path in libraries_of(tmp_path)] == ["libnvrtc.so.13", "libcufft.so.11"]
    put(tmp_path, "libcufft.so.12")
    assert [path.name for path in libraries_of(tmp_path)] == ["libnvrtc.so.13"]


def test_they_are_made_once(cache: Path, facts: CpuFacts, host_library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = ensure_hollow(facts, host_library)
    assert list(made.libraries) == ["libcufft.so.11"]
    path = Path(made.libraries["libcufft.so.11"])
    assert ctypes.CDLL(str(path)).ceil() == 1
    assert path.stat().st_size < libm().stat().st_size
    assert 4096 <= made.resident < 2 * 2**20
    assert made.torch == str(facts.folder)
    assert sorted(path.name for path in next(cache.iterdir()).iterdir()) == ["libcufft.so.11", "sizes.json"]
    monkeypatch.setattr("subprocess.run", lambda *args, **kwargs: pytest.fail("it was measured again"))
    assert ensure_hollow(facts, host_library) == made


@pytest.mark.parametrize("damage", ["{", "[]", "{}", '{"libraries": {"a": 1}, "resident": 1, "touched": 1}', "null"])
def test_what_is_damaged_is_made_again(cache: Path, facts: CpuFacts, host_library: Path, damage: str) -> None:
    made = ensure_hollow(facts, host_library)
    (next(cache.iterdir()) / "sizes.json").write_text(damage)
    again = ensure_hollow(facts, host_library)
    assert again.libraries == made.libraries
    assert json.loads((next(cache.iterdir()) / "sizes.json").read_text())["resident"] == again.resident > 0


@pytest.mark.parametrize("harm", ["gone", "shorter"])
def test_a_library_that_is_not_whole_is_made_again(cache: Path, facts: CpuFacts, host_library: Path, harm: str) -> None:
    library = Path(ensure_hollow(facts, host_library).libraries["libcufft.so.11"])
    whole = library.read_bytes()
    library.unlink()
    if harm == "shorter":
        library.write_bytes(whole[:100])
    ensure_hollow(facts, host_library)
    assert library.read_bytes() == whole


def test_there_are_none_where_none_can_be_made(
    cache: Path, facts: CpuFacts, host_library: Path, tmp_path: Path
) -> None:
    assert ensure_hollow(replace(facts, folder=tmp_path / "elsewhere" / "torch"), host_library) == NOTHING
    assert ensure_hollow(replace(facts, python=tmp_path / "no-python"), host_library) == NOTHING
    assert ensure_hollow(replace(facts, python=Path("/bin/false")), host_library) == NOTHING
    assert ensure_hollow(replace(facts, machine="ppc64le"), host_library) == NOTHING
    real = libraries_of(facts.folder.parent)[0]
    real.write_bytes(real.read_bytes()[:200])
    assert ensure_hollow(facts, host_library) == NOTHING
    assert not list(cache.glob("*/*")), "nothing half-made is left"


def test_a_cache_that_is_in_the_way_is_no_fault(cache: Path, facts: CpuFacts, host_library: Path) -> None:
    cache.parent.mkdir(parents=True)
    cache.write_text("a file")
    assert ensure_hollow(facts, host_library) == NOTHING


def test_where_nothing_can_be_kept_nothing_is_measured(
    cache: Path, facts: CpuFacts, host_library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each forecast would do it again."""
    monkeypatch.setattr(hollow, "_measured", lambda *args: pytest.fail("it was measured"))
    cache.parent.mkdir(parents=True)
    cache.write_text("a file")
    assert ensure_hollow(facts, host_library) == NOTHING


def test_a_disk_that_is_full(cache: Path, facts: CpuFacts, host_library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = Path.write_bytes

    def write_half(path: Path, data: bytes) -> int:
        write(path, data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", write_half)
    assert ensure_hollow(facts, host_library) == NOTHING
    assert list(cache.iterdir()) == []


def test_a_cache_behind_a_link_is_told_without_it(
    cache: Path, facts: CpuFacts, host_library: Path, tmp_path: Path
) -> None:
    """The kernel tells of mapped files that way."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "cache").symlink_to(tmp_path / "disk")
    found = ensure_hollow(facts, host_library)
    assert Path(found.libraries["libcufft.so.11"]).is_relative_to(tmp_path.resolve() / "disk")


def test_many_at_once_agree(cache: Path, facts: CpuFacts, host_library: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: ensure_hollow(facts, host_library), range(4)))
    assert all(one.libraries == found[0].libraries != {} for one in found)
    assert len(list(cache.iterdir())) == 1


def test_a_host_library_in_a_folder_with_blanks(
    cache: Path, facts: CpuFacts, host_library: Path, tmp_path: Path
) -> None:
    copied = tmp_path / "my library" / host_library.name
    copied.parent.mkdir()
    copied.write_bytes(host_library.read_bytes())
    assert ensure_hollow(facts, copied).resident > 0
