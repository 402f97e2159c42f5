"""A forecast as JSON (schema `peakmem/forecast/1`, docs/forecast-json.md): the contract with other programs."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from peakmem.errors import PeakmemError
from peakmem.forecast.model import Forecast

# No text in JSON holds a bare line end, so this finds nothing but lists of numbers.
_NUMBERS = re.compile(rb"\[\n\s*(-?\d+(?:,\n\s*-?\d+)*)\n\s*\]")


def to_json(forecast: Forecast) -> bytes:
    """The forecast as indented JSON, UTF-8, with a line end; a list of integers takes one line."""
    text = msgspec.json.format(msgspec.json.encode(forecast), indent=2)
    return _NUMBERS.sub(lambda found: b"[" + b", ".join(map(bytes.strip, found[1].split(b","))) + b"]", text) + b"\n"


def write_json(forecast: Forecast, target: str, *, force: bool) -> None:
    """Write a forecast to a file, or to standard output for "-".

    Raises:
        PeakmemError: the file exists and `force` is not set, or can't be written.
    """
    if target == "-":
        sys.stdout.buffer.write(to_json(forecast))
        sys.stdout.buffer.flush()
        return
    write_file(Path(target), to_json(forecast), force=force)


def check_writable(target: str, *, force: bool) -> None:
    """Raise a PeakmemError if `target` could not be written later: told before a long run, not after it."""
    if target == "-":
        return
    path = Path(target)
    if path.exists() and not force:
        raise PeakmemError(f"{path} exists already", hint="give another name, or --force to write over it")
    if path.is_dir():
        raise PeakmemError(f"{path} is a folder", hint="give the name of a file")
    if not path.absolute().parent.is_dir():
        raise PeakmemError(f"there is no folder {path.absolute().parent}", hint="make it first, or give another name")
    if not os.access(path.absolute().parent, os.W_OK):
        raise PeakmemError(f"the folder {path.absolute().parent} can't be written to", hint="give another place")


def write_file(path: Path, content: bytes, *, force: bool) -> None:
    """Write a file whole or not at all.

    Raises:
        PeakmemError: the file exists and `force` is not set, or can't be written.
    """
    check_writable(str(path), force=force)
    temporary: Any = None
    try:
        with tempfile.NamedTemporaryFile(dir=path.absolute().parent, prefix=f".{path.name}.", delete=False) as file:
            temporary = Path(file.name)
            file.write(content)
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise PeakmemError(f"{path} can't be written: {error.strerror or error}") from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
