"""The PyTorch that an interpreter would import, found without importing it."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import msgspec

from peakmem.allocator.settings.findings import Platform
from peakmem.allocator.settings.version import REFERENCE, TorchVersion
from peakmem.errors import PeakmemError

PROBE = """
import importlib.metadata, importlib.util, json, os, re, sys
found = {"system": sys.platform, "version": None, "runtime": "cuda", "rocm": None}
try:
    found["version"] = importlib.metadata.version("torch")
except importlib.metadata.PackageNotFoundError:
    pass
spec = importlib.util.find_spec("torch")
if spec is not None and spec.origin:
    try:
        with open(os.path.join(os.path.dirname(spec.origin), "version.py"), encoding="utf-8") as file:
            text = file.read()
        version = re.search(r"^__version__ = ['\\"]([^'\\"]+)", text, re.M)
        hip = re.search(r"^hip(?:: [^=]*)? = ['\\"](\\d+)\\.(\\d+)", text, re.M)
        if version:
            found["version"] = version[1]
        if hip:
            found["runtime"], found["rocm"] = "rocm", [int(hip[1]), int(hip[2])]
    except OSError:
        pass
"""
"""Python code that leaves what it found in `found`; standard library only, torch is not imported."""


@dataclass(frozen=True, kw_only=True, slots=True)
class InstalledTorch:
    """A PyTorch found on this machine, or assumed.

    Attributes:
        version: its version; the reference version where none was found.
        platform: operating system and runtime.
        found: whether it was found (else assumed).
        where: the interpreter asked, or why nothing was found, for people.
    """

    version: TorchVersion
    platform: Platform
    found: bool
    where: str


class _Found(msgspec.Struct):
    system: str
    version: str | None
    runtime: str
    rocm: tuple[int, int] | None


def from_probe(data: bytes | str, where: str) -> InstalledTorch:
    """Read what PROBE found (JSON)."""
    found = msgspec.json.decode(data, type=_Found)
    system = {"win32": "windows", "cygwin": "windows"}.get(found.system, found.system)
    platform = Platform(system=system, runtime=found.runtime, rocm=found.rocm)
    if found.version is None:
        return InstalledTorch(version=REFERENCE, platform=platform, found=False, where=f"no torch in {where}")
    return InstalledTorch(version=TorchVersion.parse(found.version), platform=platform, found=True, where=where)


def torch_of(interpreter: str) -> InstalledTorch:
    """Ask a Python interpreter (a path or a name on PATH) for its torch; takes about 0.1 s."""
    try:
        done = subprocess.run(
            [interpreter, "-c", PROBE + "\nprint(json.dumps(found))"],
            capture_output=True,
            check=True,
            timeout=60,
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
        )
        return from_probe(done.stdout.splitlines()[-1], interpreter)
    except (OSError, subprocess.SubprocessError, msgspec.DecodeError, IndexError):
        return InstalledTorch(
            version=REFERENCE, platform=Platform(), found=False, where=f"{interpreter} could not be asked"
        )


def interpreter_of(command: tuple[str, ...]) -> str:
    """The Python interpreter that a command starts: itself, the one of its first line (#!), or `python` on PATH.

    Raises:
        PeakmemError: there is no such program.
    """
    program = shutil.which(command[0])
    if program is None:
        raise PeakmemError(f"there is no program {command[0]!r}", hint="check the spelling, or give its path")
    if Path(program).name.startswith(("python", "pypy")):
        return program
    with Path(program).open("rb") as file:
        first = file.readline(256)
    if first.startswith(b"#!"):
        words = first[2:].decode(errors="replace").split()
        words = words[1:] if words and Path(words[0]).name == "env" else words
        if words and Path(words[0]).name.startswith("python"):
            return words[0]
    for word in command[1:]:
        if Path(word).name.startswith("python") and shutil.which(word):
            return word
    return shutil.which("python") or shutil.which("python3") or "python3"
