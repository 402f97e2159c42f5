"""Printing to what is no terminal: a file, or a program that may stop reading."""

from __future__ import annotations

import re
import sys
from io import TextIOBase
from typing import TextIO, cast

from rich.console import Console


class PipedConsole(Console):
    """Prints no blanks at the ends of lines, and leaves it to the command what a reader that went away means."""

    def __init__(self, *, width: int, to_stderr: bool = False) -> None:
        """`width` in columns."""
        stream = cast("TextIO", _Trimmed(sys.stderr if to_stderr else sys.stdout))
        super().__init__(file=stream, highlight=False, width=width, soft_wrap=False)

    def on_broken_pipe(self) -> None:
        """Rich would exit with 1, which says here that a run does not fit."""
        raise  # called while the BrokenPipeError is handled


class _Trimmed(TextIOBase):
    """Passes text on; rich writes whole lines at a time, so blanks and what ends them come together."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stream.encoding

    def write(self, text: str) -> int:
        self._stream.write(re.sub(r" +$", "", text, flags=re.MULTILINE))
        return len(text)

    def flush(self) -> None:
        self._stream.flush()
