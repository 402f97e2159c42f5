"""The errors a user can meet. Each says what was found, where, and what to do instead."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of every command (a contract: other programs branch on them)."""

    FITS = 0
    DOES_NOT_FIT = 1
    BAD_INPUT = 2
    SCRIPT_FAILED = 3
    INTERRUPTED = 130


class PeakmemError(ValueError):
    """Something the user gave can't be used, or something needed is missing.

    Attributes:
        message: what was found and where, one sentence.
        hint: what to type or to change instead; may be empty.
        exit_code: the exit code of the command that meets it.
    """

    def __init__(self, message: str, *, hint: str = "", exit_code: ExitCode = ExitCode.BAD_INPUT) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code
