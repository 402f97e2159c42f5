"""How C++ reads the numbers of a settings string: std::stoull, std::stoi and std::stod, quirks included.

Each takes the longest prefix that is a number ("64mb" is 64), as the C library does.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction

_WHITE = " \t\n\v\f\r"
_INTEGER = re.compile(r"([+-]?)([0-9]+)")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_HEXADECIMAL = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)(?:[pP][+-]?[0-9]+)?")
_SPECIAL = re.compile(r"([+-]?)(infinity|inf|nan)", re.IGNORECASE)
_SMALLEST_NORMAL = 2.0**-1022
_LARGEST_EXPONENT = 5000
"""Digits of an exponent beyond which the result is out of range whatever the digits before it (within reason)."""

UINT64 = 2**64


class NotANumberError(ValueError):
    """The text does not begin with a number (C++: std::invalid_argument)."""


class OutOfRangeError(ValueError):
    """The number does not fit the C++ type (std::out_of_range)."""


def stoull(text: str) -> int:
    """std::stoull: an unsigned 64-bit number; a negative one wraps around."""
    match = _INTEGER.match(text.lstrip(_WHITE))
    if match is None:
        raise NotANumberError("stoull")
    value = _integer(match[2])
    if value >= UINT64:
        raise OutOfRangeError("stoull")
    return -value % UINT64 if match[1] == "-" else value


def stoi(text: str) -> int:
    """std::stoi, then converted to size_t as PyTorch up to 2.9 does: a negative number wraps around."""
    match = _INTEGER.match(text.lstrip(_WHITE))
    if match is None:
        raise NotANumberError("stoi")
    value = _integer(match[2]) * (-1 if match[1] == "-" else 1)
    if not -(2**31) <= value < 2**31:
        raise OutOfRangeError("stoi")
    return value % UINT64


def stoul(text: str) -> int:
    """std::stoul on a 64-bit machine: as stoull, but it calls itself stoul."""
    try:
        return stoull(text)
    except (NotANumberError, OutOfRangeError) as error:
        raise type(error)("stoul") from None


def stod(text: str) -> float:
    """std::stod in the C locale: decimal, hexadecimal, infinity and NaN; over- and underflow are out of range."""
    text = text.lstrip(_WHITE)
    special = _SPECIAL.match(text)
    if special is not None:
        value = math.nan if special[2].lower() == "nan" else math.inf
        return -value if special[1] == "-" else value
    hexadecimal = _HEXADECIMAL.match(text)
    if hexadecimal is not None:
        try:
            value = float.fromhex(hexadecimal[0])
        except OverflowError:
            raise OutOfRangeError("stod") from None
        if value == 0 and re.search("[1-9a-fA-F]", hexadecimal[0][hexadecimal[0].lower().index("x") + 1 :]):
            raise OutOfRangeError("stod")
        return value
    decimal = _DECIMAL.match(text)
    if decimal is None:
        raise NotANumberError("stod")
    value = float(decimal[0])
    if math.isinf(value) or (abs(value) < _SMALLEST_NORMAL and not _is_exact(decimal[0], value)):
        raise OutOfRangeError("stod")
    return value


def _integer(digits: str) -> int:
    # Python refuses to read more than some thousand digits; anything above 20 is out of range anyway.
    significant = digits.lstrip("0")
    return int(significant or "0") if len(significant) <= 20 else UINT64


def _is_exact(text: str, value: float) -> bool:
    """Whether a number below the normal range was read without loss (then the C library reports no underflow)."""
    digits, _, exponent = text.lower().partition("e")
    if not digits.strip("+-0."):
        return True
    if exponent and abs(int(exponent)) > _LARGEST_EXPONENT:
        return False
    return Fraction(text) == Fraction(value)


def is_number(text: str) -> bool:
    """Whether the whole text is a plain decimal number."""
    return _DECIMAL.fullmatch(text) is not None
