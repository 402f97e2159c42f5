"""What every rendering says of the host's side of a GPU job, in the same words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peakmem.trace.model import HostLine
from peakmem.units import MIB, format_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peakmem.forecast.host import Host, HostLoader, HostPinned

_SMALL = 8 * MIB
"""Parts below this size are told together."""
_WORTH_A_WORD = 256 * MIB
"""From this size on a waste of host memory is pointed out."""


def host_rows(host: Host) -> tuple[HostLine, ...]:
    """The lines: the peak of the process that trains with its parts, then all processes, then a node."""
    return tuple(_rows(host))


def _rows(host: Host) -> Iterator[HostLine]:
    yield HostLine(name="host memory", bytes=host.peak_rss, remark="of the process that trains", is_sum=True)
    small = 0
    for part in host.parts:
        if part.bytes < _SMALL and part.source != "estimated":
            small += part.bytes
            continue
        remark = part.note
        if part.name == "driver":
            remark = f"estimate, ± {format_size(host.driver_error, digits=0)}"
        if part.name == "pinned" and host.pinning is not None:
            remark = pinned_text(host.pinning)
        yield HostLine(name=part.name, bytes=part.bytes, remark=remark)
    if small:
        yield HostLine(name="others", bytes=small, remark="")
    if host.tree_rss is not None and host.tree_rss > host.peak_rss + _SMALL:
        yield HostLine(name="all processes", bytes=host.tree_rss, remark="shared pages counted once", is_sum=True)
    for later in host.later:
        if later.counted and later.bytes >= _SMALL:
            yield HostLine(name="later", bytes=later.bytes, remark=later.name)
    if host.node_peak is not None and (host.node_peak > (host.tree_rss or 0) + _SMALL or host.ranks > 1):
        remark = "at most"
        if host.ranks > 1:
            remark = (
                f"at most, {host.ranks} ranks: {format_size(host.per_rank)} each, "
                f"{format_size(host.shared)} of files in common"
            )
        yield HostLine(name="one node", bytes=host.node_peak, remark=remark, is_sum=True)
    if host.shm:
        yield HostLine(name="/dev/shm", bytes=host.shm, remark="at most, batches of workers", is_sum=True)


def pinned_text(pinning: HostPinned) -> str:
    """How much was asked for, and what rounding makes of it."""
    if not pinning.requested or pinning.requested >= pinning.bytes:
        return "resident on a real GPU, written or not"
    asked = f"{format_size(pinning.requested)} asked for"
    return f"{asked}, in powers of two" if pinning.rounded else asked


def host_warnings(host: Host) -> tuple[str, ...]:
    """What wastes host memory, and what helps."""
    found = []
    pinning = host.pinning
    if pinning is not None and pinning.rounded and pinning.requested:
        waste = pinning.bytes - pinning.requested
        if waste >= _WORTH_A_WORD:
            found.append(
                f"pinned memory: {format_size(waste)} go to rounding up to powers of two; pin pieces of just under a "
                "power of two, or set pinned_max_round_threshold_mb (where PyTorch has it: peakmem conf explain)"
            )
    if host.graph_growth:
        found.append(
            f"the autograd graph of earlier steps is kept: {host.graph_growth:,} nodes more with each step, and host "
            "memory grows for as long as the run lasts; sum up loss.item() or loss.detach() instead of loss"
        )
    found += [worker_text(loader) for loader in host.loaders if loader.largest_worker >= _WORTH_A_WORD]
    found += [loader_text(loader) for loader in host.loaders if loader.growth >= _WORTH_A_WORD]
    return tuple(found)


def worker_text(loader: HostLoader) -> str:
    """What each worker takes for itself."""
    text = (
        f"each of {loader.workers} workers of {loader.dataset} takes {format_size(loader.largest_worker)} for itself, "
        f"{format_size(loader.workers * loader.largest_worker)} in all: "
    )
    if loader.start == "fork":
        return text + "data that is read once before the workers start, or mapped from a file, is shared"
    return text + f'with "{loader.start}" each loads PyTorch and copies the data set; forked workers share both'


def loader_text(loader: HostLoader) -> str:
    """Why the workers' memory grows."""
    return (
        f"{loader.dataset} holds {format_size(loader.objects)} of Python objects: each of {loader.workers} forked "
        f"workers copies them as it reads them, up to {format_size(loader.growth)} in all; it grows, then levels off. "
        "Arrays, tensors, Arrow tables or one serialized buffer stay shared"
    )
