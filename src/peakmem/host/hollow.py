"""Hollow libraries: what `import torch` loads of CUDA for training on the CPU, in a form that takes no memory.

A CUDA build of PyTorch loads libraries for a GPU that is not there, and their constructors run: 224 of the 510 MiB that
2.14.1 holds after its import, and 99 of the 129 MiB that it touches when it unloads them. None of them is called where
no GPU is seen. A forecast loads libraries that have the same names and nothing behind them, and adds what the real ones
take: a process that loads these alone finds it out, in 0.1 s, once for each installation. The sum is that of PyTorch
with the real ones: 286 + 224 = 510 MiB after its import, 31.6 + 103.5 = 135.1 MB at its end, where 135.0 were measured.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import platformdirs

from peakmem.host.library import CpuFacts, environment

STEMS = ("libcublasLt", "libnvJitLink", "libnvrtc", "libcusparseLt", "libcufft")
"""Those that hold most: 60, 31, 27, 5 and 3 MiB of files and as much again of their own (PyTorch 2.14.1, CUDA 13.0)."""
_SECONDS = 60
_FORMAT = 2  # of what is kept
_PROBE = """
import ctypes, sys

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1])

ctypes.CDLL("libstdc++.so.6")
before = resident()
for path in sys.argv[2:]:
    ctypes.CDLL(path)
print(resident() - before)
ctypes.CDLL(None).peakmem_host_tell_at_end(sys.argv[1].encode(), 0)
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Hollow:
    """Libraries that stand in for others, and what those would take.

    Attributes:
        libraries: paths of the hollow ones, by the names that others ask for.
        resident: bytes that the real ones hold once they are loaded.
        touched: bytes of the real ones' files that become resident when they are unloaded.
        torch: folder of the PyTorch that loads them; another one may load others.
    """

    libraries: Mapping[str, str]
    resident: int
    touched: int
    torch: str = ""


NOTHING = Hollow(libraries={}, resident=0, touched=0)


def ensure_hollow(facts: CpuFacts, host_library: Path) -> Hollow:
    """Write the hollow libraries of an installation, and measure the real ones, unless that was done.

    Where it can't be done the real ones are loaded, which costs memory and changes nothing else.

    Args:
        facts: the PyTorch.
        host_library: what `ensure_host_library` gave.
    """
    real = libraries_of(facts.folder.parent)
    if not real:
        return NOTHING
    try:
        folder = Path(platformdirs.user_cache_dir("peakmem", appauthor=False)) / "hollow" / _identity(real, facts)
        found = _read(folder)
        if found is None:
            _make(folder, real, facts, host_library)
            found = _read(folder)
    except (OSError, ValueError, KeyError, subprocess.SubprocessError, RuntimeError):  # the last: links in a circle
        return NOTHING
    return NOTHING if found is None else replace(found, torch=str(facts.folder))


def libraries_of(packages: Path) -> tuple[Path, ...]:
    """NVIDIA's libraries in a folder of packages that are worth it; those that are there once only."""
    found = []
    for stem in STEMS:
        there = [
            path
            for path in packages.glob(f"nvidia/*/lib/{stem}.so.*")
            if re.fullmatch(rf"{re.escape(stem)}\.so\.\d+", path.name)
        ]
        if len(there) == 1:
            found += there
    return tuple(found)


def _identity(real: tuple[Path, ...], facts: CpuFacts) -> str:
    facts_of_files = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in real]
    return sha256(json.dumps([_FORMAT, facts_of_files, str(facts.python), facts.libc]).encode()).hexdigest()[:24]


def _read(folder: Path) -> Hollow | None:
    """What is kept in a folder; None where something is missing, or not as it was written."""
    folder = folder.resolve()  # the kernel tells of mapped files without links
    try:
        found = json.loads((folder / "sizes.json").read_text(encoding="utf-8"))
        libraries = {name: folder / name for name in found["libraries"]}
        # The loader maps what a file says of itself: of a shorter one it would fail in the middle of the script.
        if any(path.stat().st_size != found["libraries"][name] for name, path in libraries.items()):
            return None
        return Hollow(
            libraries={name: str(path) for name, path in libraries.items()},
            resident=int(found["resident"]),
            touched=int(found["touched"]),
        )
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _make(folder: Path, real: tuple[Path, ...], facts: CpuFacts, host_library: Path) -> None:
    from peakmem.host.hollow_elf import hollow_library
    from peakmem.vgpu.elf import exports

    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as made:  # first of all: where nothing can be kept, nothing is
        lengths = {}
        for path in real:
            given = exports(path)
            if not given.symbols:
                raise ValueError(f"{path} does not tell its names")
            lengths[path.name] = (Path(made) / path.name).write_bytes(
                hollow_library(path.name, given, machine=facts.machine)
            )
        resident, touched = _measured(real, facts, host_library)
        sizes = {"libraries": lengths, "resident": resident, "touched": touched}
        (Path(made) / "sizes.json").write_text(json.dumps(sizes), encoding="utf-8")
        folder.mkdir(exist_ok=True)
        for path in sorted(Path(made).iterdir()):  # `sizes.json`, which says that all is there, comes last
            path.replace(folder / path.name)


def _measured(real: tuple[Path, ...], facts: CpuFacts, host_library: Path) -> tuple[int, int]:
    """What they hold once loaded, and touch when unloaded: of the second of two, since the first reads from disk."""
    variables = environment(host_library, base={k: v for k, v in os.environ.items() if k != "LD_PRELOAD"})
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "left.json"
        command = [str(facts.python), "-I", "-S", "-c", _PROBE, str(told), *map(str, real)]
        for _ in range(2):
            done = subprocess.run(
                command, env=variables, capture_output=True, text=True, timeout=_SECONDS, check=True, cwd=folder
            )
        touched = json.loads(told.read_text(encoding="utf-8"))["touched"]
    return int(done.stdout) * os.sysconf("SC_PAGE_SIZE"), int(touched)
