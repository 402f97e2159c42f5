"""Compiling peakmem's native libraries, with the machine's C++ compiler or that of the `ziglang` wheel."""

from __future__ import annotations

import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from peakmem.errors import PeakmemError


@dataclass(frozen=True, kw_only=True, slots=True)
class Library:
    """A native library of peakmem's.

    Attributes:
        name: of the file.
        what: in words.
        sources: folder of the sources.
        prebuilt: folder of what came with the package.
        cache: name of its folder in the user's cache.
        aliases: names under which programs look for it.
        seconds: about how long the build takes.
        beside: makes what else goes into its folder, given that folder, one for what is on the way, and the library
            that came with the package, if it did.
    """

    name: str
    what: str
    sources: Path
    prebuilt: Path
    cache: str
    aliases: tuple[str, ...] = ()
    seconds: int = 15
    beside: Callable[[Path, Path, Path | None], None] | None = None


COMPILE_FLAGS = (
    "-O1",
    "-g1",
    "-std=c++17",
    "-fPIC",
    "-fvisibility=hidden",
    "-fvisibility-inlines-hidden",
    "-pthread",
    "-w",
)

# The library is loaded in front of every program of a session: it brings its C++ runtime along, hidden, so that none of
# the machine's gets in the way of the one PyTorch comes with. Compilers without a static one get the shared one.
LINK_FLAGS = ("-static-libstdc++", "-static-libgcc", "-Wl,--exclude-libs,ALL")

LINK_LIBRARIES = ("-ldl", "-lpthread")

Progress = Callable[[str], None]


def silent(_: str) -> None:
    """Say nothing."""


def source_files(folder: Path) -> tuple[Path, ...]:
    """The files that make up the library, by name."""
    return tuple(sorted(p for p in folder.iterdir() if p.suffix in (".cpp", ".h", ".def", ".map")))


def find_compiler() -> tuple[str, ...] | None:
    """The C++ compiler to use: `$CXX`, `c++`, `g++`, `clang++`, or the one of the `ziglang` wheel."""
    chosen = shlex.split(os.environ.get("CXX", ""))
    if chosen and shutil.which(chosen[0]):
        return tuple(chosen)
    for name in ("c++", "g++", "clang++"):
        path = shutil.which(name)
        if path:
            return (path,)
    if importlib.util.find_spec("ziglang") is not None:
        # For any glibc from 2.17 on, as manylinux2014 has it: the folder may be shared among machines.
        return (sys.executable, "-m", "ziglang", "c++", "-target", f"{platform.machine()}-linux-gnu.2.17")
    return None


def is_zig(compiler: Sequence[str] | None) -> bool:
    """Whether it is the `ziglang` wheel's compiler."""
    return compiler is not None and "ziglang" in compiler


def compile_library(
    output: Path,
    *,
    work: Path,
    progress: Progress | None = None,
    library: Library,
) -> None:
    """Compile the sources into one shared library.

    Args:
        output: the library to write.
        work: a folder for what comes in between; the caller removes it.
        progress: called with a line of text.
        library: which one.

    Raises:
        PeakmemError: there is no compiler, or it refuses the sources.
        OSError: the disk is full or can't be written.
    """
    say = progress or silent
    sources, compiler = library.sources, find_compiler()
    if compiler is None:
        raise PeakmemError(
            f"{library.what} has to be built once, and no C++ compiler was found (CXX, c++, g++, clang++)",
            hint="pip install 'peakmem[compiler]'",
        )
    units = [path for path in source_files(sources) if path.suffix == ".cpp"]
    objects = [work / f"{unit.stem}.o" for unit in units]
    duration = "some minutes" if is_zig(compiler) else f"about {library.seconds} s"
    say(f"building {library.what} (once, {duration}) with {' '.join(compiler)}")

    def compile_unit(unit: Path, result: Path) -> None:
        _run(
            [*compiler, *COMPILE_FLAGS, "-I", str(sources), "-c", str(unit), "-o", str(result)], work, what=library.what
        )

    with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
        for _ in pool.map(compile_unit, units, objects):
            pass
    exports = f"-Wl,--version-script={sources / 'exports.map'}"
    link = [*compiler, "-shared", "-o", str(output), f"-Wl,-soname,{library.name}", exports, *map(str, objects)]
    try:
        _run([*link, *LINK_FLAGS, *LINK_LIBRARIES], work, what=library.what)
    except PeakmemError:
        _run([*link, *LINK_LIBRARIES], work, what=library.what)


def compile_tensorflow_library(output: Path, *, library: Path, sources: Path, work: Path) -> None:
    """Compile what goes by the name of cuDNN in front of TensorFlow, which is linked with the library itself.

    Args:
        output: the library to write.
        library: what `compile_library` wrote.
        sources: the folder of the sources.
        work: a folder for what comes in between.

    Raises:
        PeakmemError: there is no compiler, or it refuses the sources.
    """
    compiler = find_compiler()
    if compiler is None or not sources.is_dir():
        return
    units = [str(path) for path in source_files(sources) if path.suffix == ".cpp"]
    link = ["-shared", "-o", str(output), *units, "-Wl,--no-as-needed", str(library), *LINK_LIBRARIES]
    _run([*compiler, *COMPILE_FLAGS, *link], work, what="the virtual GPU for TensorFlow")


def _run(command: Sequence[str], work: Path, *, what: str) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    environment |= {"TMPDIR": str(work), "ZIG_LOCAL_CACHE_DIR": str(work / "zig"), "LC_ALL": "C"}
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", env=environment, check=False)
    if done.returncode == 0:
        return
    if "No space left on device" in done.stderr:
        raise OSError(28, "No space left on device")
    if done.returncode < 0:
        raise PeakmemError(
            f"the compiler {command[0]} was stopped by signal {-done.returncode}",
            hint="run the command again; it needs about 1 GiB of memory",
        )
    first = next((line for line in done.stderr.splitlines() if "error" in line.lower()), done.stderr.strip()[:500])
    raise PeakmemError(
        f"the compiler {command[0]} could not build {what}: {first}",
        hint="a C++17 compiler is needed: set CXX to one, or `pip install 'peakmem[compiler]'` and set "
        "CXX='python -m ziglang c++'",
    )
