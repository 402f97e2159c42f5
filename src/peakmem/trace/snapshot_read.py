"""From a PyTorch memory snapshot to a `Trace`."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

import numpy as np

from peakmem.errors import PeakmemError
from peakmem.trace.blocks import derive
from peakmem.trace.builder import Interner
from peakmem.trace.model import DeviceInfo, Trace, TraceMeta
from peakmem.trace.roles import Action, ContextKind
from peakmem.trace.split_rules import SplitRules
from peakmem.trace.tables import Blocks, Events, Segments, Spans

if TYPE_CHECKING:
    from collections.abc import Mapping

_ACTIONS = {action.word: int(action) for action in Action} | {"free": int(Action.FREE_COMPLETED)}
_HINT = "give a file that torch.cuda.memory._dump_snapshot() wrote"
_LIMIT = 1 << 63


class SnapshotBuilder:
    """Collects the parts of a snapshot in compact columns, in whatever order a reader meets them."""

    def __init__(self) -> None:
        self.interner = Interner()
        self._action = array("B")
        self._address, self._size, self._stream, self._time_us = array("q"), array("q"), array("q"), array("q")
        self._stack = array("i")
        self._unknown_actions: set[str] = set()

    def take(self, item: dict[Any, Any]) -> Any:
        """Take in a complete dict of the snapshot: an event becomes its number, a frame stays as a reference to a line.

        Returns:
            What stands for it from now on; other dicts are returned as they are.
        """
        if "action" in item:
            return self.add_event(item)
        if "filename" in item and "line" in item and len(item) <= 4 and getattr(item, "reference", None) is not None:
            item.reference = self.add_frame(item)  # type: ignore[attr-defined]
            item.clear()
        elif "frames" in item:
            item["frames"] = self.add_stack(item["frames"])
        return item

    def add_event(self, item: Mapping[str, Any]) -> int:
        """Add one event of a `device_traces` list; returns its number."""
        action = item["action"]
        code = _ACTIONS.get(action)
        if code is None:
            self._unknown_actions.add(str(action))
            code = int(Action.OTHER)
        get = item.get
        address = get("addr")
        if address is None:
            address = get("device_free", 0)
        frames = get("frames")
        known = getattr(frames, "reference", -1)
        self._address.append(address if address < _LIMIT else address - 2 * _LIMIT)
        self._size.append(get("size", 0))
        self._stream.append(get("stream", 0))
        self._time_us.append(get("time_us", 0))
        self._stack.append(known if known >= 0 else self.add_stack(frames))
        self._action.append(code)
        return len(self._action) - 1

    def add_frame(self, item: Mapping[str, Any]) -> int:
        """Index of a frame."""
        return self.interner.frame(str(item["filename"]), int(item["line"]), str(item.get("name", "")))

    def add_stack(self, frames: Any) -> int:
        """Index of a list of frames."""
        if isinstance(frames, int):
            return frames
        if not frames and getattr(frames, "reference", -1) < 0:
            return 0
        known: int = getattr(frames, "reference", -1)
        if known >= 0:
            return known
        ids = [
            reference if (reference := getattr(frame, "reference", -1)) >= 0 else self.add_frame(frame)
            for frame in frames
        ]
        index = self.interner.stack(ids)
        if hasattr(frames, "reference"):
            frames.reference = index
            frames.clear()
        return index

    def build(self, root: Any, *, name: str) -> Trace:
        """Make the trace.

        Args:
            root: the snapshot; its events may already be numbers that `take` gave.
            name: of the file, for messages.

        Raises:
            PeakmemError: it is not a snapshot.
        """
        if isinstance(root, list):  # torch.cuda.memory_snapshot() of 1.4 to 1.12: the segments alone
            root = {"segments": root}
        if not isinstance(root, dict) or not isinstance(root.get("segments"), list):
            raise PeakmemError(f"{name} holds data, but no memory snapshot", hint=_HINT)
        try:
            return self._build(root)
        except (KeyError, TypeError, AttributeError, OverflowError, ValueError, IndexError) as error:
            if isinstance(error, PeakmemError):
                raise
            raise PeakmemError(
                f"{name} looks like a memory snapshot, but a part is missing or odd ({type(error).__name__}: {error})",
                hint=_HINT,
            ) from error

    def _build(self, root: Mapping[str, Any]) -> Trace:
        traces = root.get("device_traces") or []
        order: list[int] = []
        devices: list[int] = []
        for device, items in enumerate(traces):
            rows = [item if isinstance(item, int) else self.add_event(item) for item in items]
            order.extend(rows)
            devices.extend([device] * len(rows))
        events = self._events(order, devices)
        pools: dict[tuple[int, int], int] = {(0, 0): 0}
        segments, blocks = self._final(root["segments"], pools)
        raw_settings = root.get("allocator_settings")
        settings = dict(raw_settings) if isinstance(raw_settings, dict) else {}
        if not settings and (np.any(segments.expandable) or np.any(events.action == Action.SEGMENT_MAP)):
            settings["expandable_segments"] = True
        found = derive(events, blocks, segments, SplitRules.from_settings(settings))
        events = Events.of({n: getattr(events, n) for n in Events.DTYPES} | {"block_size": found.block_size})
        notes = []
        if found.disagreements:
            notes.append(
                f"{found.disagreements:,} of {len(events):,} events contradict the memory as it was then: the history "
                "has holes, figures before its end are approximate"
            )
        if self._unknown_actions:
            notes.append(
                "events of unknown kinds are kept but not understood: " + ", ".join(sorted(self._unknown_actions))
            )
        seen = np.unique(np.concatenate([events.device, segments.device])).tolist()
        conf = settings.get("PYTORCH_CUDA_ALLOC_CONF", settings.get("PYTORCH_ALLOC_CONF", ""))
        return Trace(
            meta=TraceMeta(
                source="snapshot",
                alloc_conf=str(conf or ""),
                settings=_plain(settings),
                devices=tuple(DeviceInfo(index=device) for device in seen),
                pools=tuple(pools),
                lost_events=bool(len(found.initial)),
                notes=tuple(notes),
                created_us=int(events.time_us[-1]) if len(events) else 0,
            ),
            events=events,
            initial=found.initial,
            initial_segments=found.initial_segments,
            spans=self._annotations(root.get("external_annotations") or [], events),
            frames=self.interner.frames,
            stacks=self.interner.stacks,
            strings=self.interner.strings,
        )

    def _events(self, order: list[int], devices: list[int]) -> Events:
        rows = np.asarray(order, dtype="i8")
        numbers = {"address": self._address, "size": self._size, "stream": self._stream, "time_us": self._time_us}
        column = {name: np.frombuffer(values, dtype="i8")[rows] if len(rows) else np.zeros(0, "i8")
                  for name, values in numbers.items()}  # fmt: skip
        device = np.asarray(devices, dtype="i2")
        action = np.asarray(self._action, dtype="u1")[rows]
        stack = np.asarray(self._stack, dtype="i4")[rows]
        if len(set(devices)) > 1:  # PyTorch keeps one history for each device; time puts them into one order
            by_time = np.argsort(column["time_us"], kind="stable")
            column = {name: values[by_time] for name, values in column.items()}
            device, action, stack = device[by_time], action[by_time], stack[by_time]
        column["address"] = column["address"].view("u8")
        return Events.of({**column, "action": action, "device": device, "stack": stack})

    def _final(self, items: list[Any], pools: dict[tuple[int, int], int]) -> tuple[Segments, Blocks]:
        segments, blocks = [], []
        for item in items:
            first, second = item.get("segment_pool_id", (0, 0))
            segments.append(
                {
                    "address": item["address"],
                    "size": item["total_size"],
                    "stream": item.get("stream", 0),
                    "device": item["device"],
                    "small": int(item.get("segment_type") == "small"),
                    "expandable": int(bool(item.get("is_expandable", False))),
                    "pool": pools.setdefault((first, second), len(pools)),
                    "stack": self.add_stack(item.get("frames")),
                }
            )
            at = item["address"]
            for block in item["blocks"]:
                if block["state"] != "inactive":
                    blocks.append(self._block(block, at, item))
                at += block["size"]
        return Segments.from_rows(segments), Blocks.from_rows(blocks)

    def _block(self, block: Mapping[str, Any], address: int, segment: Mapping[str, Any]) -> dict[str, int]:
        history = block.get("history") or []  # 2.0: the last allocation comes first
        newest = history[0] if history else {}
        return {
            "address": address,
            "size": block["size"],
            "requested": block.get("requested_size", newest.get("real_size", block["size"])),
            "stream": segment.get("stream", 0),
            "device": segment["device"],
            "pending": int(block["state"] != "active_allocated"),
            "stack": self.add_stack(block.get("frames", newest.get("frames"))),
        }

    def _annotations(self, items: list[Any], events: Events) -> Spans:
        """Spans from the START and END marks of `torch.profiler.record_function`, matched like brackets."""
        rows: list[dict[str, int]] = []
        open_marks: dict[tuple[int, str], list[int]] = {}
        for item in sorted(items, key=lambda item: int(item["time_us"])):
            key = (item.get("device", 0), item["name"])
            if item["stage"] == "START":
                open_marks.setdefault(key, []).append(item["time_us"])
            elif open_marks.get(key):
                start = open_marks[key].pop()
                first, end = np.searchsorted(events.time_us, [start, item["time_us"]], side="left").tolist()
                name = self.interner.string(str(item["name"]))
                rows.append(
                    {
                        "kind": ContextKind.ANNOTATION,
                        "name": name,
                        "number": -1,
                        "first": first,
                        "end": end,
                        "start_us": start,
                        "end_us": item["time_us"],
                    }
                )
        return Spans.from_rows(sorted(rows, key=lambda row: (row["first"], -row["end"])))


def _plain(value: dict[Any, Any]) -> dict[str, object]:
    """Settings as JSON can hold them."""
    return {
        str(key): _plain(item) if isinstance(item, dict) else item
        for key, item in value.items()
        if isinstance(item, dict | str | int | float | bool) or item is None
    }
