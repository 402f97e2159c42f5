"""Facts about the PyTorch of an interpreter, found without importing it there or here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peakmem.errors import PeakmemError

_INSTALL = (
    "install the CUDA build of PyTorch: `pip install torch` on Linux (no GPU is needed), or the command that "
    "https://pytorch.org/get-started/locally/ gives for CUDA"
)

# Runs in the other interpreter: standard library only, and the package is found but not imported.
_SCRIPT = r"""
import importlib.util, json, os, platform, sys
out = {"python": platform.python_version(), "machine": platform.machine(), "system": platform.system(), "torch": None}
out["libc"] = platform.libc_ver()
try:
    spec = importlib.util.find_spec("torch")
except Exception:
    spec = None
if spec is not None and spec.submodule_search_locations:
    folder = list(spec.submodule_search_locations)[0]
    facts = {}
    try:
        with open(os.path.join(folder, "version.py")) as f:
            exec(compile(f.read(), "version.py", "exec"), facts)
    except Exception as error:
        out["error"] = str(error)
    lib = os.path.join(folder, "lib")
    out["torch"] = {
        "folder": folder,
        "version": str(facts.get("__version__") or ""),
        "cuda": facts.get("cuda"),
        "hip": facts.get("hip"),
        "libraries": sorted(n for n in os.listdir(lib) if ".so" in n) if os.path.isdir(lib) else [],
    }
    try:
        from importlib import metadata
        for cuda in range(11, 20):
            try:
                out["cudnn"] = metadata.version("nvidia-cudnn-cu%d" % cuda)
            except metadata.PackageNotFoundError:
                continue
    except Exception:
        pass
print("peakmem:" + json.dumps(out))
"""


MACHINES = ("x86_64", "aarch64")
"""Architectures that peakmem's libraries are written for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TorchFacts:
    """What is known of an installed CUDA build of PyTorch.

    Attributes:
        python: path of the interpreter.
        python_version: its version, such as `3.11.2`.
        machine: `x86_64` or `aarch64`.
        version: of PyTorch, such as `2.14.1+cu130`.
        cuda: CUDA version it was built for, such as `13.0`.
        cudnn: version of the installed cuDNN wheel, or None where there is none (cuDNN may still come with PyTorch).
        folder: the package's folder.
    """

    python: Path
    python_version: str
    machine: str
    version: str
    cuda: str
    cudnn: str | None
    folder: Path

    @property
    def cuda_number(self) -> int:
        """The CUDA version as the runtime gives it: 1000 * major + 10 * minor."""
        major, _, minor = self.cuda.partition(".")
        return 1000 * int(major) + 10 * int(minor.split(".")[0] or 0)


def find_interpreter(python: str | os.PathLike[str] | None = None) -> Path:
    """The interpreter to look at: the given one, else the one that `python` means to the user's shell, else our own.

    Raises:
        PeakmemError: there is no interpreter of the given name.
    """
    if python is None:
        environment = os.environ.get("VIRTUAL_ENV") or os.environ.get("CONDA_PREFIX")
        candidate = Path(environment, "bin", "python") if environment else None
        return candidate if candidate is not None and candidate.exists() else Path(sys.executable)
    found = shutil.which(python)
    if found is None:
        raise PeakmemError(
            f"no interpreter {os.fspath(python)!r} was found",
            hint="give the path of a Python interpreter that has torch",
        )
    return Path(found)


def probe(python: str | os.PathLike[str] | None = None) -> TorchFacts:
    """Look at the PyTorch of an interpreter.

    Raises:
        PeakmemError: there is none, or it is no CUDA build for Linux.
    """
    interpreter = find_interpreter(python)
    return read_facts(look(interpreter), python=interpreter)


def look(interpreter: Path) -> dict[str, object]:
    """Run the probe in an interpreter.

    Raises:
        PeakmemError: it is no working one.
    """
    environment = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "PEAKMEM_SESSION")}
    try:
        done = subprocess.run(
            [interpreter, "-c", _SCRIPT], capture_output=True, text=True, timeout=60, env=environment, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeakmemError(
            f"{interpreter} could not be run: {error}", hint="give the path of a Python interpreter that has torch"
        ) from error
    lines = [line for line in done.stdout.splitlines() if line.startswith("peakmem:")]
    if done.returncode or not lines:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise PeakmemError(
            f"{interpreter} is no working Python interpreter: {last}",
            hint="give the path of a Python interpreter that has torch",
        )
    found: dict[str, object] = json.loads(lines[-1].removeprefix("peakmem:"))
    return found


def read_facts(found: dict[str, object], *, python: Path) -> TorchFacts:
    """Judge what the probe found in an interpreter.

    Raises:
        PeakmemError: there is no CUDA build of PyTorch for Linux.
    """
    machine = check_machine(found, what="the virtual GPU", elsewhere="on a Linux machine; no GPU is needed there")
    torch = torch_of(found, python=python, hint=_INSTALL)
    version = str(torch["version"])
    if torch["hip"]:
        raise PeakmemError(
            f"torch {version} of {python} is a ROCm build, for AMD GPUs",
            hint=_INSTALL + ", into an environment of its own",
        )
    if not torch["cuda"] or "libtorch_cuda.so" not in torch["libraries"]:
        raise PeakmemError(
            f"torch {version} of {python} is a CPU-only build", hint=_INSTALL + ", in place of the CPU-only one"
        )
    cudnn = found.get("cudnn")
    return TorchFacts(
        python=python,
        python_version=str(found["python"]),
        machine=machine,
        version=version,
        cuda=str(torch["cuda"]),
        cudnn=None if cudnn is None else str(cudnn),
        folder=Path(str(torch["folder"])),
    )


def check_machine(found: Mapping[str, object], *, what: str, elsewhere: str) -> str:
    """The machine's architecture, if peakmem's libraries can be there.

    Args:
        found: by the probe.
        what: is to work there, in words.
        elsewhere: where it works, after "in a Linux container, in WSL or".

    Raises:
        PeakmemError: they can't.
    """
    system, machine = str(found["system"]), str(found["machine"])
    if system != "Linux":
        name = "macOS" if system == "Darwin" else system
        raise PeakmemError(
            f"{what} works on Linux only, and this is {name}",
            hint=f"run peakmem in a Linux container, in WSL or {elsewhere}",
        )
    if machine not in MACHINES:
        raise PeakmemError(
            f"{what} works on x86-64 and aarch64 machines, and this is {machine}", hint="run peakmem on one of these"
        )
    return machine


def torch_of(found: Mapping[str, object], *, python: Path, hint: str) -> dict[str, Any]:
    """What the probe found of PyTorch.

    Raises:
        PeakmemError: there is none; `hint` says how to install it.
    """
    torch = found["torch"]
    if not isinstance(torch, dict):
        raise PeakmemError(f"{python} has no torch", hint=f"{hint}, into {python}")
    return torch
