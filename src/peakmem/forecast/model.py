"""The `Forecast`: what a run takes, what holds it, whether it fits. Every size is an integer number of bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from peakmem.forecast.host import Host

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SCHEMA = "peakmem/forecast/1"

Verdict = Literal["fits", "tight", "does_not_fit"]

TIGHT_SHARE = 0.05
"""A run that leaves less than this share of the card's memory is called tight."""


def judge(*, used: int, total: int, failed: bool) -> Verdict:
    """The verdict on a run.

    Args:
        used: what the process takes at the peak, bytes.
        total: memory of the card, bytes.
        failed: whether the run ended for want of memory.
    """
    if failed:
        return "does_not_fit"
    return "tight" if total - used < TIGHT_SHARE * total else "fits"


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """The card that was asked about.

    Attributes:
        name: as `torch.cuda.get_device_name` prints it.
        total: total memory as `torch.cuda.get_device_properties` gives it.
        compute_capability: "8.6".
        usable: what the allocator may reserve: total less the context.
    """

    name: str
    total: int
    compute_capability: str
    usable: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Peak:
    """The highest values over the whole run, PyTorch's own counters (`max_memory_allocated`, ...).

    Attributes:
        requested: bytes the program asked for.
        allocated: bytes in blocks handed out, after rounding.
        active: allocated, plus freed blocks still waiting for another stream.
        reserved: all segments that the allocator held from the driver.
        context: what the process holds outside the allocator (an estimate, see `context_error`).
        context_error: the stated error of `context`, plus or minus.
        used: reserved + context, what nvidia-smi shows for the process.
        step: number of the step in which `allocated` peaked, from 0; None before or after all steps.
        phase: "forward", "backward", "optimizer" or "other".
        op: the operation that took the block which made the peak, if known.
        module: the module in which it did, if known.
        line: the user's own line at which it did, "file:line", if known.
    """

    requested: int
    allocated: int
    active: int
    reserved: int
    context: int
    context_error: int
    used: int
    step: int | None = None
    phase: str = "other"
    op: str | None = None
    module: str | None = None
    line: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class StepPeak:
    """The peaks within one training step; `requested` and `active` are None without a recording."""

    index: int
    requested: int | None
    allocated: int
    active: int | None
    reserved: int
    backwards: int
    optimizers: int


