"""What is varied: a name and its values, as `--vary batch=1..512`, `tokens=128..8192:128`, `env:BATCH=1..64:powers`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from peakmem.errors import PeakmemError

_FORM = re.compile(r"(env:)?([A-Za-z_][A-Za-z0-9_-]*)=(\d+)\.\.(\d+)(?::(\w+))?")
_HINT = "--vary batch=1..512, --vary tokens=128..8192:128 (a step), --vary env:BATCH=1..64:powers (powers of two)"


@dataclass(frozen=True, kw_only=True, slots=True)
class Vary:
    """A number that is varied.

    Attributes:
        name: its name; in a command line `{name}` stands for it.
        values: the values, rising.
        in_environment: whether it is an environment variable.
    """

    name: str
    values: Sequence[int]
    in_environment: bool

    @classmethod
    def parse(cls, text: str) -> Vary:
        """Read what stands after `--vary`.

        Raises:
            PeakmemError: it can't be read, or there is no value.
        """
        match = _FORM.fullmatch(text.strip())
        if match is None:
            raise PeakmemError(f"--vary {text} can't be read", hint=_HINT)
        environment, name, low, high, how = match.groups()
        first, last = int(low), int(high)
        if first > last:
            raise PeakmemError(f"--vary {text}: {first} is above {last}", hint=_HINT)
        return cls(name=name, values=_values(text, first, last, how), in_environment=environment is not None)


def _values(text: str, first: int, last: int, how: str | None) -> Sequence[int]:
    if how is None:
        return range(first, last + 1)
    if how == "powers":
        powers = [2**exponent for exponent in range(last.bit_length()) if first <= 2**exponent <= last]
        if powers:
            return powers
        raise PeakmemError(f"--vary {text}: no power of two lies between {first} and {last}", hint=_HINT)
    if how.isdigit() and int(how) > 0:
        return range(first, last + 1, int(how))
    raise PeakmemError(f"--vary {text}: {how!r} is no step and not `powers`", hint=_HINT)
