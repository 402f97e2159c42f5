"""What the HTML report shows, as plain data: it is embedded in the page as JSON, and the page draws it.

All sizes are bytes. Long runs are thinned out for drawing: of each stretch of events the moments with the least and the
most allocated are kept, and the peaks always.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from peakmem import __version__
from peakmem.report.html_model import Band, Group, Node, ReportData, Statement, TimelineData
from peakmem.report.html_segments import segment_map
from peakmem.report.role_colors import STACKING
from peakmem.trace.holders import BEFORE, UNKNOWN, Describer, Holder, alike, holders, module_of_name
from peakmem.trace.perfetto import event_times
from peakmem.trace.replay import Moment, Replay
from peakmem.trace.roles import Action, ContextKind, Role

if TYPE_CHECKING:
    from peakmem.trace.model import Trace
    from peakmem.trace.tables import Array

_SAMPLES = 4000
_LINES = 9
_HOLDERS = 200
_SMALLEST_NODE = 1 / 4000


class Texts:
    """Distinct texts by number; the page holds each once."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {"": 0}

    def number(self, text: str) -> int:
        """Number of a text."""
        return self._numbers.setdefault(text, len(self._numbers))

    @property
    def all(self) -> list[str]:
        """The texts in the order of their numbers."""
        return list(self._numbers)


def report_data(trace: Trace, *, title: str, device: int | None = None) -> ReportData:
    """Work out what the page shows.

    Args:
        trace: the trace.
        title: of the page, usually the file's name.
        device: which device; by default the one that held most.
    """
    replay = Replay(trace, device)
    peak = replay.peak("allocated")
    describe = Describer(replay, peak.index)
    texts = Texts()
    member, groups = _groups(replay, describe, peak.index)
    found = alike(holders(replay, peak.index, describe))
    info = trace.device_info(replay.device)
    notes = list(trace.meta.notes)
    if len(trace.device_indices) > 1:
        notes.append(f"the process used {len(trace.device_indices)} devices; this page shows cuda:{replay.device}")
    if trace.meta.lost_events:
        notes.append("the recording does not begin with the first allocation; what was held before is shown as such")
    if not trace.has_roles:
        notes.append("this trace has no roles (a PyTorch snapshot holds none): colours are lines of code")
    return ReportData(
        schema="peakmem/report/1",
        peakmem=__version__,
        title=title,
        source=trace.meta.source,
        torch=trace.meta.torch,
        framework=trace.meta.framework,
        command=" ".join(trace.meta.command),
        device=f"cuda:{replay.device} {info.name}".strip(),
        alloc_conf=trace.meta.alloc_conf,
        events=len(trace.events),
        notes=notes,
        host=trace.meta.host,
        by_role=trace.has_roles,
        groups=groups,
        statements=_statements(replay, peak, info.capacity),
        timeline=_timeline(replay, member, len(groups), describe, texts, peak.index),
        bands=_bands(trace),
        segments=segment_map(replay, peak.index, member, describe, texts),
        tree=_tree(replay, peak.index, member, describe),
        holders=[_holder(holder) for holder in found[:_HOLDERS]],
        holders_left={
            "count": sum(holder.count for holder in found[_HOLDERS:]),
            "size": sum(holder.size for holder in found[_HOLDERS:]),
        },
        texts=texts.all,
    )


def _statements(replay: Replay, peak: Moment, capacity: int) -> list[Statement]:
    reserved = replay.peak("reserved")
    moments = [("peak of allocated", peak)]
    if reserved.reserved != peak.reserved:
        moments.append(("peak of reserved", reserved))
    moments.append(("end of the run", replay.at(len(replay) - 1)))
    trace = replay.trace
    made = []
    for title, moment in moments:
        context = int(trace.events.context[moment.index - 1]) if moment.index else 0
        made.append(
            Statement(
                title=title,
                moment=moment.index,
                step=_step_at(trace, moment.index, context),
                phase=trace.context_name(context, ContextKind.PHASE),
                requested=moment.requested,
                rounding=moment.rounding,
                allocated=moment.allocated,
                pending=moment.pending,
                active=moment.active,
                stranded=moment.stranded,
                reserved=moment.reserved,
                context=moment.context,
                used=moment.used,
                capacity=capacity,
            )
        )
    return made


