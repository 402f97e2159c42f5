"""The host's side of a `Forecast`: resident memory of the processes of a run. Every size is an integer number of bytes.

Other parts of the program add fields here (pinned memory, workers of a DataLoader, loading): all have defaults.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Source = Literal["measured", "counted", "estimated"]
"""How a part of the peak is known: read from the system in the process that was watched; counted from the addresses
that the C library's own malloc gave; or estimated, from measurements named in the part's note."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HostPart:
    """One part of the resident memory at the peak; the parts add up to `Host.peak_rss`.

    Attributes:
        name: "libraries", "tensors", "heap held", "kernel scratch", "kernel code", "thread stacks", "interpreter", ...
        bytes: how much of the peak it is.
        source: how it is known.
        note: what it is, and where the figure comes from.
    """

    name: str
    bytes: int
    source: Source
    note: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class HostStep:
    """The resident memory over one training step of the main process.

    Attributes:
        index: number of the step, from 0.
        peak_rss: highest within the step.
        end_rss: when the optimizer had stepped.
        phases: the highest within each phase: "forward", "backward", "optimizer", "other".
    """

    index: int
    peak_rss: int
    end_rss: int
    phases: dict[str, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class HostCourse:
    """How the resident memory goes up and down: columns, one entry for each point, the peaks kept.

    Attributes:
        event: how many tracked requests to malloc had happened.
        rss: resident memory.
        tensors: of it, live memory of tensors.
        step: the training step that a point lies in, from 0; -1 before the first and after the last.
    """

    event: tuple[int, ...]
    rss: tuple[int, ...]
    tensors: tuple[int, ...]
    step: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    """What the processes of a run take of the host's memory.

    Attributes:
        peak_rss: highest resident memory (VmHWM) of the process that trains.
        tree_rss: highest sum over the processes that belong to it (shared pages counted once where that is known);
            None: not looked at.
        threads: intra-op threads that PyTorch was told to use.
        limit: the memory that the run may take: `--memory`, the cgroup's limit, or the machine's; None: not asked.
        limit_name: which of these it is, in words.
        parts: what `peak_rss` is made of.
        roles: live tensors at the peak by role ("parameter", "gradient", ...), of the part "tensors".
        steps: peaks of the training steps.
        course: resident memory over time; None where it was not recorded.
        step: number of the step in which the peak was reached, from 0; None before the first.
        phase: phase in which it was reached.
    """

    peak_rss: int
    tree_rss: int | None = None
    threads: int | None = None
    limit: int | None = None
    limit_name: str = ""
    parts: tuple[HostPart, ...] = ()
    roles: tuple[HostPart, ...] = ()
    steps: tuple[HostStep, ...] = ()
    course: HostCourse | None = None
    step: int | None = None
    phase: str | None = None
