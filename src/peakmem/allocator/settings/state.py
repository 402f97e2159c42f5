"""The state of a parse under way, shared by the grammars: settings so far, options met, and how a fault is raised."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from peakmem.allocator.settings import numbers, options
from peakmem.allocator.settings.model import INTERVALS, Call, Named, Refusal, Settings
from peakmem.allocator.settings.tokens import Token
from peakmem.allocator.settings.version import TorchVersion
from peakmem.units import MIB

LARGEST_SIZE = (2**64 - 1) // MIB
"""PyTorch caps sizes at this many MiB, the most that fits 64 bits; from here on "unlimited"."""


class RefusedError(Exception):
    """Unwinds a parse; carries the refusal."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.text)
        self.refusal = refusal


@dataclass(kw_only=True)
class Parse:
    """A parse under way (mutable; the result is frozen)."""

    text: str
    version: TorchVersion
    call: Call
    settings: Settings
    loaded_backend: str | None
    named: list[Named] = field(default_factory=list)
    ignored: list[tuple[int, int]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def set(self, **changes: object) -> None:
        """Put options in force."""
        self.settings = replace(self.settings, **changes)  # type: ignore[arg-type]

    def name(self, key: Token, option: options.Option, value: str, end: int) -> None:
        """Note that the string names an option."""
        self.named.append(Named(key=key.text, option=option.key, value=value, start=key.start, end=end))

    def refuse(
        self, exception: str, text: str, start: int, end: int, reason: str, *, suggestion: str = "", condition: str = ""
    ) -> RefusedError:
        """Build the exception that unwinds the parse."""
        return RefusedError(
            Refusal(
                exception=exception,
                text=text,
                condition=condition,
                start=start,
                end=end,
                reason=reason,
                suggestion=suggestion,
            )
        )

    def bad_value(self, option: options.Option, token: Token, *, when: str = "", **values: object) -> RefusedError:
        """The exception for a value outside the option's range."""
        error = option.error(self.version, when)
        return self.refuse(
            error.exception,
            error.text.format(**values),
            token.start,
            token.end,
            f"{option.key} takes {option.range}, not {token.text!r}",
        )

    def number(self, read: Callable[[str], int | float], token: Token, option_key: str) -> int | float:
        """Read a number as C++ does, with the exception class that Python sees."""
        try:
            return read(token.text)
        except (numbers.NotANumberError, numbers.OutOfRangeError) as error:
            # pybind11 translates C++'s std::invalid_argument and std::out_of_range (the run-time call since 2.10);
            # the C functions that initialise CUDA make a RuntimeError of either.
            exception = "RuntimeError"
            if self.call is Call.RUN_TIME and self.version.at_least("2.10"):
                exception = "ValueError" if isinstance(error, numbers.NotANumberError) else "IndexError"
            what = "is not a number" if isinstance(error, numbers.NotANumberError) else "is too large or too small"
            reason = f"{option_key} takes a number, and {token.text!r} {what}"
            raise self.refuse(exception, str(error), token.start, token.end, reason) from None

    def unknown_key(self, key: Token, exception: str, text: str) -> RefusedError:
        """The exception for a key that the version doesn't know, with the likely remedy."""
        reason, suggestion = why_unknown(key.text, self.version)
        return self.refuse(exception, text, key.start, key.end, reason, suggestion=suggestion)


def capped_size(mebibytes: int) -> int | None:
    """A size option's value in bytes; None once it is practically unlimited."""
    return None if mebibytes >= LARGEST_SIZE else mebibytes * MIB


def divisions_table(
    previous: tuple[int, ...], pairs: list[tuple[str, int]], *, rest_after_last: bool
) -> tuple[int, ...]:
    """Fill the table of divisions from a list such as [256:1,512:2,>:8].

    Args:
        previous: the table before.
        pairs: (boundary in MiB or ">", divisions), in order; the boundaries are powers of two.
        rest_after_last: whether `>` begins after the last listed boundary (from 2.10 on) or at it.
    """
    filled = list(previous)
    last, first = 0, True
    for boundary, divisions in pairs:
        if boundary == ">":
            begin = last + 1 if rest_after_last else last
            filled[begin:] = [divisions] * (INTERVALS - begin)
            continue
        index = min(numbers.stoull(boundary).bit_length() - 1, INTERVALS - 1)
        if first:
            filled[:index] = [divisions] * index
            first = False
        filled[index] = divisions
        last = index
    return tuple(filled)


def is_power_of_two(value: int) -> bool:
    """Whether exactly one bit is set."""
    return value > 0 and value & (value - 1) == 0


def why_unknown(key: str, version: TorchVersion) -> tuple[str, str]:
    """What is wrong with a key that the version doesn't know, and what to write instead (may be empty)."""
    if key in (",", ":", "[", "]"):
        return (
            f"an option name is expected here, not {key!r}",
            "write key:value pairs with one comma between two of them",
        )
    ever = options.find_ever(key)
    if ever is not None:
        if ever.until and version.after(ever.until):
            return (
                f"{key} was removed after PyTorch {ever.until}",
                f"use {ever.instead}" if ever.instead else "leave it out",
            )
        since = ever.aliases_since if key in ever.aliases else ever.since
        return f"{key} exists since PyTorch {since}, not in {version}", "leave it out, or use a newer PyTorch"
    if key == "expandable_segments_handle_type":
        return f"{key} is named in an error text of PyTorch, but no release parses it", "leave it out"
    bare = key.strip("'\"")
    if "=" in key:
        name, _, value = bare.partition("=")
        meant = options.closest(name, version)
        better = f"{meant.key if meant else name}:{value}"
        return "an option and its value are separated by ':', not '='", f"write {better}"
    if bare != key:
        return "a quotation mark is part of the string (cmd.exe and some .env readers keep them)", "remove the quotes"
    meant = options.closest(key, version)
    if meant is not None:
        return f"there is no option {key}", f"did you mean {meant.key}?"
    if numbers.is_number(key):
        return f"an option name is expected here, not the number {key}", "write key:value pairs with ',' between them"
    return f"there is no option {key} in PyTorch {version}", ""
