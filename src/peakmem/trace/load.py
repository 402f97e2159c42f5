"""Open whatever holds memory events: a `.peakmem` file, or a PyTorch snapshot in any of its forms."""

from __future__ import annotations

import base64
import binascii
import gc
import mmap
import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from peakmem.errors import PeakmemError
from peakmem.trace.file import is_trace_file, read_trace

if TYPE_CHECKING:
    from peakmem.trace.model import Trace
    from peakmem.trace.plain_pickle import Buffer
    from peakmem.trace.snapshot_read import SnapshotBuilder

_HINT = "give a .peakmem file, or a snapshot that torch.cuda.memory._dump_snapshot() wrote"
_EMBEDDED = re.compile(rb'"base64"\s*:\s*"([A-Za-z0-9+/=\s]+)"')


def load_trace(path: str | Path) -> Trace:
    """Read a trace or import a snapshot, whichever the file holds.

    Raises:
        PeakmemError: the file is missing, damaged, harmful, or something else.
    """
    path = Path(path)
    try:
        if path.is_dir():
            raise PeakmemError(f"{path} is a folder, not a trace or snapshot", hint=_HINT)
        if path.stat().st_size == 0:
            raise PeakmemError(f"{path} is empty", hint=_HINT)
        if is_trace_file(path) or zip_start(path):
            return read_trace(path)
    except FileNotFoundError as error:
        raise PeakmemError(f"{path} does not exist", hint="check the name") from error
    except OSError as error:
        raise PeakmemError(f"{path} can't be read: {error.strerror}", hint="check that you may read it") from error
    return import_snapshot(path)


def load_torch_trace(path: str | Path, *, what: str) -> Trace:
    """Read a trace of PyTorch's allocator, for what works with that allocator alone.

    Args:
        path: of the trace or snapshot.
        what: names what needs it, for instance "replay".

    Raises:
        PeakmemError: as `load_trace`, or the trace is another framework's.
    """
    trace = load_trace(path)
    if trace.meta.framework:
        raise other_allocator(what, f"{path} is a run of {trace.meta.framework}")
    return trace


def other_allocator(what: str, why: str) -> PeakmemError:
    """The error that tells of requests to an allocator that is not PyTorch's."""
    return PeakmemError(
        f"{what} works with PyTorch's allocator and its options alone: {why}",
        hint="for TensorFlow, peakmem run --gpu tries another card, and docs/tensorflow.md lists its settings",
    )


def zip_start(path: Path) -> bool:
    """Whether the file is a zip archive."""
    with path.open("rb") as stream:
        return stream.read(4) == b"PK\x03\x04"


def import_snapshot(path: str | Path) -> Trace:
    """Import a PyTorch memory snapshot: a pickle, JSON of the old `memory_snapshot()`, or the HTML page around one.

    Raises:
        PeakmemError: it is none of these, or damaged, or a pickle of more than plain data.
    """
    path = Path(path)
    try:
        with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _import(data, path.name)
    except FileNotFoundError as error:
        raise PeakmemError(f"{path} does not exist", hint="check the name") from error
    except ValueError as error:
        if isinstance(error, PeakmemError):
            raise
        raise PeakmemError(f"{path} is empty", hint=_HINT) from error
    except MemoryError as error:
        raise PeakmemError(
            f"{path} needs more memory to read than there is", hint="read it on a larger machine"
        ) from error
    except OSError as error:
        raise PeakmemError(f"{path} can't be read: {error.strerror}", hint="check that you may read it") from error


def _import(data: Buffer, name: str) -> Trace:
    from peakmem.trace.snapshot_read import SnapshotBuilder

    builder = SnapshotBuilder()
    start = bytes(data[:512]).lstrip()
    if start[:1] in (b"[", b"{"):
        try:
            root = msgspec.json.decode(bytes(data))
        except msgspec.DecodeError as error:
            raise PeakmemError(f"{name} looks like JSON, but is damaged: {error}", hint=_HINT) from error
        return builder.build(root, name=name)
    if start[:1] == b"<" or b"local_files" in start:
        found = _EMBEDDED.search(data)
        if found is None:
            raise PeakmemError(f"{name} is a page without a snapshot in it", hint=_HINT)
        try:
            inner = base64.b64decode(found.group(1))
        except binascii.Error as error:
            raise PeakmemError(f"{name}: the snapshot in the page is damaged", hint=_HINT) from error
        return _from_pickle(inner, name, builder)
    if start[:1] not in (b"\x80", b"(", b"]", b"}"):
        raise PeakmemError(f"{name} is neither a peakmem trace nor a memory snapshot", hint=_HINT)
    return _from_pickle(data, name, builder)


def _from_pickle(data: Buffer, name: str, builder: SnapshotBuilder) -> Trace:
    from peakmem.trace.plain_pickle import PlainUnpickler

    enabled = gc.isenabled()
    gc.disable()  # millions of new containers would be walked again and again
    try:
        root = PlainUnpickler(data, name=name, on_dict=builder.take).load()
        return builder.build(root, name=name)
    finally:
        if enabled:
            gc.enable()
