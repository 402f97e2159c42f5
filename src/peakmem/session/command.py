"""From what stands on the command line to the command that is started."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from peakmem.errors import PeakmemError

RUN_NOTEBOOK = Path(__file__).parent / "inside" / "run_notebook.py"


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
        return (sys.executable, "-m", *words)
    first = words[0]
    if first.endswith(".py"):
        if not Path(first).is_file():
            raise PeakmemError(f"there is no file {first}", hint=_similar(first))
        return (sys.executable, *words)
    if first.endswith(".ipynb"):
        _check_notebook(Path(first))
        return (sys.executable, str(RUN_NOTEBOOK), *words)
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
