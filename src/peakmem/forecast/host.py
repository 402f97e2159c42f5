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
class HostPinned:
    """Pinned host memory of the process that trains, where it was highest.

    Attributes:
        bytes: of blocks that the driver gave (cudaHostAlloc), whole pages; counted exactly.
        requested: of tensors that lie in them, as far as they lived when it was looked at; None: not looked at.
        registered: of ordinary memory that was pinned afterwards (cudaHostRegister).
        blocks: sizes of blocks, largest first, and how many there were of each.
        rounded: whether PyTorch's allocator rounds requests up to powers of two, as versions from 1.11 on do.
    """

    bytes: int
    requested: int | None
    registered: int
    blocks: tuple[tuple[int, int], ...]
    rounded: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class HostLoader:
    """A DataLoader with worker processes.

    Attributes:
        dataset: name of the data set's class.
        workers: how many processes.
        start: how they are started: "fork", "spawn" or "forkserver".
        prefetch: batches that each worker makes in advance.
        batch: bytes of the tensors of a batch, the largest that was seen.
        pin_memory: whether batches are copied to pinned memory.
        objects: of the data set, Python objects with reference counts: forked workers copy them page by page.
        buffers: of the data set, data of arrays and tensors: forked workers share them.
        mapped: of the data set, data of mapped files: all processes of the machine share them.
        partial: the data set is so intricate that it was not weighed to its end: the figures are too low.
        largest_worker: highest memory that one worker had for itself (USS, or growth since it began).
        lagging: what the others lacked to be as large, all together, when memory was highest.
        shm: most that its batches take of /dev/shm: workers x prefetch batches that wait, and one in use.
        growth: by how much more the workers' memory can grow than was seen, all together; an upper bound.
    """

    dataset: str
    workers: int
    start: str
    prefetch: int
    batch: int
    pin_memory: bool
    objects: int
    buffers: int
    mapped: int
    partial: bool
    largest_worker: int
    lagging: int
    shm: int
    growth: int


@dataclass(frozen=True, kw_only=True, slots=True)
class HostLater:
    """Memory that a longer or another run takes beyond what was seen.

    Attributes:
        name: what it is.
        bytes: how much.
        counted: whether `Host.node_peak` has it.
        note: why.
    """

    name: str
    bytes: int
    counted: bool
    note: str


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
        by_hand: parameters, gradients and optimizer states of a step; 0: not known.
        steps: peaks of the training steps.
        course: resident memory over time; None where it was not recorded.
        step: number of the step in which the peak was reached, from 0; None before the first.
        phase: phase in which it was reached.
        pinned: highest pinned memory, bytes.
        pinning: of it in particular; None where there is none.
        driver: what NVIDIA's driver takes of host memory in each process that uses a GPU: an estimate, in `peak_rss`.
        driver_error: its stated error, plus or minus.
        graph_growth: by how many nodes the autograd graph that is kept from step to step grows with each step, as with
            `total += loss`: host memory grows for as long as the run lasts.
        loaders: the DataLoaders with workers.
        later: what comes on top of what was seen.
        shm: most that lies in /dev/shm at a time.
        ranks: processes that train, on one node.
        per_rank: what each of them takes of a node, its workers included, beside what all share.
        shared: what they share: libraries and other files.
        node_peak: most that the run takes of one node: `shared` + `ranks` x `per_rank`, with all of `later` that is
            counted; None: not looked at.
        note: in words, how all this is known.
    """

    peak_rss: int
    tree_rss: int | None = None
    threads: int | None = None
    limit: int | None = None
    limit_name: str = ""
    parts: tuple[HostPart, ...] = ()
    roles: tuple[HostPart, ...] = ()
    by_hand: int = 0
    steps: tuple[HostStep, ...] = ()
    course: HostCourse | None = None
    step: int | None = None
    phase: str | None = None
    pinned: int = 0
    pinning: HostPinned | None = None
    driver: int = 0
    driver_error: int = 0
    graph_growth: int = 0
    loaders: tuple[HostLoader, ...] = ()
    later: tuple[HostLater, ...] = ()
    shm: int = 0
    ranks: int = 1
    per_rank: int = 0
    shared: int = 0
    node_peak: int | None = None
    note: str = ""
