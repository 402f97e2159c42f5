"""The grammar of PyTorch 1.10 to 1.13: options cut at white space and commas, then at colons.

What has no colon is skipped without a word ("max_split_size_mb=64" sets nothing). Facts from PyTorch 1.13,
c10/cuda/CUDACachingAllocator.cpp.
"""

from __future__ import annotations

import re

from peakmem.allocator.settings import numbers, options
from peakmem.allocator.settings.model import INTERVALS
from peakmem.allocator.settings.state import Parse, capped_size, is_power_of_two
from peakmem.allocator.settings.tokens import Token
from peakmem.units import MIB

_PART = re.compile(r"[^\s,]+", re.ASCII)
_PIECE = re.compile(r"[^:]+")


def parse_all(parse: Parse) -> None:
    """Read all options; each parse starts from the defaults."""
    parse.set(max_split_size=None, roundup_power2_divisions=(0,) * INTERVALS, garbage_collection_threshold=0.0)
    parse.set(roundup_bypass_threshold=None)
    for part in _PART.finditer(parse.text):
        pieces = [
            Token(match.group(), part.start() + match.start(), part.start() + match.end())
            for match in _PIECE.finditer(part.group())
        ]
        if part.group().startswith(":"):
            pieces.insert(0, Token("", part.start(), part.start() + 1))
        if len(pieces) < 2:
            parse.ignored.append((part.start(), part.end()))
            continue
        key, value = pieces[0], pieces[1]
        option = options.find(key.text, parse.version)
        if option is None:
            raise parse.unknown_key(key, "RuntimeError", f"Unrecognized CachingAllocator option: {key.text}")
        _value(parse, option, value)
        parse.name(key, option, value.text, value.end)
        if len(pieces) > 2:
            parse.ignored.append((value.end, part.end()))


def _value(parse: Parse, option: options.Option, token: Token) -> None:
    if option.kind == "fraction":
        fraction = parse.number(numbers.stod, token, option.key)
        if not fraction > 0:
            raise parse.bad_value(option, token, when="low")
        if not fraction < 1:
            raise parse.bad_value(option, token, when="high")
        parse.set(**{option.field: float(fraction)})
        return
    number = int(parse.number(numbers.stoi, token, option.key))
    if option.key == "max_split_size_mb":
        if number <= 20:
            raise parse.bad_value(option, token)
        parse.set(max_split_size=capped_size(number))
    elif option.kind == "divisions":
        if not is_power_of_two(number):
            raise parse.bad_value(option, token, when="single")
        parse.set(roundup_power2_divisions=(number,) * INTERVALS)
    else:
        parse.set(**{option.field: number * MIB})
