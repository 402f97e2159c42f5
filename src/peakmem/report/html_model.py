"""What the HTML report shows, as plain data. All sizes are bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from peakmem.report.html_segments import SegmentMap
from peakmem.trace.model import HostLine

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, kw_only=True, slots=True)
class Statement:
    """The sums at one moment. They close: see `Moment`.

    Attributes:
        title: which moment it is.
        moment: number of events that have happened.
        step: number of the step, -1 outside of steps.
        phase: name of the phase, may be empty.
        capacity: bytes that the process may take, 0 if unknown.
    """

    title: str
    moment: int
    step: int
    phase: str
    requested: int
    rounding: int
    allocated: int
    pending: int
    active: int
    stranded: int
    reserved: int
    context: int
    used: int
    capacity: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """A colour of the report: a role, or (when no roles are known) a line.

    Attributes:
        key: stable name, decides the colour.
        title: as printed.
        at_peak: bytes allocated at the peak.
    """

    key: str
    title: str
    at_peak: int


@dataclass(frozen=True, kw_only=True, slots=True)
class TimelineData:
    """Samples of the run. All lists have one entry for each sample.

    Attributes:
        moment: number of events that have happened.
        time_us: microseconds from the first event, empty if the trace has no times.
        groups: allocated bytes, one list for each group; at each sample they add up to `allocated`.
        allocated: bytes.
        pending: bytes freed, but waiting for another stream.
        reserved: bytes.
        action: what the last event was.
        size: bytes of the last event.
        where: index in `ReportData.texts` of what the last event's block was.
    """

    moment: list[int]
    time_us: list[int]
    groups: list[list[int]]
    allocated: list[int]
    pending: list[int]
    reserved: list[int]
    action: list[str]
    size: list[int]
    where: list[int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Band:
    """A step, a phase or an annotation over the timeline; `first` and `end` are moments."""

    kind: str
    title: str
    first: int
    end: int


@dataclass(kw_only=True, slots=True)
class Node:
    """A part of the tree of holders.

    Attributes:
        name: what it is.
        size: bytes at the peak, with all parts.
        group: index of a group, -1 if it has parts of several.
        parts: its parts, the largest first.
    """

    name: str
    size: int = 0
    group: int = -2
    parts: list[Node] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportData:
    """Everything in the page. `groups` are roles if `by_role`, else lines of code."""

    schema: str
    peakmem: str
    title: str
    source: str
    torch: str
    framework: str
    command: str
    device: str
    alloc_conf: str
    events: int
    notes: list[str]
    host: tuple[HostLine, ...]
    by_role: bool
    groups: list[Group]
    statements: list[Statement]
    timeline: TimelineData
    bands: list[Band]
    segments: SegmentMap
    tree: Node
    holders: list[dict[str, Any]]
    holders_left: dict[str, int]
    texts: list[str]
