"""The tokens of a settings string, with their places in it."""

from __future__ import annotations

from dataclasses import dataclass

_SEPARATORS = frozenset(",:[]")
_WHITE = frozenset(" \t\n\v\f\r")


@dataclass(frozen=True, slots=True)
class Token:
    """A key, a value or one of `,` `:` `[` `]`. `start` and `end` are columns of the string (end excluded)."""

    text: str
    start: int
    end: int


def tokenize(text: str, *, dropped: frozenset[str] = _WHITE) -> list[Token]:
    """Cut at `,` `:` `[` `]`; white space is dropped even inside a token.

    Up to PyTorch 2.9 only the space itself is dropped (`dropped`), from 2.10 on all white space.
    """
    tokens: list[Token] = []
    letters: list[str] = []
    start = end = 0

    def flush() -> None:
        if letters:
            tokens.append(Token("".join(letters), start, end))
            letters.clear()

    for column, letter in enumerate(text):
        if letter in _SEPARATORS:
            flush()
            tokens.append(Token(letter, column, column + 1))
        elif letter not in dropped:
            if not letters:
                start = column
            letters.append(letter)
            end = column + 1
    flush()
    return tokens
