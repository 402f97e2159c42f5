"""The library that watches malloc and leaves out computing, and the environment that puts it in place."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from peakmem.errors import PeakmemError
from peakmem.vgpu.build import ensure_library
from peakmem.vgpu.compiling import Library
from peakmem.vgpu.probe import check_machine, find_interpreter, look, torch_of

HOST = Library(
    name="libpeakmem_host.so",
    what="the library that watches malloc",
    sources=Path(__file__).parent / "native",
    prebuilt=Path(__file__).parent / "prebuilt",
    cache="host",
    seconds=5,
)
_OTHER_MALLOCS = ("jemalloc", "tcmalloc", "mimalloc", "libhoard", "snmalloc")


@dataclass(frozen=True, kw_only=True, slots=True)
class CpuFacts:
    """What is known of an installed PyTorch that is to train on the CPU.

    Attributes:
        python: path of the interpreter.
        machine: `x86_64` or `aarch64`.
        version: of PyTorch.
        folder: the package's folder.
        libc: "glibc 2.36".
    """

    python: Path
    machine: str
    version: str
    folder: Path
    libc: str


def probe_cpu(python: str | os.PathLike[str] | None = None) -> CpuFacts:
    """Look at the PyTorch of an interpreter, of whatever build.

    Raises:
        PeakmemError: there is none, or the machine or the build is not one that this works on.
    """
    interpreter = find_interpreter(python)
    return read_cpu_facts(look(interpreter), python=interpreter)


def read_cpu_facts(found: Mapping[str, object], *, python: Path) -> CpuFacts:
    """Judge what the probe found in an interpreter.

    Raises:
        PeakmemError: memory of training on the CPU can't be forecast there.
    """
    machine = check_machine(found, what="--device cpu", elsewhere="on a Linux machine like the one that will train")
    name, version = _pair(found.get("libc"))
    if name != "glibc":
        raise PeakmemError(
            f"{python} does not use glibc, whose malloc decides what memory a process keeps (musl, as on Alpine?)",
            hint="use a Python for glibc, such as the images python:3.12-slim",
        )
    torch = torch_of(found, python=python, hint="--device cpu works with PyTorch and TensorFlow: pip install torch")
    if not any("libtorch_cpu.so" in name for name in torch["libraries"]):
        raise PeakmemError(f"torch {torch['version']} of {python} has no libtorch_cpu.so", hint="pip install torch")
    if not _calls_gomp(Path(str(torch["folder"])) / "lib" / "libtorch_cpu.so"):
        raise PeakmemError(
            f"torch {torch['version']} of {python} does not compute by a shared libgomp (OpenMP linked in, or Intel's)",
            hint="--device cpu knows the wheels of PyPI and of download.pytorch.org: pip install torch",
        )
    other = next((name for name in _OTHER_MALLOCS if name in os.environ.get("LD_PRELOAD", "")), None)
    if other is not None:
        raise PeakmemError(
            f"LD_PRELOAD names another malloc ({other}), and --device cpu knows how glibc's keeps memory",
            hint="unset LD_PRELOAD",
        )
    return CpuFacts(
        python=python,
        machine=machine,
        version=str(torch["version"]),
        folder=Path(str(torch["folder"])),
        libc=f"glibc {version}",
    )


def _pair(value: object) -> tuple[str, str]:
    if isinstance(value, (list, tuple)) and len(value) == 2:
        return str(value[0]), str(value[1])
    return "", ""


def _calls_gomp(library: Path) -> bool:
    from peakmem.vgpu.elf import asks_for

    try:
        return asks_for(library, "GOMP_parallel")
    except (OSError, ValueError):
        return False


def environment(library: Path, *, base: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of a program whose training on the CPU is to be watched.

    Args:
        library: what `ensure_host_library` gave.
        base: the environment to start from.
    """
    variables = dict(base)
    preload = library.name if any(c.isspace() for c in str(library)) else str(library)
    variables["LD_PRELOAD"] = " ".join(filter(None, (preload, variables.get("LD_PRELOAD", ""))))
    if preload == library.name:
        variables["LD_LIBRARY_PATH"] = ":".join(
            filter(None, (str(library.parent), variables.get("LD_LIBRARY_PATH", "")))
        )
    variables["CUDA_VISIBLE_DEVICES"] = ""  # the script is to find no card
    return variables


def ensure_host_library(progress: Callable[[str], None] | None = None) -> Path:
    """Give the path of the built library; builds it if it is not there yet.

    Raises:
        PeakmemError: there is no compiler, or it fails.
    """
    return ensure_library(progress=progress, library=HOST)
