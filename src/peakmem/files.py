"""Writing files and standard output: a reader sees the old file or the whole new one, never half of it."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING

from peakmem.errors import PeakmemError

if TYPE_CHECKING:
    from collections.abc import Iterator

# No text in JSON holds a bare line end, so this finds nothing but lists of numbers.
_NUMBERS = re.compile(rb"\[\n\s*(-?\d+(?:,\n\s*-?\d+)*)\n\s*\]")


@contextlib.contextmanager
def atomic_write(path: Path, *, force: bool) -> Iterator[IO[bytes]]:
    """Open a new file for writing bytes; it takes its place at `path` when the block ends without an error.

    Args:
        path: the file to make.
        force: whether an existing file may be replaced.

    Raises:
        PeakmemError: the file exists and `force` is false, or it can't be written.
    """
    path = Path(path)
    if _is_stream(path):
        try:
            with _open_stream(path) as stream:
                yield stream
        except OSError as error:
            raise PeakmemError(f"{path} can't be written: {error.strerror}", hint="choose another place") from error
        return
    if path.exists() and not force:
        raise _exists(path)
    path = path.resolve() if path.is_symlink() else path  # what a link leads to is replaced, not the link
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    except OSError as error:
        raise PeakmemError(f"{path} can't be written: {error.strerror}", hint="choose another place") from error
    part = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
        umask = os.umask(0)
        os.umask(umask)
        part.chmod(0o666 & ~umask)
        if force:
            part.replace(path)
        else:
            _place_new(part, path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise PeakmemError(f"{path} can't be written: {error.strerror}", hint="choose another place") from error
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _place_new(part: Path, path: Path) -> None:
    """Give the finished file its name, without replacing one that appeared meanwhile."""
    try:
        os.link(part, path)
    except FileExistsError as error:
        raise _exists(path) from error
    except OSError:  # no hard links here (FAT, some network file systems)
        part.replace(path)
        return
    part.unlink()


def _is_stream(path: Path) -> bool:
    """Whether a path is a device or a pipe: written to as it stands, never replaced by a file."""
    return path.exists() and not path.is_file() and not path.is_dir()


def _open_stream(path: Path) -> IO[bytes]:
    try:
        return path.open("wb")
    except OSError as error:
        raise PeakmemError(f"{path} can't be written: {error.strerror}", hint="choose another place") from error


def _exists(path: Path) -> PeakmemError:
    return PeakmemError(f"{path} exists already", hint="give another name, or --force to replace it")


def check_writable(target: str | Path, *, force: bool) -> None:
    """Look whether `target` can be written later: told before a long run, not after it.

    Args:
        target: a file; "-" is standard output.
        force: whether an existing file may be replaced.

    Raises:
        PeakmemError: it can't, or it exists and `force` is false.
    """
    if str(target) == "-":
        return
    path = Path(target)
    if _is_stream(path):
        return
    folder = path.absolute().parent
    if path.is_dir():
        raise PeakmemError(f"{path} is a folder", hint="give the name of a file")
    if path.exists() and not force:
        raise _exists(path)
    if not folder.is_dir():
        raise PeakmemError(f"there is no folder {folder}", hint="make it first, or give another name")
    if not os.access(folder, os.W_OK):
        raise PeakmemError(f"the folder {folder} can't be written to", hint="choose another place")


def write_whole(content: bytes, target: str | Path, *, force: bool) -> None:
    """Write a file whole or not at all; "-" is standard output.

    Raises:
        PeakmemError: the file exists and `force` is false, or it can't be written.
    """
    if str(target) == "-":
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    check_writable(target, force=force)
    with atomic_write(Path(target), force=force) as file:
        file.write(content)


def to_json(value: object) -> bytes:
    """A value (dataclasses, dicts, lists) as indented JSON, UTF-8, with a line end; lists of integers take one line."""
    import msgspec

    try:
        content = msgspec.json.encode(value)
    except UnicodeEncodeError:  # names of files, and what a script says, need not be Unicode
        content = msgspec.json.encode(_unicode(msgspec.to_builtins(value)))
    text = msgspec.json.format(content, indent=2)
    return _NUMBERS.sub(lambda found: b"[" + b", ".join(map(bytes.strip, found[1].split(b","))) + b"]", text) + b"\n"


def _unicode(value: object) -> object:
    """The same with a question mark for each character that UTF-8 does not have."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list | tuple):
        return [_unicode(item) for item in value]
    if isinstance(value, dict):
        return {_unicode(key): _unicode(item) for key, item in value.items()}
    return value


def write_json(value: object, target: str | Path, *, force: bool = False) -> None:
    """Write a value (dataclasses, dicts, lists) as indented JSON to a file; "-" is standard output.

    Raises:
        PeakmemError: the file exists and `force` is false, or it can't be written.
    """
    write_whole(to_json(value), target, force=force)
