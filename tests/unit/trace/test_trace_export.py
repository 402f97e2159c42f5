from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trace_samples import DATA

from peakmem.errors import PeakmemError
from peakmem.trace.load import load_trace
from peakmem.trace.model import Trace
from peakmem.trace.perfetto import to_perfetto, write_perfetto
from peakmem.trace.replay import Replay
from peakmem.trace.snapshot_write import to_snapshot, write_snapshot


def meaning(trace: Trace) -> dict[str, Any]:
    """A trace without the numbering of its strings, frames and stacks."""

    def columns(table: Any) -> dict[str, Any]:
        return {
            name: [trace.stack(i) for i in getattr(table, name).tolist()]
            if name == "stack"
            else [trace.strings[i] for i in getattr(table, name).tolist()]
            if name == "name"
            else getattr(table, name).tolist()
            for name in table.DTYPES
        }

    tables = (trace.events, trace.initial, trace.initial_segments, trace.spans)
    return {"meta": trace.meta, **{type(table).__name__: columns(table) for table in tables}}


def test_an_exported_snapshot_imports_as_the_same_trace(tmp_path: Path, snapshot_name: str) -> None:
    trace = load_trace(DATA / f"{snapshot_name}.pickle")
    again = load_trace(write_snapshot(trace, tmp_path / "again.pickle"))
    assert again.events.size.tolist() == trace.events.size.tolist()
    assert meaning(again) == meaning(trace)


def test_an_exported_snapshot_has_the_structure_of_pytorchs_own(snapshot_name: str) -> None:
    with (DATA / f"{snapshot_name}.pickle").open("rb") as stream:
        original = pickle.load(stream)
    made = to_snapshot(load_trace(DATA / f"{snapshot_name}.pickle"))
    assert set(made) == {"segments", "device_traces", "allocator_settings", "external_annotations"}
    assert len(made["segments"]) == len(original["segments"])
    for ours, theirs in zip(made["segments"], sorted(original["segments"], key=lambda s: s["address"]), strict=True):
        assert set(ours) == set(theirs)
        scalars = [key for key in theirs if key not in ("blocks", "frames", "is_expandable")]
        assert {key: ours[key] for key in scalars} == {key: theirs[key] for key in scalars}
        used = [
            [{key: block[key] for key in ("address", "size", "requested_size", "state")} for block in segment["blocks"]
             if block["state"] != "inactive"]
            for segment in (ours, theirs)
        ]  # fmt: skip
        assert used[0] == used[1]
        assert sum(block["size"] for block in ours["blocks"]) == ours["total_size"]
    for ours, theirs in zip(made["device_traces"][0], original["device_traces"][0], strict=True):
        assert ours == {key: theirs[key] for key in ours}
    assert made["allocator_settings"] == original["allocator_settings"]
    assert made["external_annotations"] == original["external_annotations"]


def test_equal_stacks_are_one_object_in_the_pickle() -> None:
    made = to_snapshot(load_trace(DATA / "plain.pickle"))
    stacks = {id(event["frames"]) for event in made["device_traces"][0]}
    assert len(stacks) < len(made["device_traces"][0]) / 4


def test_counter_tracks_end_at_the_sums_of_the_replay(snapshot_name: str) -> None:
    trace = load_trace(DATA / f"{snapshot_name}.pickle")
    replay = Replay(trace)
    made = json.loads(json.dumps(to_perfetto(trace)))
    counters: dict[str, list[dict[str, Any]]] = {}
    for event in made["traceEvents"]:
        if event["ph"] == "C":
            counters.setdefault(event["name"], []).append(event)
    assert set(counters) == {"allocated", "active", "reserved"}
    for name, samples in counters.items():
        times = [sample["ts"] for sample in samples]
        assert times == sorted(set(times))
        assert samples[-1]["args"]["bytes"] == getattr(replay.timeline, name)[-1]
        assert max(sample["args"]["bytes"] for sample in samples) <= getattr(replay.timeline, name).max()


def test_annotations_are_slices_that_hold_their_events() -> None:
    trace = load_trace(DATA / "plain.pickle")
    slices = [event for event in to_perfetto(trace)["traceEvents"] if event["ph"] == "X"]
    assert [s["name"] for s in slices].count("Optimizer.step#AdamW.step") == 4
    times = trace.events.time_us - trace.events.time_us[0]
    for one in slices:
        first, end = one["args"]["first_event"], one["args"]["end_event"]
        assert one["dur"] >= 0
        assert np.all(times[first:end] >= one["ts"]) and np.all(times[first:end] <= one["ts"] + one["dur"])


@pytest.mark.parametrize("write", [write_snapshot, write_perfetto])
def test_an_export_does_not_replace_a_file(tmp_path: Path, write: Any) -> None:
    path = tmp_path / "x"
    path.write_text("precious")
    with pytest.raises(PeakmemError, match="exists already"):
        write(load_trace(DATA / "plain.pickle"), path)
    assert path.read_text() == "precious"
    write(load_trace(DATA / "plain.pickle"), path, force=True)
    assert path.stat().st_size > 1000