@dataclass(frozen=True, kw_only=True, slots=True)
class OutOfMemory:
    """Where the card was too small.

    Attributes:
        requested: the segment that was asked of the driver.
        missing: how much of it was not there.
        step: number of the step, from 0.
        phase, op, module: where.
        line: the user's own line, "file:line".
        needed: total memory of a card on which the run would not have failed (its whole peak, context included);
            None if that is not known.
        caught: the script caught the error and went on.
    """

    requested: int
    missing: int
    step: int
    phase: str
    op: str | None
    module: str | None
    line: str | None
    needed: int | None
    caught: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Assumption:
    """Something that can't be known without a GPU, what was taken instead, and how often it was met."""

    what: str
    count: int
    assumed: str
    where: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Changed:
    """A training setting that was changed in the running script (`peakmem run --set`).

    Attributes:
        change: as it was asked for, such as `amp=bf16`.
        count: how often it took effect.
        why_not: why it took none; empty if it did.
    """

    change: str
    count: int
    why_not: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Holder:
    """Blocks alive at the peak that are the same thing, in the same module up to the numbers of layers.

    Attributes:
        role: the word of a role: "parameter", "activation", ...
        name: of the tensor; numbers of layers are `*` where there are several.
        module: path of the module that was running when it was made.
        op: the operation that made it.
        line: the user's own line, "file:line"; in a backward pass the one that called its module.
        shape: shape of each tensor, empty if unknown or not the same.
        dtype: for instance "float32", empty if unknown.
        step: the training step in which it was made, from 0; None if there are several.
        phase: the phase in which it was made.
        count: how many blocks.
        bytes: what they take, after rounding.
    """

    role: str
    name: str
    module: str | None
    op: str | None
    line: str | None
    shape: tuple[int, ...]
    dtype: str
    step: int | None
    phase: str | None
    count: int
    bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Unneeded:
    """Memory alive at the peak that need not be.

    Attributes:
        what: in words.
        bytes: how much, after rounding.
        count: how many blocks.
        examples: the largest of them, one block each.
        remedy: what usually frees it.
    """

    what: str
    bytes: int
    count: int
    examples: tuple[Holder, ...]
    remedy: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """A step or a phase over the timeline.

    Attributes:
        kind: "step" or "phase".
        name: "step", or which phase: "forward", "backward", "optimizer" or "other".
        step: number of the step, from 0; None for a phase outside of steps.
        first: how many events had happened when it began.
        end: how many had happened when it ended.
    """

    kind: Literal["step", "phase"]
    name: str
    step: int | None
    first: int
    end: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeline:
    """The memory over time, thinned out to a few hundred points, its peaks kept. Columns: one entry for each point.

    Attributes:
        events: how many events the run had (a block handed out or given back, a segment taken or returned).
        peak: how many of them had happened when `allocated` was highest for the first time; it is one of `event`.
        event: how many events had happened, rising from 0 to `events`.
        allocated: bytes in blocks handed out.
        reserved: bytes in segments held from the driver.
        roles: bytes allocated for each role that occurs; at each point they add up to `allocated`.
        marks: steps and phases in the order in which they began; those narrower than a point are left out.
    """

    events: int
    peak: int
    event: tuple[int, ...]
    allocated: tuple[int, ...]
    reserved: tuple[int, ...]
    roles: dict[str, tuple[int, ...]]
    marks: tuple[Mark, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Range:
    """The span of a figure that depends on cuDNN's choice of plans.

    Attributes:
        least: peak reserved with plans that need no workspace.
        likely: the headline, see docs/fidelity.md.
        own: peak reserved with the plans that cuDNN itself puts first without a device.
    """

    least: int
    likely: int
    own: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ScriptError:
    """How the script failed by itself."""

    type: str
    message: str
    line: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Forecast:
    """What a run takes; see `docs/forecast-json.md` for each field as JSON."""

    schema: str = SCHEMA
    peakmem: str
    torch: str
    command: tuple[str, ...]
    verdict: Verdict
    gpu: Gpu
    alloc_conf: str
    peak: Peak
    steps: tuple[StepPeak, ...]
    steady: bool
    stopped: str
    floor: int | None
    segments: int
    retries: int
    ooms: int
    oom: OutOfMemory | None
    error: ScriptError | None
    convolution_range: Range | None
    roles_at_peak: dict[str, int] = field(default_factory=dict)
    holders_at_peak: tuple[Holder, ...] = ()
    unneeded_at_peak: tuple[Unneeded, ...] = ()
    host: Host | None = None
    assumptions: tuple[Assumption, ...] = ()
    notes: tuple[str, ...] = ()
    changed: tuple[Changed, ...] = ()
    workload: dict[str, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    seconds: float = 0.0
    timeline: Timeline | None = field(default=None, repr=False)
    framework: str = ""

    # The methods below are for people at a prompt. Data flows one way, from forecast to report, so no module here
    # may need report: it is imported only when someone asks for a drawing.

    def _repr_html_(self) -> str:
        """What a notebook shows for a forecast at the end of a cell."""
        from peakmem.report.notebook import forecast_html

        return forecast_html(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """What IPython shows in a terminal: the report that `peakmem run` prints."""
        from peakmem.report.terminal import forecast_text

        printer.text(forecast_text(self))

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the memory over time, stacked by role, with matplotlib (`pip install 'peakmem[plot]'`).

        Args:
            ax: where to draw; by default a new figure.

        Returns:
            The axes that were drawn on.

        Raises:
            PeakmemError: matplotlib is missing, or nothing was recorded.
        """
        from peakmem.report.plotting import plot_forecast

        return plot_forecast(self, ax)