def _step_at(trace: Trace, moment: int, context: int) -> int:
    step = trace.context_step(context)
    if step >= 0:
        return step
    spans = trace.spans
    inside = (spans.kind == ContextKind.STEP) & (spans.first < moment) & (spans.end >= moment)
    return int(spans.number[np.argmax(inside)]) if inside.any() else -1


def _groups(replay: Replay, describe: Describer, moment: int) -> tuple[Array, list[Group]]:
    """For each allocation its group, and the groups: roles that occur, or the lines that hold most at the peak."""
    blocks = replay.allocations
    alive = replay.alive(moment)
    if replay.trace.has_roles:
        roles = replay.roles(moment)
        present = [role for role in STACKING if np.any(roles == role)]
        number = np.zeros(len(Role), dtype="i8")
        number[present] = np.arange(len(present))
        member = number[roles]
        names = [(role.word, role.title) for role in present]
    else:
        lines = _lines(replay, describe)
        sums: dict[str, int] = {}
        for allocation in alive.tolist():
            sums[lines[allocation]] = sums.get(lines[allocation], 0) + int(blocks.size[allocation])
        special = (BEFORE, UNKNOWN)
        top = [line for line in sorted(sums, key=lambda line: -sums[line]) if line not in special][:_LINES]
        order = [line for line in special if line in sums] + top
        numbers = {line: index for index, line in enumerate(order)}
        member = np.asarray([numbers.get(line, len(order)) for line in lines], dtype="i8").reshape(-1)
        names = [
            ({BEFORE: "before", UNKNOWN: "unknown"}.get(line, f"line{index}"), line) for index, line in enumerate(order)
        ]
        names.append(("other", "other lines"))
    at_peak = np.zeros(len(names), dtype="i8")
    np.add.at(at_peak, member[alive], blocks.size[alive])
    return member, [
        Group(key=key, title=title, at_peak=int(size)) for (key, title), size in zip(names, at_peak, strict=True)
    ]


def _lines(replay: Replay, describe: Describer) -> list[str]:
    """The line of each allocation. They depend on few things, so each combination is worked out once."""
    blocks = replay.allocations
    known: dict[tuple[int, int, bool], str] = {}
    lines = []
    for number, key in enumerate(
        zip(blocks.stack.tolist(), blocks.context.tolist(), (blocks.born < 0).tolist(), strict=True)
    ):
        if key not in known:
            known[key] = describe.line(number)
        lines.append(known[key])
    return lines


