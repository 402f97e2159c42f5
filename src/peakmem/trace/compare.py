"""Two traces, or two forecasts, side by side at their peaks: what grew, and which tensors appeared or went."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from peakmem.errors import PeakmemError
from peakmem.trace.holders import UNKNOWN, Describer, Holder, holders, module_of_name
from peakmem.trace.load import load_trace
from peakmem.trace.replay import Replay
from peakmem.trace.roles import Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from peakmem.trace.model import Trace

SUMS = ("requested", "allocated", "active", "reserved", "context", "used")
_LINE_NUMBER = re.compile(r":\d+(?= )|:\d+$")


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """One of the two things compared, in bytes.

    Attributes:
        name: file name, as the user gave it.
        sums: the figures of `SUMS` that are known, each at its own peak over the whole run (as in a forecast).
        roles: allocated at the peak by role, under the names of `Role.word`; empty if unknown.
        holders: what was alive at the peak; empty if the file does not tell.
        largest_only: whether `holders` are the largest alone, layers counted together (a forecast), not all (a trace).
    """

    name: str
    sums: dict[str, int]
    roles: dict[str, int]
    holders: tuple[Holder, ...]
    largest_only: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One figure on both sides, in bytes.

    Attributes:
        name: what it is.
        a: before.
        b: after.
    """

    name: str
    a: int
    b: int

    @property
    def change(self) -> int:
        """After minus before."""
        return self.b - self.a


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorChange:
    """Blocks of one kind (same role, name, module, line, dtype) on both sides; sizes in bytes.

    `shape` is the one after, `shape_a` the one before; they differ where only the shape changed.
    """

    role: str
    name: str
    module: str
    line: str
    shape: tuple[int, ...]
    shape_a: tuple[int, ...]
    dtype: str
    a: int
    b: int
    count_a: int
    count_b: int

    @property
    def change(self) -> int:
        """After minus before."""
        return self.b - self.a

    @property
    def what(self) -> str:
        """`appeared`, `went`, `grew`, `shrank` or `same`."""
        if not self.count_a:
            return "appeared"
        if not self.count_b:
            return "went"
        return "grew" if self.change > 0 else "shrank" if self.change < 0 else "same"


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """What is different.

    Attributes:
        a: before.
        b: after.
        sums: the figures that both sides know.
        roles: by role, largest change first.
        places: by module (by line where no modules are known), largest change first; empty unless both are traces or
            both are forecasts.
        tensors: kinds of blocks that are not the same on both sides, largest change first; empty likewise.
    """

    a: Side
    b: Side
    sums: tuple[Change, ...]
    roles: tuple[Change, ...]
    places: tuple[Change, ...]
    tensors: tuple[TensorChange, ...]


def load_side(path: str | Path) -> Side:
    """Read a trace, a snapshot, or a forecast in JSON.

    Raises:
        PeakmemError: the file is none of these.
    """
    path = Path(path)
    forecast = _read_forecast(path)
    return _forecast_side(path, forecast) if forecast is not None else side_of_trace(load_trace(path), str(path))


def _read_forecast(path: Path) -> dict[str, Any] | None:
    """The JSON object of a forecast; nothing if the file is something else."""
    try:
        with path.open("rb") as stream:
            start = stream.read(4096).lstrip()
            if not start.startswith(b"{") or b"peakmem/" not in start:
                return None
        found = msgspec.json.decode(path.read_bytes())
    except OSError:
        return None  # whoever reads it as a trace says what is wrong
    except msgspec.DecodeError as error:
        raise PeakmemError(f"{path} is damaged JSON: {error}", hint="write it again with --json") from error
    schema = found.get("schema") if isinstance(found, dict) else None
    if not isinstance(schema, str) or not schema.startswith("peakmem/forecast/"):
        raise PeakmemError(
            f"{path} holds {schema!r}, not a forecast", hint="give what peakmem run --json wrote, or a trace"
        )
    return dict(found)


def _forecast_side(path: Path, forecast: dict[str, Any]) -> Side:
    peak = forecast.get("peak")
    if not isinstance(peak, dict):
        raise PeakmemError(f"{path} is a forecast without a peak", hint="write it again with peakmem run --json")
    roles = forecast.get("roles_at_peak")
    return Side(
        name=str(path),
        sums={name: peak[name] for name in SUMS if isinstance(peak.get(name), int)},
        roles={str(k): v for k, v in roles.items() if isinstance(v, int)} if isinstance(roles, dict) else {},
        holders=tuple(_forecast_holders(forecast.get("holders_at_peak"))),
        largest_only=True,
    )


def _forecast_holders(rows: object) -> Iterator[Holder]:
    """The holders that a forecast lists; rows that are not understood are left out."""
    for row in rows if isinstance(rows, list) else ():
        try:
            yield Holder(
                role=Role[str(row["role"]).upper()],
                name=row["name"] or "",
                module=row["module"] or "",
                line=row["line"] or row["op"] or UNKNOWN,
                shape=tuple(row["shape"]),
                dtype=row["dtype"] or "",
                size=row["bytes"],
                requested=row["bytes"],
                count=row["count"],
                since=-1,
            )
        except (KeyError, TypeError):
            continue


