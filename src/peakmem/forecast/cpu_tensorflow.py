"""What the resident memory of a process that trained with TensorFlow on the CPU is made of."""

from __future__ import annotations

from typing import Any

from peakmem.forecast.host import HostPart


def tensorflow_parts(recording: dict[str, Any], peak: int) -> tuple[HostPart, ...]:
    """The parts of the peak; they add up to it.

    Args:
        recording: of the process that trained (`session/inside/cpu/tensorflow.py`).
        peak: highest resident memory, bytes.
    """
    highest, base = recording["highest"], min(recording["base"], peak)
    # Pages are counted when a step has ended, after the peak, and tensors that were just taken are not written yet.
    regions = min(highest["regions"], peak - base)
    live = min(highest["live"], regions)
    return (
        HostPart(name="libraries", bytes=base, source="measured", note="Python and TensorFlow, as imported"),
        HostPart(name="tensors", bytes=live, source="counted", note="in use, of 256 KiB and more"),
        HostPart(
            name="allocator held",
            bytes=regions - live,
            source="measured",
            note="free, but kept by TensorFlow's allocator",
        ),
        HostPart(
            name="all else",
            bytes=peak - base - regions,
            source="measured",
            note="graph, kernels, data, small tensors, libraries loaded later",
        ),
    )


def really_taken(recording: dict[str, Any]) -> int:
    """What the watched process took of the machine, bytes: pages that stand for the same few count as these few."""
    highest = recording["highest"]
    return int(highest["resident"] - highest["shared"] + highest["pool"])
