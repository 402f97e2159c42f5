"""Import of PyTorch snapshots: every figure is compared with PyTorch's own counters or a replay that shares no code."""

from __future__ import annotations

import base64
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trace_samples import DATA, real_snapshots

from peakmem.errors import PeakmemError
from peakmem.trace.load import load_trace
from peakmem.trace.replay import Replay
from peakmem.trace.roles import Action

SUMS = ("requested", "allocated", "active", "reserved")


def test_sums_at_the_end_equal_pytorchs_counters(snapshot_name: str, figures: dict[str, dict[str, int]]) -> None:
    replay = Replay(load_trace(DATA / f"{snapshot_name}.pickle"))
    end = replay.at(len(replay) - 1)
    assert {name: getattr(end, name) for name in SUMS} == {name: figures[name]["current"] for name in SUMS}


def test_peaks_equal_pytorchs_counters(snapshot_name: str, figures: dict[str, dict[str, int]]) -> None:
    replay = Replay(load_trace(DATA / f"{snapshot_name}.pickle"))
    if snapshot_name == "ring":
        pytest.skip("the peak may lie in the part that the ring lost")
    peaks = {name: getattr(replay.peak(name), name) for name in SUMS}
    assert peaks == {name: figures[name]["peak"] for name in SUMS}


def test_a_history_that_lost_its_beginning_gives_the_same_end_of_the_timeline() -> None:
    whole = Replay(load_trace(DATA / "plain.pickle"))
    part_trace = load_trace(DATA / "ring.pickle")
    part = Replay(part_trace)
    assert len(part) == 151 < len(whole)
    assert part_trace.meta.lost_events
    for name in SUMS:
        assert np.array_equal(getattr(part.timeline, name), getattr(whole.timeline, name)[-151:]), name


def test_no_event_contradicts_the_memory_it_meets(snapshot_name: str) -> None:
    assert load_trace(DATA / f"{snapshot_name}.pickle").meta.notes == ()


def simple_replay(snapshot: dict[str, Any]) -> dict[str, int]:
    """Requested and reserved bytes from the raw events with a running sum from the end backwards; shares no code."""
    requested = sum(
        block["requested_size"] for segment in snapshot["segments"] for block in segment["blocks"]
        if block["state"] == "active_allocated"
    )  # fmt: skip
    reserved = sum(segment["total_size"] for segment in snapshot["segments"])
    highest = {"requested": requested, "reserved": reserved}
    for event in reversed(next(events for events in snapshot["device_traces"] if events)):
        action, size = event["action"], event.get("size", 0)
        requested += {"alloc": -size, "free_requested": size}.get(action, 0)
        reserved += {"segment_alloc": -size, "segment_map": -size, "segment_free": size, "segment_unmap": size}.get(
            action, 0
        )
        highest = {"requested": max(highest["requested"], requested), "reserved": max(highest["reserved"], reserved)}
    return {**highest, "first_requested": requested, "first_reserved": reserved}


def check_against_simple_replay(path: Path) -> None:
    with path.open("rb") as stream:
        snapshot = pickle.load(stream)  # a file of our own, or one named by whoever runs the tests
    replay = Replay(load_trace(path))
    first = replay.at(0)
    assert simple_replay(snapshot) == {
        "requested": replay.peak("requested").requested,
        "reserved": replay.peak("reserved").reserved,
        "first_requested": first.requested,
        "first_reserved": first.reserved,
    }
    # The blocks at the end, whose true sizes the snapshot holds, are the derived ones.
    blocks = replay.allocations
    alive = replay.alive(len(replay) - 1, include_pending=True)
    derived = dict(zip(blocks.address[alive].tolist(), blocks.size[alive].tolist(), strict=True))
    true = {
        block["address"]: block["size"] for segment in snapshot["segments"] for block in segment["blocks"]
        if block["state"] != "inactive"
    }  # fmt: skip
    assert derived == true
    held = replay.segments(len(replay) - 1)
    assert dict(zip(held.address.tolist(), held.size.tolist(), strict=True)) == {
        segment["address"]: segment["total_size"] for segment in snapshot["segments"]
    }


def test_an_independent_replay_agrees(snapshot_name: str) -> None:
    check_against_simple_replay(DATA / f"{snapshot_name}.pickle")


