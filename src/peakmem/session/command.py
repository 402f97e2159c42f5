"""From what stands on the command line to the command that is started."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from peakmem.errors import PeakmemError

RUN_NOTEBOOK = Path(__file__).parent / "inside" / "run_notebook.py"
_FRAMEWORKS = ("torch", "tensorflow")


def resolve(words: tuple[str, ...], *, module: bool = False) -> tuple[str, ...]:
    """The command to start.

    Args:
        words: `python train.py --lr 1`, `train.py --lr 1`, `train.ipynb`, `torchrun train.py`, or with `module` the
            name of a module and its arguments.
        module: whether the first word is the name of a Python module, as in `python -m`.

    Raises:
        PeakmemError: there is no command, or its script or program does not exist.
    """
    if not words:
        raise PeakmemError("there is no command to run", hint="peakmem run train.py, or peakmem run -- python train.py")
    if module:
        return (active_python(), "-m", *words)
    first = words[0]
    if first.endswith(".py"):
        if not Path(first).is_file():
            raise PeakmemError(f"there is no file {first}", hint=_similar(first))
        return (active_python(), *words)
    if first.endswith(".ipynb"):
        _check_notebook(Path(first))
        return (active_python(), str(RUN_NOTEBOOK), *words)
    if shutil.which(first) is None:
        raise PeakmemError(
            f"there is no program {first!r}", hint="peakmem run train.py, or peakmem run -- python train.py"
        )
    return words


def script_of(command: tuple[str, ...]) -> str:
    """The notebook or script that a command runs, the program itself where there is none: its name for the user."""
    for kind in (".ipynb", ".py"):
        for word in command:
            if word.endswith(kind):
                return word
    return command[0]


def as_typed(command: tuple[str, ...]) -> tuple[str, ...]:
    """The command without the program of ours that runs a notebook."""
    return tuple(word for word in command if word != str(RUN_NOTEBOOK))


def _check_notebook(path: Path) -> None:
    from peakmem.session.inside.cells import code_cells, python_of

    if not path.is_file():
        raise PeakmemError(f"there is no file {path}", hint=_similar(str(path)))
    try:
        found = code_cells(path.read_bytes())
    except OSError as error:
        raise PeakmemError(f"{path} can't be read: {error.strerror}", hint="give a .py or .ipynb file") from error
    except ValueError as error:
        raise PeakmemError(f"{path} is {error}", hint="give a .ipynb file as Jupyter or Colab writes it") from error
    for number, source in found:
        try:
            compile(python_of(source), f"{path.name}[{number}]", "exec")
        except SyntaxError as error:
            raise PeakmemError(
                f"cell {number} of {path} is no Python: {error.msg}, line {error.lineno}",
                hint="take it out of the notebook, or put the training into a script",
            ) from error


@cache
def active_python() -> str:
    """The Python that runs a script that was named without one; said on standard error, once, if it is not our own.

    Peakmem's own, unless it was started as a program of its own (as pipx and uv install it) while another environment
    with a framework is active: `$VIRTUAL_ENV`, `$CONDA_PREFIX`, or, where our own has no framework, the `python` that
    the shell would find.
    """
    complete = _has_framework(sys.executable)
    if _started_by_name() and complete:
        return sys.executable
    folders = [os.environ.get(name) for name in ("VIRTUAL_ENV", "CONDA_PREFIX")]
    candidates = [str(Path(folder, "bin", "python")) for folder in folders if folder]
    if not complete:
        candidates += [found for found in (shutil.which("python"), shutil.which("python3")) if found]
    for candidate in candidates:
        if _same(candidate, sys.executable):
            break
        if Path(candidate).exists() and _has_framework(candidate):
            print(f"peakmem: using {candidate}, the Python of the active environment", file=sys.stderr)
            return candidate
    return sys.executable


def _started_by_name() -> bool:
    """Whether this is `/a/certain/python -m peakmem`."""
    return Path(sys.argv[0]).name in ("__main__.py", "-m")


def _same(one: str, other: str) -> bool:
    """Whether two interpreters are of one environment; the files may well be links to the same program."""
    return Path(one).absolute().parent.resolve() == Path(other).absolute().parent.resolve()


def _has_framework(python: str) -> bool:
    if python == sys.executable:
        return any(importlib.util.find_spec(name) is not None for name in _FRAMEWORKS)
    code = f"import importlib.util as u, sys; sys.exit(not any(map(u.find_spec, {_FRAMEWORKS!r})))"
    variables = {name: value for name, value in os.environ.items() if name not in ("LD_PRELOAD", "PEAKMEM_SESSION")}
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, env=variables, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


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
    kind = Path(path).suffix
    names = [entry.name for entry in folder.glob(f"*{kind}")] if folder.is_dir() else []
    near = difflib.get_close_matches(Path(path).name, names, n=1)
    if near:
        return f"did you mean {folder / near[0]}?"
    return f"the folder {folder.resolve()} has no such file" if folder.is_dir() else f"there is no folder {folder}"
