"""The magics: `%peakmem COMMAND ...` is the command line, `%%peakmem [OPTIONS]` runs its cell on a virtual GPU."""

from __future__ import annotations

import json
import shlex
import sys
import tempfile
import traceback
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, magics_class
from IPython.display import HTML, DisplayHandle, display

from peakmem.errors import PeakmemError
from peakmem.notebook.running import run_command
from peakmem.notebook.shipping import ship_names
from peakmem.session.failing import NO_GPU_USED
from peakmem.session.inside.cells import python_of

if TYPE_CHECKING:
    from peakmem.forecast.cpu import CpuForecast
from peakmem.forecast.model import Forecast

FROM_START = "--from-start"
USAGE = """%peakmem predict torchvision:resnet50 --batch 64 --gpu t4   any command, as in a terminal
forecast = %peakmem predict net --batch 8 --input 3x224x224 a model of this notebook, by its name
%peakmem conf explain expandable_segments:True
%peakmem explain                                            the last out-of-memory error of this notebook
%%peakmem --gpu t4                                          the cell, on a virtual GPU; this kernel stays as it is
%%peakmem --from-start                                      the same after all cells that were run before it

%peakmem --help lists the commands, %peakmem run --help what %%peakmem takes."""


@magics_class
class PeakmemMagics(Magics):  # type: ignore[misc]
    """`%peakmem` and `%%peakmem`."""

    @line_cell_magic  # type: ignore[untyped-decorator]
    def peakmem(self, line: str, cell: str | None = None) -> Forecast | CpuForecast | None:
        """Run a command of peakmem, or with `%%` the cell on a virtual GPU; `%peakmem` alone tells how."""
        try:
            words = shlex.split(line)
            if cell is not None:
                return self._run_cell(words, cell)
            if not words:
                print(USAGE)
                return None
            return self._run_line(words)
        except PeakmemError as error:
            raise UsageError("\n".join([error.message, *error.hint.splitlines()])) from None
        except ValueError as error:  # an open quote
            raise UsageError(f"%peakmem {line}: {error}") from None

    def _run_line(self, words: list[str]) -> Forecast | CpuForecast | None:
        if words[0] == "predict":
            name = next((word for word in words[1:] if word in self.shell.user_ns and word.isidentifier()), None)
            if name is not None:
                from peakmem.notebook.predicting import predict_live

                words.remove(name)
                return predict_live(name, self.shell.user_ns[name], words[1:])
        if words == ["explain"]:
            self._explain_last()
            return None
        return run_command(words, _Output()).forecast

    def _explain_last(self) -> None:
        error = getattr(sys, "last_value", None)
        if error is None:
            raise PeakmemError("no cell of this notebook has failed", hint="%peakmem explain FILE reads a log")
        with tempfile.TemporaryDirectory(prefix="peakmem-notebook-") as folder:
            path = Path(folder, "error.txt")
            path.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
            run_command(["explain", str(path)], _Output())

    def _run_cell(self, options: list[str], cell: str) -> Forecast | None:
        source = python_of(cell)
        try:
            compile(source, "cell", "exec")
        except SyntaxError as error:
            raise PeakmemError(f"line {error.lineno} of the cell is no Python: {error.msg}") from None
        cells = [("cell.py", source)]
        namespace = self.shell.user_ns
        if FROM_START in options:
            options.remove(FROM_START)
            cells, namespace = [*self._cells_before(), *cells], {}
        with tempfile.TemporaryDirectory(prefix="peakmem-notebook-") as folder:
            shipped, listed = Path(folder, "shipped.pickle"), Path(folder, "cells.json")
            ship_names(shipped, source, namespace)
            listed.write_text(json.dumps(cells), encoding="utf-8")
            runner = Path(__file__).with_name("run_cells.py")
            command = (sys.executable, str(runner), str(shipped), str(listed), json.dumps(_places()))
            try:
                done = run_command(["run", *options, "--", *command], _Output())
            except PeakmemError as error:
                raise _about_cells(error, namespace) from None
        return None if done.forecast is None else replace(done.forecast, command=("%%peakmem", *options))

    def _cells_before(self) -> list[tuple[str, str]]:
        """What was run so far, other cells of `%%peakmem` left out, as they were not run in this kernel."""
        before = enumerate(self.shell.history_manager.input_hist_raw[1:-1], 1)
        return [
            (f"notebook.ipynb[{number}]", python_of(cell))
            for number, cell in before
            if not cell.lstrip().startswith("%%peakmem")
        ]


def _about_cells(error: PeakmemError, namespace: dict[str, Any]) -> PeakmemError:
    """The same error, with what to do about a kernel that has no GPU."""
    first = error.message.splitlines()[0]
    if NO_GPU_USED not in first:
        return error
    devices = [name for name, value in namespace.items() if str(value) == "cpu" and not name.startswith("_")]
    if not devices:
        return PeakmemError("the cell did not use the GPU", hint="it has to move its model there: model.to('cuda')")
    return PeakmemError(
        f"the cell did not use the GPU: in this kernel, {devices[0]} is 'cpu'",
        hint=f"set {devices[0]} = 'cuda' in the cell, or run all cells on the virtual GPU: %%peakmem {FROM_START}",
    )


def _places() -> list[str]:
    """Where the kernel looks for modules; '' stands for the folder in which it is."""
    return [entry or str(Path.cwd()) for entry in sys.path]


class _Output:
    """The output of the cell that is running."""

    def __init__(self) -> None:
        self._handle: DisplayHandle | None = None

    def busy(self, text: str) -> None:
        """Show a small line in place of the one before."""
        line = HTML(f'<span style="opacity:.6;font-size:85%">{text}</span>')
        if self._handle is None:
            self._handle = display(line, display_id=True)
        else:
            self._handle.update(line)

    def text(self, text: str) -> None:
        """Show text."""
        print(text, end="" if text.endswith("\n") else "\n")
