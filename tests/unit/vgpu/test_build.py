"""Building and caching, with a compiler that takes no time: a script that writes what it is asked for."""

from __future__ import annotations

import multiprocessing
import os
import platform
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from peakmem.errors import PeakmemError
from peakmem.host.library import HOST
from peakmem.host.tensorflow import TENSORFLOW_HOST
from peakmem.vgpu import build, compiling


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    monkeypatch.setattr(build, "PREBUILT", tmp_path / "prebuilt")
    monkeypatch.setattr(build.find_prebuilt, "__defaults__", (tmp_path / "prebuilt",))
    return folder / "peakmem" / "vgpu"


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiler that notes each call in a file beside it."""
    return write_compiler(tmp_path / "fake-c++", monkeypatch)


def write_compiler(path: Path, monkeypatch: pytest.MonkeyPatch, *, fails: str = "") -> Path:
    action = f"echo '{fails}' >&2; exit 1" if fails else 'echo built > "$2"; exit 0'
    path.write_text(
        f'#!/bin/sh\necho "$*" >> {path}.calls\nwhile [ $# -gt 0 ]; do\n'
        f'  if [ "$1" = -o ]; then {action}; fi\n  shift\ndone\nexit 2\n'
    )
    path.chmod(0o755)
    monkeypatch.setenv("CXX", str(path))
    return path


def calls(compiler: Path) -> list[str]:
    return Path(f"{compiler}.calls").read_text().splitlines()


def test_the_library_is_built_once_and_found_again(cache: Path, compiler: Path) -> None:
    said: list[str] = []
    library = build.ensure_library(progress=said.append)
    assert library == cache / build.source_hash() / build.LIBRARY
    assert library.read_text() == "built\n"
    units = [path for path in compiling.source_files(build.NATIVE) if path.suffix == ".cpp"]
    assert len(calls(compiler)) == len(units) + 2  # linked, and once more for what stands in front of TensorFlow
    assert said == [f"building the virtual GPU (once, about 15 s) with {compiler}"]
    for alias in build.ALIASES:
        assert (library.parent / alias).samefile(library)
    for alias in build.TENSORFLOW_ALIASES:
        assert (library.parent / build.TENSORFLOW / alias).samefile(library)
    assert (library.parent / build.TENSORFLOW / build.TENSORFLOW_CUDNN).read_text() == "built\n"
    assert build.ensure_library() == library
    assert len(calls(compiler)) == len(units) + 2
    assert not list(cache.glob("*.building-*"))


def test_sources_flags_and_machine_make_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.cpp").write_text("int a;")
    first = build.source_hash(tmp_path)
    (tmp_path / "notes.txt").write_text("not a source")
    assert build.source_hash(tmp_path) == first
    (tmp_path / "b.h").write_text("")
    second = build.source_hash(tmp_path)
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    third = build.source_hash(tmp_path)
    monkeypatch.setattr(build, "COMPILE_FLAGS", ("-O3",))
    assert len({first, second, third, build.source_hash(tmp_path)}) == 4


def test_what_a_killed_build_left_is_removed(cache: Path, compiler: Path) -> None:
    key = build.source_hash()
    (cache / key).mkdir(parents=True)
    (cache / key / build.LIBRARY).write_text("half")  # no aliases: not complete
    (cache / f"{key}.building-old").mkdir()
    assert build.ensure_library().read_text() == "built\n"
    assert not list(cache.glob("*.building-*"))


def _build(results: multiprocessing.Queue[str]) -> None:
    results.put(build.ensure_library().read_text())


def test_two_processes_build_once(cache: Path, compiler: Path) -> None:
    context = multiprocessing.get_context("fork")
    results: multiprocessing.Queue[str] = context.Queue()
    workers = [context.Process(target=_build, args=(results,)) for _ in range(3)]
    for worker in workers:
        worker.start()
    assert [results.get(timeout=60) for _ in workers] == ["built\n"] * 3
    for worker in workers:
        worker.join()
    assert sum("-shared" in call for call in calls(compiler)) == 2


def test_without_a_compiler_one_message_says_what_to_install(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(compiling.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(PeakmemError) as error:
        build.ensure_library()
    assert "no C++ compiler was found" in error.value.message
    assert error.value.hint == "pip install 'peakmem[compiler]'"


def test_compilers_are_tried_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(compiling.importlib.util, "find_spec", lambda name: object() if name == "ziglang" else None)
    for name in ("clang++", "g++", "c++"):
        monkeypatch.delenv("CXX", raising=False)
        if name == "clang++":
            found = compiling.find_compiler()
            assert found is not None
            assert found[:4] == (sys.executable, "-m", "ziglang", "c++")
            assert compiling.is_zig(found)
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
        assert compiling.find_compiler() == (str(tmp_path / name),)
    monkeypatch.setenv("CXX", "g++ -m64")
    assert compiling.find_compiler() == ("g++", "-m64")
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert compiling.find_compiler() == (str(tmp_path / "c++"),)


def test_a_compiler_that_refuses_is_quoted(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_compiler(tmp_path / "old-c++", monkeypatch, fails="x.cpp:1: error: unknown type")
    with pytest.raises(PeakmemError, match=r"could not build the virtual GPU: x\.cpp:1: error: unknown type"):
        build.ensure_library()
    assert not list(cache.glob("*.building-*"))
    with pytest.raises(PeakmemError, match="could not build the library that watches malloc: "):
        build.ensure_library(library=HOST)


def test_a_full_disk_sends_the_build_to_the_temporary_folder(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_compiler(tmp_path / "full-c++", monkeypatch, fails="error: No space left on device")
    monkeypatch.setattr(build.tempfile, "gettempdir", lambda: str(tmp_path / "other"))
    with pytest.raises(PeakmemError) as error:  # that one is full too
        build.ensure_library()
    assert str(cache) in error.value.message
    assert str(tmp_path / "other") in error.value.message


def test_a_cache_that_cant_be_written_falls_back_with_a_warning(
    compiler: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(build.tempfile, "gettempdir", lambda: str(tmp_path / "other"))
    with pytest.warns(RuntimeWarning, match="where it may be lost"):
        library = build.ensure_library()
    assert library.is_relative_to(tmp_path / "other")


def test_a_prebuilt_library_is_used_only_for_these_sources(cache: Path, compiler: Path, tmp_path: Path) -> None:
    folder = tmp_path / "prebuilt" / platform.machine()
    folder.mkdir(parents=True)
    (folder / build.LIBRARY).write_text("prebuilt\n")
    (folder / "source-hash").write_text("another\n")
    assert build.find_prebuilt() is None
    (folder / "source-hash").write_text(build.source_hash() + "\n")
    assert build.ensure_library().read_text() == "prebuilt\n"
    assert not Path(f"{compiler}.calls").exists()


@pytest.mark.parametrize("library", [build.VGPU, HOST, TENSORFLOW_HOST], ids=lambda library: library.cache)
def test_what_a_wheel_brings_is_found_by_what_it_was_built_from(
    library: compiling.Library, compiler: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "wheel" / platform.machine()
    made = build.make_prebuilt(library, folder, progress=lambda text: None)
    assert {path.name for path in made} >= {library.name, build.SOURCE_HASH}
    for path in folder.iterdir():
        if path not in made:
            path.unlink()
    assert build.find_prebuilt(library=replace(library, prebuilt=tmp_path / "wheel")) == folder / library.name


def test_builds_that_nothing_uses_any_more_are_removed(tmp_path: Path) -> None:
    keep, day = tmp_path / ("a" * 24), build.DAY
    ages = {"b": 0.1, "c": 2.0, "d": 3.0, "e": 4.0, "f": 5.0, "0": 6.0, "1": 31.0}
    for letter, days in {"a": 0.0, **ages}.items():
        folder = tmp_path / (letter * 24)
        folder.mkdir()
        (tmp_path / f"{folder.name}.lock").touch()
        os.utime(folder, (time.time() - days * day,) * 2)
    (tmp_path / "something else").mkdir()
    build._prune(tmp_path, keep=keep)
    left = {path.name[0] for path in tmp_path.iterdir() if path.name.endswith(".lock")}
    assert left == {"a", "b", "c", "d", "e"}
    assert {path.name[0] for path in tmp_path.iterdir() if len(path.name) == 24} == left
    assert (tmp_path / "something else").is_dir()


def test_a_use_is_noted_once_a_day(tmp_path: Path) -> None:
    old = time.time() - 2 * build.DAY
    os.utime(tmp_path, (old, old))
    build._note_use(tmp_path)
    noted = tmp_path.stat().st_mtime
    assert noted > time.time() - 60
    os.utime(tmp_path, (noted - 60, noted - 60))
    build._note_use(tmp_path)
    assert tmp_path.stat().st_mtime == pytest.approx(noted - 60)
