"""From what stands on the command line to the command that is started."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from peakmem.errors import PeakmemError


def resolve(words: tuple[str, ...], *, module: bool = False) -> tuple[str, ...]:
    """The command to start.

    Args:
        words: `python train.py --lr 1`, `train.py --lr 1`, `torchrun train.py`, or with `module` the name of a module
            and its arguments.
        module: whether the first word is the name of a Python module, as in `python -m`.

    Raises:
        PeakmemError: there is no command, or its script or program does not exist.
    """
    if not words:
        raise PeakmemError("there is no command to run", hint="peakmem run train.py, or peakmem run -- python train.py")
    if module:
        return (sys.executable, "-m", *words)
    first = words[0]
    if first.endswith(".py"):
        if not Path(first).is_file():
            raise PeakmemError(f"there is no file {first}", hint=_similar(first))
        return (sys.executable, *words)
    if first.endswith(".ipynb"):
        raise PeakmemError(
            f"{first} is a notebook",
            hint=f"jupyter nbconvert --to script {first}, then peakmem run on the .py file",
        )
    if shutil.which(first) is None:
        raise PeakmemError(
            f"there is no program {first!r}", hint="peakmem run train.py, or peakmem run -- python train.py"
        )
    return words


def interpreter(command: tuple[str, ...]) -> str:
    """The Python interpreter whose torch the command will use.

    A Python named by the command itself; for a console script (`torchrun`, `accelerate`) the interpreter of its first
    line; else the first `python` in the path; else our own.
    """
    program = shutil.which(command[0]) or command[0]
    name = Path(program).name
    if name.startswith(("python", "pypy")):
        return program
    try:
        with Path(program).open("rb") as file:
            line = file.readline(512)
    except OSError:
        line = b""
    if line.startswith(b"#!") and b"python" in line:
        candidate = line[2:].split()[0].decode("utf-8", "replace")
        if Path(candidate).name.startswith("python") and shutil.which(candidate):
            return candidate
    return shutil.which("python") or shutil.which("python3") or sys.executable


def _similar(path: str) -> str:
    import difflib

    folder = Path(path).parent
    names = [entry.name for entry in folder.glob("*.py")] if folder.is_dir() else []
    near = difflib.get_close_matches(Path(path).name, names, n=1)
    if near:
        return f"did you mean {folder / near[0]}?"
    return f"the folder {folder.resolve()} has no such file" if folder.is_dir() else f"there is no folder {folder}"
