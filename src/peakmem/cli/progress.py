"""What is shown on standard error while a script runs."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape

from peakmem.errors import PeakmemError
from peakmem.session.command import script_of
from peakmem.units import format_size

if TYPE_CHECKING:
    from typing_extensions import Self


class Spinner:
    """A line with what is being done, on a terminal; nothing where standard error is no terminal."""

    def __init__(self, first: str) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._status = self._console.status(escape(first))

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._status.stop()

    def say(self, text: str) -> None:
        """Show what is being done."""
        self._status.update(escape(text))


class RunProgress(Spinner):
    """A spinner with the step and its memory.

    Args:
        output: "hide", "show" or the file that takes what the script prints.
        command: the command, to name it.

    Raises:
        PeakmemError: the file can't be written.
    """

    def __init__(self, output: str, command: tuple[str, ...]) -> None:
        self._show = output == "show"
        self._file: IO[str] | None = None
        self._lost = ""
        if output not in ("hide", "show"):
            if any(Path(output).resolve() == Path(word).resolve() for word in command if _is_file(word)):
                raise PeakmemError(f"the output would take the place of {output}", hint="give another name")
            try:
                self._file = Path(output).open("w", encoding="utf-8", errors="replace")  # noqa: SIM115 - see __exit__
            except OSError as error:
                raise PeakmemError(
                    f"the output can't go to {output}: {error.strerror}", hint="--output hide, show or a file"
                ) from error
        name = Path(script_of(command)).name
        self._name = escape(name)
        super().__init__(f"starting {name}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        if self._file is not None:
            try:
                self._file.close()
            except OSError as problem:
                self._lost = self._lost or problem.strerror or str(problem)
        if self._lost:
            self._console.print(f"the script's output could not be kept: {self._lost}", markup=False)

    def line(self, line: dict[str, Any]) -> None:
        """Show a progress line of a watched process."""
        event = line["event"]
        if event == "torch":
            self._status.update(f"{self._name}: torch {line['torch']} is loaded")
        elif event == "cuda":
            self._status.update(f"{self._name}: the model is being built")
        elif event == "step":
            self._status.update(
                f"{self._name}: step {line['step']}, {format_size(line['allocated'])} allocated, "
                f"{format_size(line['reserved'])} reserved"
            )
        elif event == "writing":
            self._status.update(f"{self._name}: reading the books")

    def printed(self, line: str) -> None:
        """Take a line that the script printed."""
        if self._file is not None:
            if not self._lost:  # the script must not wait for a reader that gave up
                try:
                    self._file.write(line + "\n")
                except OSError as problem:
                    self._lost = problem.strerror or str(problem)
        elif self._show:
            self._console.print(f"[dim]│[/dim] {escape(line)}", soft_wrap=True)


def _is_file(word: str) -> bool:
    try:
        return Path(word).is_file()
    except (OSError, ValueError):  # `python -c` takes a whole program as a word
        return False