@pytest.mark.parametrize("path", real_snapshots(), ids=lambda path: path.stem)
def test_an_independent_replay_agrees_on_real_snapshots(path: Path) -> None:
    check_against_simple_replay(path)


@pytest.mark.parametrize(
    ("name", "peak_of", "gib"),
    [
        ("transformer_fullstep_ctx128_torch26", "reserved", 56.914),
        ("transformer_forward_bf16_ctx512_torch26", "allocated", 37.2498),
        ("transformer_forward_bf16_ctx512_torch26", "reserved", 37.732),
        ("older_format", "requested", 103.2 / 1024),
        ("older_format", "reserved", 128 / 1024),
    ],
)
def test_peaks_of_real_snapshots_equal_the_published_figures(name: str, peak_of: str, gib: float) -> None:
    path = next((path for path in real_snapshots() if path.stem == name), None)
    if path is None:
        pytest.skip("PEAKMEM_SNAPSHOTS does not name the folder with the real snapshots")
    assert getattr(Replay(load_trace(path)).peak(peak_of), peak_of) / 2**30 == pytest.approx(gib, rel=2e-5 * 30)


def test_sums_close_at_every_moment(snapshot_name: str) -> None:
    replay = Replay(load_trace(DATA / f"{snapshot_name}.pickle"))
    blocks = replay.allocations
    for moment in range(0, len(replay), 7):
        at = replay.at(moment)
        assert at.reserved == at.active + at.stranded
        assert at.stranded >= 0 and at.rounding >= 0 and at.pending >= 0
        assert blocks.size[replay.alive(moment)].sum() == at.allocated
        assert blocks.requested[replay.alive(moment)].sum() == at.requested
        assert blocks.size[replay.alive(moment, include_pending=True)].sum() == at.active
        assert replay.segments(moment).size.sum() == at.reserved


def test_blocks_lie_inside_their_segments_and_never_overlap(snapshot_name: str) -> None:
    replay = Replay(load_trace(DATA / f"{snapshot_name}.pickle"))
    blocks = replay.allocations
    for moment in range(0, len(replay), 11):
        alive = replay.alive(moment, include_pending=True)
        order = alive[np.argsort(blocks.address[alive])]
        start = blocks.address[order].astype("i8")
        end = start + blocks.size[order]
        assert np.all(end[:-1] <= start[1:])
        held = replay.segments(moment)
        which = np.searchsorted(held.address.astype("i8"), start, side="right") - 1
        assert np.all(end <= (held.address.astype("i8") + held.size)[which])


def test_blocks_that_wait_for_a_stream_are_active_but_not_allocated() -> None:
    replay = Replay(load_trace(DATA / "streams.pickle"))
    assert max(replay.timeline.active - replay.timeline.allocated) > 0


def test_frames_and_settings_are_kept() -> None:
    trace = load_trace(DATA / "rounded.pickle")
    assert trace.meta.alloc_conf == "roundup_power2_divisions:4"
    files = {trace.stack(index)[-1].filename for index in range(1, len(trace.stacks))}
    assert "project/train.py" in files
    segments = np.flatnonzero(trace.events.action == Action.SEGMENT_ALLOC)
    first = trace.stack(int(trace.events.stack[segments[0]]))
    assert any(frame.function == "work" and frame.line > 0 for frame in first)


def as_old_list(snapshot: dict[str, Any]) -> list[dict[str, Any]]:
    """The list that torch.cuda.memory_snapshot() of 1.4 to 1.12 gave: no addresses of blocks, no requested sizes."""
    return [
        {
            "device": 0, "address": segment["address"], "total_size": segment["total_size"],
            "allocated_size": segment["allocated_size"], "active_size": segment["active_size"],
            "segment_type": segment["segment_type"],
            "blocks": [{"size": block["size"], "state": block["state"]} for block in segment["blocks"]],
        }
        for segment in snapshot["segments"]
    ]  # fmt: skip


def plain_snapshot() -> dict[str, Any]:
    with (DATA / "plain.pickle").open("rb") as stream:
        snapshot: dict[str, Any] = pickle.load(stream)
    return snapshot