def _samples(replay: Replay) -> Array:
    """Moments to draw."""
    count = len(replay)
    if count <= _SAMPLES:
        return np.arange(count)
    line = replay.timeline
    edges = np.linspace(0, count, _SAMPLES // 2 + 1).astype("i8")
    picked = [0, count - 1, replay.peak_moment("reserved"), replay.peak_moment("active")]
    picked += [replay.peak_moment("allocated"), replay.peak_moment("requested")]
    for start, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        stretch = line.allocated[start:end]
        picked += [start + int(np.argmax(stretch)), start + int(np.argmin(stretch))]
    return np.unique(picked)


def _timeline(replay: Replay, member: Array, count: int, describe: Describer, texts: Texts, peak: int) -> TimelineData:
    moments = _samples(replay)
    trace, line = replay.trace, replay.timeline
    if trace.has_roles:
        roles = replay.by_role()
        order = [role for role in STACKING if np.any(replay.roles(peak) == role)]
        groups = roles[order][:, moments]
        missing = line.allocated[moments] - groups.sum(axis=0)
        groups[-1] += missing  # roles that occur at other moments only
    else:
        groups = replay.by_group(member, count)[:, moments]
    events = trace.events
    actions = [action.word for action in Action]
    last = np.maximum(moments - 1, 0)
    where = []
    for moment in moments.tolist():
        text = ""
        if moment:
            place = describe.places.of(int(events.stack[moment - 1])).short
            module = describe.module_of(int(events.context[moment - 1]))
            text = " · ".join(dict.fromkeys(part for part in (module, place) if part))
        where.append(texts.number(text))
    some = len(events) > 0
    return TimelineData(
        moment=moments.tolist(),
        time_us=event_times(trace)[moments].tolist() if some and events.time_us.any() else [],
        groups=groups.tolist(),
        allocated=line.allocated[moments].tolist(),
        pending=(line.active - line.allocated)[moments].tolist(),
        reserved=line.reserved[moments].tolist(),
        action=[
            actions[action] if moment else ""
            for action, moment in zip(events.action[last].tolist(), moments.tolist(), strict=True)
        ]
        if some
        else [""],
        size=events.size[last].tolist() if some else [0],
        where=where,
    )


def _bands(trace: Trace) -> list[Band]:
    spans = trace.spans
    made = []
    for row in range(len(spans)):
        kind = ContextKind(int(spans.kind[row]))
        title = trace.strings[int(spans.name[row])]
        if kind is ContextKind.STEP:
            title = f"step {int(spans.number[row]) + 1}"
        made.append(Band(kind=kind.name.lower(), title=title, first=int(spans.first[row]), end=int(spans.end[row])))
    return made[:5000]


def _tree(replay: Replay, moment: int, member: Array, describe: Describer) -> Node:
    """The holders as a tree: by role and module, or (without roles) by the user's frames from the outermost."""
    blocks = replay.allocations
    root = Node(name="allocated at the peak")
    index: dict[int, dict[str, Node]] = {}
    for allocation in replay.alive(moment).tolist():
        size, group = int(blocks.size[allocation]), int(member[allocation])
        node = root
        for step in (None, *_path(replay, describe, allocation)):
            if step is not None:
                parts = index.setdefault(id(node), {})
                if step not in parts:
                    parts[step] = Node(name=step)
                    node.parts.append(parts[step])
                node = parts[step]
            node.size += size
            node.group = group if node.group in (-2, group) else -1
    _prune(root, root.size * _SMALLEST_NODE)
    return root


def _path(replay: Replay, describe: Describer, allocation: int) -> list[str]:
    line = describe.line(allocation)
    if not replay.trace.has_roles:
        where = describe.places.of(int(replay.allocations.stack[allocation]))
        return list(where.path) or [line]
    role = describe.role(allocation)
    module, name = module_of_name(role, describe.name(allocation))
    if not module:
        module, name = describe.module(allocation), name if role in (Role.PARAMETER, Role.BUFFER) else ""
    return [role.title, *(re.split("[./]", module) if module else []), name or line]


def _prune(node: Node, smallest: float) -> None:
    """Put parts that are too small to be drawn together."""
    node.parts.sort(key=lambda part: -part.size)
    small = [part for part in node.parts if part.size < smallest]
    if len(small) > 1:
        groups = {part.group for part in small}
        rest = Node(name=f"{len(small)} smaller", size=sum(part.size for part in small))
        rest.group = groups.pop() if len(groups) == 1 else -1
        node.parts = [part for part in node.parts if part.size >= smallest] + [rest]
    for part in node.parts:
        _prune(part, smallest)


def _holder(holder: Holder) -> dict[str, Any]:
    return {
        "role": holder.role.word,
        "title": holder.role.title,
        "name": holder.name,
        "module": holder.module,
        "line": holder.line,
        "shape": list(holder.shape),
        "dtype": holder.dtype,
        "size": holder.size,
        "requested": holder.requested,
        "count": holder.count,
        "since": holder.since,
    }
