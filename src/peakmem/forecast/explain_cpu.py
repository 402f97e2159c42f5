"""The calculation that people do by hand, beside what a training on the CPU really holds at its peak."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from peakmem.forecast.cpu_build import ROLES, libraries, training_peak
from peakmem.forecast.explain import OPTIMIZER_STATE, WEIGHT_GRADIENTS, HandCount, hand_count

BATCH = "input, outputs, their gradients"
WEIGHTS = "weights and biases"
HELD = "heap held by malloc"
LATER = "loaded later"
IMPORTED = "Python and torch"


@dataclass(frozen=True, kw_only=True, slots=True)
class CpuLine:
    """One thing that takes memory.

    Attributes:
        what: in words.
        by_hand: bytes that the calculation by hand gives, None if it leaves this out.
        at_peak: what it takes at the peak of the training, bytes.
    """

    what: str
    by_hand: int | None
    at_peak: int


@dataclass(frozen=True, kw_only=True, slots=True)
class CpuExplanation:
    """Where the memory of a training on the CPU comes from.

    Attributes:
        count: the calculation by hand.
        lines: what takes memory; the values at the peak add up to `resident`.
        resident: resident memory at the peak of the training, bytes; the end of the process may take more.
    """

    count: HandCount
    lines: tuple[CpuLine, ...]
    resident: int

    def at_peak(self, what: str) -> int:
        """What one of the lines takes, bytes."""
        return sum(line.at_peak for line in self.lines if line.what == what)


def explain_cpu(recording: dict[str, Any]) -> CpuExplanation | None:
    """Put the calculation by hand beside the recording; None if there is nothing to count."""
    count = hand_count(recording)
    if count is None or not recording["roles"]:
        return None
    parameters, gradients, states, others = (int(recording["roles"].get(name, (0,))[0]) for name in ROLES)
    resident = training_peak(recording)
    imported, later = libraries(recording)
    held = resident - imported - later - parameters - gradients - states - others
    return CpuExplanation(
        count=count,
        lines=(
            CpuLine(what=BATCH, by_hand=count.bytes, at_peak=others),
            CpuLine(what=WEIGHTS, by_hand=count.parameter_bytes, at_peak=parameters),
            CpuLine(what=WEIGHT_GRADIENTS, by_hand=None, at_peak=gradients),
            CpuLine(what=OPTIMIZER_STATE, by_hand=None, at_peak=states),
            CpuLine(what=HELD, by_hand=None, at_peak=held),
            CpuLine(what=LATER, by_hand=None, at_peak=later),
            CpuLine(what=IMPORTED, by_hand=None, at_peak=imported),
        ),
        resident=resident,
    )