@pytest.mark.parametrize("ending", ["json", "pickle"])
def test_the_old_list_of_segments_gives_the_state_at_its_end(tmp_path: Path, ending: str) -> None:
    old = as_old_list(plain_snapshot())
    path = tmp_path / f"old.{ending}"
    path.write_bytes(json.dumps(old, indent=1).encode() if ending == "json" else pickle.dumps(old, protocol=2))
    end = Replay(load_trace(path)).at(0)
    expected = json.loads((DATA / "plain.json").read_text())
    assert (end.allocated, end.reserved) == (expected["allocated"]["current"], expected["reserved"]["current"])


def test_a_snapshot_of_2_0_takes_frames_and_sizes_from_the_blocks_history(tmp_path: Path) -> None:
    snapshot = plain_snapshot()
    for segment in snapshot["segments"]:
        for block in segment["blocks"]:
            real, frames = block.pop("requested_size"), block.pop("frames")
            block["history"] = [{"addr": block.pop("address"), "real_size": real, "frames": frames}]
    snapshot["device_traces"] = []
    del snapshot["allocator_settings"]
    path = tmp_path / "two.pickle"
    path.write_bytes(pickle.dumps(snapshot))
    trace = load_trace(path)
    expected = json.loads((DATA / "plain.json").read_text())
    assert Replay(trace).at(0).requested == expected["requested"]["current"]
    assert np.count_nonzero(trace.initial.stack) == len(trace.initial) - 1  # one was made by the backward thread


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_every_pickle_protocol_gives_the_same_trace(tmp_path: Path, protocol: int) -> None:
    path = tmp_path / "again.pickle"
    path.write_bytes(pickle.dumps(plain_snapshot(), protocol=protocol))
    again, first = load_trace(path), load_trace(DATA / "plain.pickle")
    assert again.events.size.tolist() == first.events.size.tolist()
    assert [again.stack(int(s)) for s in again.events.stack] == [first.stack(int(s)) for s in first.events.stack]


def test_a_page_around_a_snapshot_is_read(tmp_path: Path) -> None:
    inner = base64.b64encode((DATA / "plain.pickle").read_bytes()).decode()
    path = tmp_path / "page.html"
    path.write_text(
        f'<html>\n<script>local_files = [{{"name": "snapshot.pickle","base64": "{inner}"}}]</script></html>'
    )
    assert load_trace(path) == load_trace(DATA / "plain.pickle")


def test_several_devices_are_put_into_one_order(tmp_path: Path) -> None:
    snapshot = plain_snapshot()
    events = snapshot["device_traces"][0]
    second = [event | {"time_us": event["time_us"] + 1} for event in events]
    snapshot["device_traces"] = [events, second]
    snapshot["segments"] += [segment | {"device": 1} for segment in snapshot["segments"]]
    path = tmp_path / "two_devices.pickle"
    path.write_bytes(pickle.dumps(snapshot))
    trace = load_trace(path)
    assert trace.device_indices == (0, 1) and trace.meta.notes == ()
    assert np.all(np.diff(trace.events.time_us) >= 0)
    first, other = Replay(trace, 0), Replay(trace, 1)
    assert (
        first.peak().allocated == other.peak().allocated == Replay(load_trace(DATA / "plain.pickle")).peak().allocated
    )


@pytest.mark.parametrize("cut", [1, 10, 100, 5000, 20000])
def test_a_snapshot_that_is_cut_off_says_so(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "cut.pickle"
    path.write_bytes((DATA / "plain.pickle").read_bytes()[:-cut])
    with pytest.raises(PeakmemError, match=r"cut\.pickle is cut off or damaged"):
        load_trace(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"hello", "neither a peakmem trace nor a memory snapshot"),
        (b"{not json", "looks like JSON, but is damaged"),
        (b'{"a": 1}', "holds data, but no memory snapshot"),
        (b"<html></html>", "a page without a snapshot in it"),
        (pickle.dumps({"model": [1, 2]}), "holds data, but no memory snapshot"),
        (pickle.dumps({"segments": [{"device": 0}]}), "a part is missing or odd"),
    ],
)
def test_other_files_are_named_for_what_they_are(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "x.pickle"
    path.write_bytes(content)
    with pytest.raises(PeakmemError, match=message):
        load_trace(path)


def test_a_history_with_holes_is_reported_and_not_hidden(tmp_path: Path) -> None:
    snapshot = plain_snapshot()
    del snapshot["device_traces"][0][100:160]
    path = tmp_path / "holes.pickle"
    path.write_bytes(pickle.dumps(snapshot))
    assert "history has holes" in load_trace(path).meta.notes[0]