def side_of_trace(trace: Trace, name: str) -> Side:
    """A trace as one of two things compared, under a name."""
    replay = Replay(trace)
    peak = replay.peak("allocated")
    found = holders(replay, peak.index, Describer(replay, peak.index))
    roles: dict[str, int] = {}
    if trace.has_roles:
        for holder in found:
            roles[holder.role.word] = roles.get(holder.role.word, 0) + holder.size
    sums = {name: int(getattr(replay.peak(name), name)) for name in ("requested", "allocated", "active", "reserved")}
    if peak.context:  # else not recorded: a sum without it would look like a whole one
        sums |= {"context": peak.context, "used": peak.context + sums["reserved"]}
    return Side(name=name, sums=sums, roles=roles, holders=tuple(found))


def compare(a: Side, b: Side) -> Comparison:
    """Put two sides beside each other."""
    places: tuple[Change, ...] = ()
    tensors: tuple[TensorChange, ...] = ()
    if a.holders and b.holders and a.largest_only == b.largest_only:
        by_module = any(holder.module for holder in (*a.holders, *b.holders))
        places = changes(by_place(a.holders, by_module=by_module), by_place(b.holders, by_module=by_module))
        tensors = _tensors(a.holders, b.holders)
    return Comparison(
        a=a,
        b=b,
        sums=tuple(Change(name=n, a=a.sums[n], b=b.sums[n]) for n in SUMS if n in a.sums and n in b.sums),
        roles=changes(a.roles, b.roles) if a.roles and b.roles else (),
        places=places,
        tensors=tensors,
    )


def changes(a: dict[str, int], b: dict[str, int]) -> tuple[Change, ...]:
    """Sums under the same names beside each other, largest change first."""
    found = [Change(name=name, a=a.get(name, 0), b=b.get(name, 0)) for name in dict.fromkeys((*a, *b))]
    return tuple(sorted(found, key=lambda change: (-abs(change.change), -change.b, change.name)))


def _stable(line: str) -> str:
    """A line without its number: code above it may have moved it."""
    return _LINE_NUMBER.sub("", line)


def by_place(found: Iterable[Holder], *, by_module: bool) -> dict[str, int]:
    """Bytes by module, or by function where no modules are known."""
    sums: dict[str, int] = {}
    for holder in found:
        place = holder.module if by_module else _stable(holder.line)
        if by_module and not place:
            place = module_of_name(holder.role, holder.name)[0] or "outside of modules"
        sums[place] = sums.get(place, 0) + holder.size
    return sums


_Kind = tuple[Role, str, str, str, tuple[int, ...], str]


def _matched(before: dict[_Kind, list[int]], after: dict[_Kind, list[int]]) -> dict[_Kind, tuple[int, ...]]:
    """Find the counterparts of kinds that are on one side only, and give both the newer key.

    First those that only moved within their function, then those that only have another shape, then both. A counterpart
    is taken only where there is exactly one.

    Returns:
        The older shape of the kinds whose shape changed.
    """
    shapes: dict[_Kind, tuple[int, ...]] = {}
    for same_line, same_shape in ((False, True), (True, False), (False, False)):

        def alone(
            these: dict[_Kind, list[int]],
            those: dict[_Kind, list[int]],
            line: bool = same_line,
            shape: bool = same_shape,
        ) -> dict[_Kind, list[_Kind]]:
            found: dict[_Kind, list[_Kind]] = {}
            for key in these:
                if key not in those:
                    loose = (*key[:3], key[3] if line else _stable(key[3]), key[4] if shape else (), key[5])
                    found.setdefault(loose, []).append(key)
            return found

        old, new = alone(before, after), alone(after, before)
        for loose, moved in old.items():
            if len(moved) == 1 and len(new.get(loose, ())) == 1:
                key = new[loose][0]
                before[key] = before.pop(moved[0])
                if key[4] != moved[0][4]:
                    shapes[key] = moved[0][4]
    return shapes


def _tensors(a: Iterable[Holder], b: Iterable[Holder]) -> tuple[TensorChange, ...]:
    def keyed(found: Iterable[Holder]) -> dict[_Kind, list[int]]:
        sums: dict[_Kind, list[int]] = {}
        for holder in found:
            key = (holder.role, holder.name, holder.module, holder.line, holder.shape, holder.dtype)
            entry = sums.setdefault(key, [0, 0])
            entry[0] += holder.size
            entry[1] += holder.count
        return sums

    before, after = keyed(a), keyed(b)
    shapes = _matched(before, after)
    made = []
    for key in dict.fromkeys((*before, *after)):
        role, name, module, line, shape, dtype = key
        old, new = before.get(key, [0, 0]), after.get(key, [0, 0])
        if old == new:
            continue
        made.append(
            TensorChange(
                role=role.word,
                name=name,
                module=module,
                line=line,
                shape=shape,
                shape_a=shapes.get(key, shape),
                dtype=dtype,
                a=old[0],
                b=new[0],
                count_a=old[1],
                count_b=new[1],
            )
        )
    return tuple(sorted(made, key=lambda t: (-abs(t.change), t.role, t.name, t.module, t.line)))
