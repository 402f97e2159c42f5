"""An exported snapshot is understood by PyTorch's own reader of snapshots."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "unit" / "trace"))
from trace_samples import DATA
from training_trace import training_trace

from peakmem.trace.load import load_trace
from peakmem.trace.snapshot_write import to_snapshot

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("name", ["training", "plain", "expandable", "streams"])
def test_pytorchs_own_tools_read_an_exported_snapshot(name: str) -> None:
    viz = pytest.importorskip("torch.cuda._memory_viz")
    snapshot = to_snapshot(training_trace() if name == "training" else load_trace(DATA / f"{name}.pickle"))
    reserved = sum(segment["total_size"] for segment in snapshot["segments"])
    assert f"total_reserved: {viz.Bytes(reserved)}" in viz.segsum(snapshot)
    history = viz.trace(snapshot)
    actions = [event["action"] for event in snapshot["device_traces"][0]]
    assert f"{len(actions)} entries" in history
    assert history.count("cudaMalloc(") == actions.count("segment_alloc")
    assert history.count("\ndel ") == actions.count("free_requested")
    blocks = viz.memory(snapshot, format_flamegraph=lambda text: text)  # its own way would load a script from the net
    assert f"stream_{snapshot['segments'][0]['stream']}" in blocks
