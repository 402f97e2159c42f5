"""What loading CUDA's libraries takes of a process's host memory, where stand-ins took their place.

PyTorch is linked with these libraries, so they are in the watched process as they would be anyway. TensorFlow opens
them by name before it uses a GPU, and on the virtual GPU finds stand-ins. So they are loaded in a process of their own,
with the user's interpreter, and what becomes resident is measured.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

_NAMES = ("libcudart.so", "libcublasLt.so", "libcublas.so", "libcufft.so", "libnvJitLink.so", "libcusparse.so",
          "libcusolver.so")  # fmt: skip
"""In an order in which each finds those that it needs. cuDNN is not among them: the real one is loaded."""
_SECONDS = 60

# Runs in the other interpreter: standard library only.
_SCRIPT = r"""
import ctypes, json, sys
def resident():
    found = {}
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith(("RssAnon", "RssFile")):
                name, size = line.split(":")
                found[name] = int(size.split()[0]) * 1024
    return found
before = resident()
for path in sys.argv[1:]:
    try:
        ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    except OSError:
        continue
after = resident()
print("peakmem:" + json.dumps([after["RssAnon"] - before["RssAnon"], after["RssFile"] - before["RssFile"]]))
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedLibraries:
    """Resident memory of loaded libraries, bytes.

    Attributes:
        anonymous: pages that were written (relocations).
        file: pages of the files.
    """

    anonymous: int
    file: int


def loaded_libraries(python: str | os.PathLike[str], nvidia: Path) -> LoadedLibraries | None:
    """Load the libraries and measure; None where that can't be done.

    Args:
        python: the interpreter.
        nvidia: the folder of NVIDIA's packages in its site-packages.
    """
    found = [path for name in _NAMES for path in sorted(nvidia.glob(f"*/lib/{name}.*"))]
    if not found:
        return None
    variables = {key: value for key, value in os.environ.items() if key not in ("LD_PRELOAD", "PEAKMEM_SESSION")}
    try:
        done = subprocess.run(
            [os.fspath(python), "-c", _SCRIPT, *map(str, found)],
            env=variables, capture_output=True, text=True, timeout=_SECONDS, check=False,
        )  # fmt: skip
        line = next(line for line in done.stdout.splitlines() if line.startswith("peakmem:"))
        anonymous, file = json.loads(line.removeprefix("peakmem:"))
    except (OSError, subprocess.SubprocessError, StopIteration, ValueError):
        return None
    return LoadedLibraries(anonymous=int(anonymous), file=int(file))
