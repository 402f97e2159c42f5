"""The calculation that people do by hand, beside what a run really holds."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from peakmem.trace.recording_log import WORKSPACES
from peakmem.trace.replay import Replay
from peakmem.trace.roles import ContextKind, Role

if TYPE_CHECKING:
    from peakmem.trace.model import Trace
    from peakmem.trace.tables import Array


OUTPUTS = "outputs of layers, forward"
OUTPUT_GRADIENTS = "their gradients, backward"
WEIGHT_GRADIENTS = "gradients of these"
OPTIMIZER_STATE = "optimizer state"


@dataclass(frozen=True, kw_only=True, slots=True)
class HandCount:
    """Elements and bytes as one counts them from the architecture.

    Attributes:
        batch: number of samples: the first dimension of the input.
        layers: how many layers with weights gave an output.
        input_elements, input_bytes: of the whole batch.
        output_elements, output_bytes: what the layers gave for the whole batch.
        parameters, parameter_bytes: of all weights and biases.
    """

    batch: int
    layers: int
    input_elements: int
    input_bytes: int
    output_elements: int
    output_bytes: int
    parameters: int
    parameter_bytes: int

    @property
    def elements(self) -> int:
        """Input, outputs of the layers in the forward pass, their gradients in the backward pass."""
        return self.input_elements + 2 * self.output_elements

    @property
    def bytes(self) -> int:
        """What these take."""
        return self.input_bytes + 2 * self.output_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One thing that takes memory.

    Attributes:
        what: in words.
        by_hand: bytes that the calculation by hand gives, None if it leaves this out.
        most: the most that it ever took at once, after rounding.
        at_peak: what it takes when most is allocated.
    """

    what: str
    by_hand: int | None
    most: int
    at_peak: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """Where the memory of a run comes from.

    Attributes:
        count: the calculation by hand.
        lines: what takes memory; the values at the peak add up to `allocated`.
        requested, allocated: bytes when most is allocated.
        workspaces: how many workspaces of cuBLAS are among that, by their size.
        scratch: bytes of other workspaces among that, by name.
        reserved: the most that was reserved.
        segments: how many segments that was, by their size.
    """

    count: HandCount
    lines: tuple[Line, ...]
    requested: int
    allocated: int
    workspaces: dict[int, int]
    scratch: dict[str, int]
    reserved: int
    segments: dict[int, int]


def hand_count(recording: dict[str, Any]) -> HandCount | None:
    """Count as people do; None if no model ran on the GPU."""
    model = recording.get("model")
    if not model or not model["layers"]:
        return None
    inputs = [row for row in model["inputs"] if len(row[1]) > 1] or [row for row in model["inputs"] if row[1]]
    inputs = [row for row in inputs if row[3]] or inputs[:1]  # of token numbers, masks and positions the first
    sizes = [(prod(shape), itemsize) for _, shape, itemsize, _ in inputs]
    outputs = [(prod(shape), itemsize) for _, _, shape, itemsize in model["layers"]]
    shape = inputs[0][1] if inputs else model["layers"][0][2]
    return HandCount(
        batch=shape[0] if shape else 1,
        layers=len(outputs),
        input_elements=sum(elements for elements, _ in sizes),
        input_bytes=sum(elements * itemsize for elements, itemsize in sizes),
        output_elements=sum(elements for elements, _ in outputs),
        output_bytes=sum(elements * itemsize for elements, itemsize in outputs),
        parameters=model["parameters"],
        parameter_bytes=model["parameter_bytes"],
    )


def explain(recording: dict[str, Any], trace: Trace, *, device: int = 0) -> Explanation | None:
    """Put the calculation by hand beside the recording; None if there is nothing to count."""
    count = hand_count(recording)
    if count is None:
        return None
    replay = Replay(trace, device)
    moment = replay.peak_moment()
    owners = replay.owner_rows(moment)
    series = replay.by_role()
    backward = _moments_of(trace, "backward", len(replay))

    def line(what: str, by_hand: int | None, *roles: Role, during: Array | None = None) -> Line:
        total = series[list(roles)].sum(axis=0)
        if during is not None:
            total = total * during
        return Line(what=what, by_hand=by_hand, most=int(total.max()), at_peak=int(total[moment]))

    lines = (
        line("input", count.input_bytes, Role.INPUT),
        line(OUTPUTS, count.output_bytes, Role.ACTIVATION),
        line(OUTPUT_GRADIENTS, count.output_bytes, Role.TEMPORARY, during=backward),
        line("other temporary tensors", None, Role.TEMPORARY, during=~backward),
        line("weights and biases", count.parameter_bytes, Role.PARAMETER),
        line(WEIGHT_GRADIENTS, None, Role.GRADIENT),
        line(OPTIMIZER_STATE, None, Role.OPTIMIZER_STATE),
        line("autocast copies of weights", None, Role.AUTOCAST_COPY),
        line("workspaces", None, Role.WORKSPACE),
        line("buffers, communication", None, Role.BUFFER, Role.COMMUNICATION),
        line("not attributed", None, Role.UNATTRIBUTED),
    )
    reserved = replay.peak_moment("reserved")
    workspaces: Counter[int] = Counter()
    scratch: Counter[str] = Counter()
    for number in replay.alive(moment).tolist():
        row, size = int(owners[number]), int(replay.allocations.size[number])
        if row >= 0 and trace.owners.role[row] == Role.WORKSPACE:
            name = trace.strings[int(trace.owners.name[row])]
            if name in WORKSPACES.values():
                workspaces[size] += 1
            else:
                scratch[name] += size
    return Explanation(
        count=count,
        lines=lines,
        requested=replay.at(moment).requested,
        allocated=replay.at(moment).allocated,
        workspaces=dict(workspaces),
        scratch=dict(scratch.most_common()),
        reserved=replay.at(reserved).reserved,
        segments=dict(Counter(replay.segments(reserved).size.tolist())),
    )


def _moments_of(trace: Trace, phase: str, count: int) -> Array:
    """The moments in all stretches of a phase."""
    spans = trace.spans
    inside = np.zeros(count, dtype=bool)
    for row in np.flatnonzero(spans.kind == ContextKind.PHASE).tolist():
        if trace.strings[int(spans.name[row])] == phase:
            inside[int(spans.first[row]) + 1 : int(spans.end[row]) + 1] = True
    return inside
