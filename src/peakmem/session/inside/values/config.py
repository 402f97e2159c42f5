"""What may be assumed about values that nobody knows."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

VARIABLE = "PEAKMEM_ASSUME"
Truth = bool  # since a field has that name


@dataclass(frozen=True, kw_only=True, slots=True)
class Assume:
    """The assumptions, and the size up to which values are followed.

    `bool`: what a truth value is when it derives from unknown data.
    `number`: the same for numbers.
    `nonzero`: the fraction of a mask that is true, when a size depends on it (0 to 1).
    `nms`: the fraction of boxes that non-maximum suppression keeps (0 to 1).
    `unique`: the fraction of elements that are distinct (0 to 1).
    `limit`: tensors of more elements than this are not followed.
    `off`: follow nothing at all.
    """

    bool: Truth = True
    number: float = 0.0
    nonzero: float = 0.5
    nms: float = 1.0
    unique: float = 1.0
    limit: int = 1 << 20
    off: Truth = False

    @classmethod
    def parse(cls, text: str) -> Assume:
        """Read "bool=true,nonzero=0.5,limit=1048576"; ValueError names what is wrong."""
        result = cls()
        kinds = {field.name: type(getattr(result, field.name)) for field in fields(cls)}
        for part in filter(None, (part.strip() for part in text.split(","))):
            name, equals, value = (piece.strip() for piece in part.partition("="))
            if name not in kinds or (not equals and kinds[name] is not Truth):
                raise ValueError(f"{VARIABLE}: {part!r} is not one of {', '.join(f'{k}=...' for k in kinds)}")
            result = replace(result, **{name: _read(name, kinds[name], value or "true")})
        return result


_TRUTH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def _read(name: str, kind: type, value: str) -> Any:
    try:
        if kind is Truth:
            return _TRUTH[value.lower()]
        number = kind(value)
    except (KeyError, ValueError):
        raise ValueError(
            f"{VARIABLE}: {name}={value} is not {'true or false' if kind is Truth else 'a number'}"
        ) from None
    if name in ("nonzero", "nms", "unique") and not 0 <= number <= 1:
        raise ValueError(f"{VARIABLE}: {name}={value} is not between 0 and 1")
    if name == "limit" and number < 0:
        raise ValueError(f"{VARIABLE}: {name}={value} is negative")
    return number
