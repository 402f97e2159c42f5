"""TensorFlow that trains on the CPU: what is known of it, and the library that spares its large tensors' memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from peakmem.errors import PeakmemError
from peakmem.host.library import CpuFacts, environment
from peakmem.vgpu.build import ensure_library
from peakmem.vgpu.compiling import Library
from peakmem.vgpu.probe import check_machine
from peakmem.vgpu.tensorflow import look_for_tensorflow

TENSORFLOW_HOST = Library(
    name="libpeakmem_tensorflow_host.so",
    what="the library that follows TensorFlow's allocators",
    sources=Path(__file__).parent / "native_tensorflow",
    prebuilt=Path(__file__).parent / "prebuilt_tensorflow",
    cache="tensorflow-host",
    seconds=5,
)
MOST_BYTES = "TF_MKL_ALLOC_MAX_BYTES"
NO_LIMIT = 2**46
"""What TensorFlow's allocator may take, bytes: its default is the machine's memory, which binds no forecast."""
_ALLOCATORS = ("_ZN3tsl12BFCAllocator11AllocateRawEmmRKNS_20AllocationAttributesE", "_ZN3tsl4port11AlignedFreeEPv")


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorflowCpuFacts(CpuFacts):
    """What is known of an installed TensorFlow, of whatever build, that is to train on the CPU."""


def has_tensorflow(python: str | os.PathLike[str]) -> bool:
    """Whether an interpreter has TensorFlow."""
    return bool((look_for_tensorflow(python) or {}).get("tensorflow"))


def probe_tensorflow_cpu(python: str | os.PathLike[str]) -> TensorflowCpuFacts:
    """Look at the TensorFlow of an interpreter.

    Raises:
        PeakmemError: there is none, or memory of training on the CPU can't be forecast there.
    """
    return read_tensorflow_cpu(look_for_tensorflow(python) or {}, python=Path(python))


def read_tensorflow_cpu(found: Mapping[str, object], *, python: Path) -> TensorflowCpuFacts:
    """Judge what was found in an interpreter.

    Raises:
        PeakmemError: there is no TensorFlow, or none that this works with.
    """
    if not found.get("tensorflow"):
        raise PeakmemError(f"{python} has no tensorflow", hint=f"pip install tensorflow, into {python}")
    machine = check_machine(found, what="--device cpu", elsewhere="on a Linux machine like the one that will train")
    folder, version = Path(str(found["tensorflow"])), str(found.get("version") or "?")
    if not exports_allocators(folder / "libtensorflow_framework.so.2"):
        raise PeakmemError(
            f"the allocators of tensorflow {version} of {python} can't be followed: it does not export them",
            hint="--device cpu knows the wheels of PyPI, from 2.17 on: pip install tensorflow",
        )
    libc = found.get("libc")
    name, number = libc if isinstance(libc, (list, tuple)) and len(libc) == 2 else ("", "")
    return TensorflowCpuFacts(
        python=python,
        machine=machine,
        version=version,
        folder=folder,
        libc=f"{name} {number}".strip(),
    )


def exports_allocators(library: Path) -> bool:
    """Whether a library has the functions that `native_tensorflow` stands in front of."""
    from peakmem.vgpu.elf import dynamic_symbols

    try:
        defined = dynamic_symbols(library).defined
    except (OSError, ValueError):
        return False
    return all(name in defined for name in _ALLOCATORS)


def environment_of_tensorflow(library: Path, *, base: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of a program that trains with TensorFlow on the CPU and is to be watched.

    Args:
        library: what `ensure_tensorflow_library` gave.
        base: the environment to start from.
    """
    variables = environment(library, base=base)
    variables.setdefault(MOST_BYTES, str(NO_LIMIT))
    return variables


def ensure_tensorflow_library(progress: Callable[[str], None] | None = None) -> Path:
    """Give the path of the built library; builds it if it is not there yet.

    Raises:
        PeakmemError: there is no compiler, or it fails.
    """
    return ensure_library(progress=progress, library=TENSORFLOW_HOST)
