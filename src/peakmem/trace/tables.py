"""The columns a trace is made of: one numpy array for each field, all of one length."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Array = NDArray[Any]
T = TypeVar("T", bound="Table")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Table:
    """Columns of one length. `DTYPES` names the dtype of each; a column that isn't given is all zeros."""

    DTYPES: ClassVar[dict[str, str]] = {}

    def __post_init__(self) -> None:
        lengths = {len(getattr(self, name)) for name in self.DTYPES}
        assert len(lengths) == 1, f"columns of different lengths: {lengths}"
        for name, dtype in self.DTYPES.items():
            assert getattr(self, name).dtype == np.dtype(dtype), f"column {name} is not {dtype}"

    @classmethod
    def of(cls: type[T], columns: Mapping[str, Sequence[Any] | Array], *, count: int | None = None) -> T:
        """Build a table from sequences; columns that are left out are zeros.

        Args:
            columns: sequences or arrays by column name.
            count: the number of rows, needed only when no column is given.
        """
        unknown = set(columns) - set(cls.DTYPES)
        assert not unknown, f"no such column: {unknown}"
        if count is None:
            count = len(next(iter(columns.values()))) if columns else 0
        return cls(
            **{
                name: np.asarray(columns[name], dtype=dtype) if name in columns else np.zeros(count, dtype=dtype)
                for name, dtype in cls.DTYPES.items()
            }
        )

    @classmethod
    def empty(cls: type[T]) -> T:
        """A table without rows."""
        return cls.of({})

    @classmethod
    def from_rows(cls: type[T], rows: Iterable[Mapping[str, Any]]) -> T:
        """Build a table from one mapping for each row; missing fields are zero."""
        rows = list(rows)
        return cls.of({name: [row.get(name, 0) for row in rows] for name in cls.DTYPES}, count=len(rows))

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in self.DTYPES)

    __hash__ = None  # type: ignore[assignment]

    def take(self: T, rows: Array) -> T:
        """The rows that an index or a mask names, in that order."""
        return type(self)(**{name: getattr(self, name)[rows] for name in self.DTYPES})


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Events(Table):
    """What the allocator did, in order.

    Attributes:
        action: an `Action`.
        address: of the block or segment; for `OOM` the free bytes of the device (as in PyTorch's `device_free`).
        size: bytes. Blocks: as PyTorch's history gives them, that is, the bytes *requested*. Segments: their size.
        block_size: bytes of the block after rounding and splitting (what `allocated` counts); 0 for other actions.
        stream: handle of the CUDA stream, 0 for the default one.
        device: index of the device.
        time_us: microseconds since the epoch, 0 where unknown.
        stack: index in `Trace.stacks`; 0 is "not recorded".
        context: index in `Trace.contexts`; 0 is "outside of everything".
    """

    DTYPES: ClassVar[dict[str, str]] = {
        "action": "u1", "address": "u8", "size": "i8", "block_size": "i8", "stream": "i8", "device": "i2",
        "time_us": "i8", "stack": "i4", "context": "i4",
    }  # fmt: skip
    action: Array
    address: Array
    size: Array
    block_size: Array
    stream: Array
    device: Array
    time_us: Array
    stack: Array
    context: Array


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Blocks(Table):
    """Blocks handed out at one moment.

    Attributes:
        address: of the block.
        size: bytes after rounding and splitting.
        requested: bytes that the program asked for.
        stream: handle of the stream.
        device: index of the device.
        pending: 1 if the program gave it back already and it waits for another stream.
        stack: index in `Trace.stacks`, where it was allocated; 0 is "not recorded".
    """

    DTYPES: ClassVar[dict[str, str]] = {
        "address": "u8", "size": "i8", "requested": "i8", "stream": "i8", "device": "i2", "pending": "u1",
        "stack": "i4",
    }  # fmt: skip
    address: Array
    size: Array
    requested: Array
    stream: Array
    device: Array
    pending: Array
    stack: Array


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Segments(Table):
    """Memory that the allocator holds from the driver at one moment.

    Attributes:
        address: of the segment.
        size: bytes.
        stream: handle of the stream.
        device: index of the device.
        small: 1 for the pool of blocks up to 1 MiB.
        expandable: 1 if it is a mapped run of an expandable segment.
        pool: index in `TraceMeta.pools`; 0 is the default pool.
        stack: index in `Trace.stacks`, where it was allocated; 0 is "not recorded".
    """

    DTYPES: ClassVar[dict[str, str]] = {
        "address": "u8", "size": "i8", "stream": "i8", "device": "i2", "small": "u1", "expandable": "u1",
        "pool": "i4", "stack": "i4",
    }  # fmt: skip
    address: Array
    size: Array
    stream: Array
    device: Array
    small: Array
    expandable: Array
    pool: Array
    stack: Array


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Owners(Table):
    """What allocations are for.

    An *allocation* is a block alive at the start (`0 .. len(initial)-1`, in the order of `Trace.initial`) or an `ALLOC`
    event (`len(initial) + k` for the k-th `ALLOC`, counted over all devices). An allocation may have several rows: the
    first one holds from its birth, each later one from the event `since`.

    Attributes:
        allocation: which one; the rows are sorted by (allocation, since).
        since: event index from which this row holds (ignored for the first row of an allocation).
        role: a `Role`.
        name: index in `Trace.strings`: a parameter's name, an optimizer state's name, what a workspace is for.
        shape: index in `Trace.shapes`; 0 is "unknown".
        dtype: index in `Trace.strings`, for instance `bfloat16`; 0 is "unknown".
    """

    DTYPES: ClassVar[dict[str, str]] = {
        "allocation": "i8", "since": "i8", "role": "u1", "name": "i4", "shape": "i4", "dtype": "i4",
    }  # fmt: skip
    allocation: Array
    since: Array
    role: Array
    name: Array
    shape: Array
    dtype: Array


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Contexts(Table):
    """Where in the program something happened: a tree. Row 0 is the root, outside of everything.

    Attributes:
        parent: index of the enclosing context.
        kind: a `ContextKind`.
        name: index in `Trace.strings`: `encoder.layers.5.linear1`, `aten::addmm`, `forward`, `step`.
        number: a step's index, a module call's count within its parent; 0 elsewhere.
    """

    DTYPES: ClassVar[dict[str, str]] = {"parent": "i4", "kind": "u1", "name": "i4", "number": "i4"}
    parent: Array
    kind: Array
    name: Array
    number: Array


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Spans(Table):
    """Stretches of the run: steps, phases, annotations. They may nest.

    Attributes:
        kind: a `ContextKind` (`STEP`, `PHASE` or `ANNOTATION`).
        name: index in `Trace.strings`: `forward`, `backward`, `optimizer`, `step`, an annotation's text.
        number: a step's index; for a phase the step it belongs to, -1 if none.
        first: index of the first event in it.
        end: index after the last event in it.
        start_us: microseconds since the epoch when it began, 0 if unknown.
        end_us: microseconds since the epoch when it ended, 0 if unknown.
    """

    DTYPES: ClassVar[dict[str, str]] = {
        "kind": "u1", "name": "i4", "number": "i4", "first": "i8", "end": "i8", "start_us": "i8", "end_us": "i8",
    }  # fmt: skip
    kind: Array
    name: Array
    number: Array
    first: Array
    end: Array
    start_us: Array
    end_us: Array


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Frames(Table):
    """Lines of code.

    Attributes:
        filename: index in `Trace.strings`; `??` in frames of C++ without debug information.
        function: index in `Trace.strings`.
        line: line number, 0 if unknown.
    """

    DTYPES: ClassVar[dict[str, str]] = {"filename": "i4", "function": "i4", "line": "i4"}
    filename: Array
    function: Array
    line: Array


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Stacks:
    """Stacks of frames, the innermost frame first. Stack 0 is empty: "not recorded".

    Attributes:
        offsets: stack `i` holds `frames[offsets[i]:offsets[i + 1]]`; one longer than the number of stacks.
        frames: indices in `Trace.frames`.
    """

    offsets: Array
    frames: Array

    @classmethod
    def of(cls, stacks: Sequence[Sequence[int]]) -> Stacks:
        """Build from one sequence of frame indices for each stack; the first one must be empty."""
        assert stacks and not stacks[0], "stack 0 is the empty one"
        offsets = np.zeros(len(stacks) + 1, dtype="i8")
        np.cumsum([len(stack) for stack in stacks], out=offsets[1:])
        flat = np.fromiter((frame for stack in stacks for frame in stack), dtype="i4", count=int(offsets[-1]))
        return cls(offsets=offsets, frames=flat)

    @classmethod
    def empty(cls) -> Stacks:
        """Only the empty stack."""
        return cls.of([()])

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> Array:
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self.frames[self.offsets[index] : self.offsets[index + 1]]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Stacks):
            return NotImplemented
        return np.array_equal(self.offsets, other.offsets) and np.array_equal(self.frames, other.frames)

    __hash__ = None  # type: ignore[assignment]
