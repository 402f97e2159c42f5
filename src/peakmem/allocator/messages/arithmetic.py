"""The arithmetic of PyTorch's message: fragmentation, shortage, somebody else, a limit, an impossible request.

Before PyTorch raises, it has given every wholly unused segment back and tried again. What is still "reserved but
unallocated" is therefore free space inside segments that are partly in use: with perfect packing it, together with what
the driver has free, is all that the request could have had.
"""

from __future__ import annotations

from peakmem.allocator.messages import advice
from peakmem.allocator.messages.amounts import Amount
from peakmem.allocator.messages.log import Log
from peakmem.allocator.messages.model import Explanation, Figures, Verdict
from peakmem.allocator.messages.pytorch import OVERFLOWED, PyTorchMessage
from peakmem.allocator.messages.sums import ORDINARY_OUTSIDE, Sums, contradictions, error_of, size_of, sums_of
from peakmem.units import GIB, MIB, format_size

ORDINARY_STRANDED = 0.05
"""A share of reserved that is stranded in any training: rests of 20 MiB segments and unsplit ends. Below it there is
nothing to defragment, even if the sum would just suffice for this one request."""

_WHY_SO_LARGE = {
    "": "Look at the line that asks: a single tensor of this size mostly comes from an N x N intermediate (attention, "
    "pairwise distances, logits of all tokens at once) or from a wrong shape.",
    "convolution": "A convolution whose input or output has more than 2^31 elements falls back to an "
    "unfolded copy of the "
    "input, kernel-volume times as large: stay below 2^31 elements (2,147,483,648) by tiling.",
    "attention": "Attention written out keeps a tokens x tokens matrix for each head: "
    "torch.nn.functional.scaled_dot_product_attention does not.",
    "loss": "Logits of all tokens at once are batch x tokens x vocabulary: use a chunked or fused "
    "linear + cross-entropy.",
}
"""What mostly asks for a tensor larger than the card, by phase of the program."""


def explain(message: PyTorchMessage, log: Log) -> Explanation:
    """Explain one message of PyTorch's allocator."""
    if message.more_than_an_exbibyte:
        return _overflow(message, log, "more than 1 EiB")
    if message.requested is not None and message.requested.size > OVERFLOWED:
        return _overflow(message, log, format_size(message.requested.size))
    if message.preemptive:
        return _preemptive(message, log)
    if not message.complete:
        return _incomplete(message, log)
    sums = sums_of(message)
    contradicting = contradictions(sums)
    if contradicting:
        return _answer(
            message,
            log,
            sums,
            Verdict.INCONSISTENT,
            f"The message contradicts itself: {'; '.join(contradicting)}.",
            "No: nothing can be concluded from figures that do not add up.",
            "Take the message from the log itself, unedited; where it stands so there, the driver reports wrongly: "
            "compare nvidia-smi with torch.cuda.memory_summary().",
            helps=None,
        )
    for rule in (_impossible, _spill, _cap, _race, _shortage):
        found = rule(message, log, sums)
        if found is not None:
            return found
    return _fragmentation(message, log, sums)


def _impossible(message: PyTorchMessage, log: Log, sums: Sums) -> Explanation | None:
    limit = min(sums.capacity, message.allowed.size if message.allowed is not None else sums.capacity)
    if sums.requested <= limit:
        return None
    what = "the card has" if limit == sums.capacity else "is allowed"
    return _answer(
        message,
        log,
        sums,
        Verdict.IMPOSSIBLE,
        f"One request asks for {format_size(sums.requested)}, more than {what} in all ({format_size(limit)}).",
        "No: it could not be served on an empty card either.",
        _WHY_SO_LARGE.get(log.phase, _WHY_SO_LARGE[""])
        + f" Compute it in chunks, or shrink it by {sums.requested / limit:.1f} times or more.",
    )


def _spill(message: PyTorchMessage, log: Log, sums: Sums) -> Explanation | None:
    slack = 64 * MIB + error_of(message.allocated, message.capacity, message.reserved)
    if sums.reserved <= sums.capacity + slack:
        return None
    over = max(sums.reserved, sums.allocated) - sums.capacity
    return _answer(
        message,
        log,
        sums,
        Verdict.SPILL,
        f"PyTorch holds {format_size(sums.reserved)} on a card of {format_size(sums.capacity)}: the driver has put "
        f"{format_size(over)} into shared memory of the host (Windows and WSL do so), which is many times slower.",
        "No: the job is larger than the card; an option can't bring "
        f"{format_size(max(sums.allocated - sums.capacity, over))} back.",
        f"Make the job smaller by at least {format_size(over + sums.requested)}; to fail early "
        "instead of spilling, set "
        "'CUDA - Sysmem Fallback Policy' to 'Prefer No Sysmem Fallback' in the NVIDIA control panel. "
        + advice.smaller(log.phase),
    )


def _cap(message: PyTorchMessage, log: Log, sums: Sums) -> Explanation | None:
    if not sums.limited or message.allowed is None:
        return None
    allowed = message.allowed.size
    happened = (
        f"A memory limit refused {format_size(sums.requested)}: this process may hold {format_size(allowed)} and holds "
        f"{format_size(sums.reserved)}, while the card has {format_size(sums.free)} free."
    )
    raise_it = (
        "Raise or remove the limit (torch.cuda.set_per_process_memory_fraction, per_process_memory_fraction, or the "
        "setting of the tool that called it)"
    )
    needed = sums.reserved + sums.requested
    if sums.margin + sums.error < 0 or not _worth_defragmenting(sums):
        short = max(sums.requested - (allowed - sums.reserved), 0)
        enough = sums.free >= short
        fits = "; the card has the room" if enough else "; the card itself has not that much free now"
        return _answer(
            message,
            log,
            sums,
            Verdict.CAP,
            happened,
            f"No option that saves memory: only {format_size(sums.stranded)} is stranded. The limit "
            "is what stands in the "
            "way.",
            f"{raise_it} to at least {format_size(needed)} ({needed / sums.capacity:.0%} of the card){fits}.",
        )
    option = advice.defragment(message.newest, message.backend, log)
    return _answer(
        message,
        log,
        sums,
        Verdict.CAP,
        happened,
        f"Yes: {format_size(sums.stranded)} of what it holds is stranded, and with it the request would fit under the "
        f"limit ({option.text}).",
        f"{raise_it}, or {option.how}.",
        helps=True,
        alloc_conf=option.alloc_conf,
    )


def _race(message: PyTorchMessage, log: Log, sums: Sums) -> Explanation | None:
    """More was free than asked for, and no limit is named."""
    if sums.free < sums.requested + error_of(message.free, message.requested) + 2 * MIB:
        return None
    return _answer(
        message,
        log,
        sums,
        Verdict.RACE,
        f"{format_size(sums.requested)} was refused although {format_size(sums.free)} is reported free: something took "
        "memory and gave it back in the moment between (another process on this card), or a limit outside PyTorch "
        "refused (MIG, a container's or vGPU's quota, WSL).",
        "No: the allocator was refused by the driver, not by lack of packing.",
        "See who else uses the card (nvidia-smi) and run it alone once; where a quota applies, the card's size is not "
        "yours to use: lower torch.cuda.set_per_process_memory_fraction to the quota.",
        helps=False,
    )


def _worth_defragmenting(sums: Sums) -> bool:
    return sums.stranded >= ORDINARY_STRANDED * sums.reserved


def _shortage(message: PyTorchMessage, log: Log, sums: Sums) -> Explanation | None:
    scraped = not _worth_defragmenting(sums)
    if sums.margin >= 0 and not scraped:
        return None
    missing = max(-sums.margin, 0)
    others = sum(process.used for process in sums.others)
    held = f"{format_size(sums.allocated)} of {format_size(sums.capacity)} is in use by tensors"
    free = f"{format_size(sums.free)} is free and {format_size(sums.stranded)} stranded"
    if missing:
        happened = f"True shortage: {format_size(sums.requested)} more was asked for, {held}, {free}."
        option = (
            f"No: this is not fragmentation. Even with perfect packing ({format_size(sums.room)}) "
            f"{format_size(missing)} would be missing."
        )
    else:
        happened = f"The card is full: {format_size(sums.requested)} more was asked for, {held}, {free}."
        option = (
            f"No: this is not fragmentation. Only {sums.stranded / max(sums.reserved, 1):.1%} of what PyTorch holds is "
            f"stranded; perfect packing would leave {format_size(sums.margin)}, and the next request would fail."
        )
    if others >= max(missing, 64 * MIB):
        names = " and ".join(f"process {process.pid} holds {format_size(process.used)}" for process in sums.others)
        return _answer(
            message,
            log,
            sums,
            Verdict.OTHER_PROCESS,
            f"{happened} On the same card {names}.",
            option,
            f"End or move the other process{'es' if len(sums.others) > 1 else ''}: that alone frees "
            f"{format_size(others)}. Often it is an earlier run of your own that never ended (nvidia-smi shows the "
            "number; in a container, that of the host).",
        )
    if sums.outside > ORDINARY_OUTSIDE - GIB // 4 and sums.outside >= missing and sums.this_process is None:
        return _answer(
            message,
            log,
            sums,
            Verdict.SHORTAGE,
            f"{happened} {format_size(sums.outside)} is used outside PyTorch's pool: other processes, the desktop, or "
            "this one's CUDA context and libraries (0.3 to 1 GiB).",
            option,
            f"See with nvidia-smi who holds the {format_size(sums.outside)}: ending it may be all that is needed. "
            f"Otherwise {advice.smaller(log.phase, sentence=False)}",
        )
    return _answer(
        message, log, sums, Verdict.SHORTAGE, happened, option, advice.smaller(log.phase, missing=missing or None)
    )


def _fragmentation(message: PyTorchMessage, log: Log, sums: Sums) -> Explanation:
    option = advice.defragment(message.newest, message.backend, log)
    private = size_of(message.private_pools)
    happened = (
        f"Fragmentation: {format_size(sums.requested)} was refused while {format_size(sums.stranded)} of the "
        f"{format_size(sums.reserved)} that PyTorch holds is not in use, in pieces too small or already split "
        f"({format_size(sums.free)} free on the card)."
    )
    notes: tuple[str, ...] = ()
    if private:
        notes = (
            f"{format_size(private)} is in private pools (CUDA graphs); other requests can't use their free parts.",
        )
    if not message.hint and message.newest is None and message.backend != "XPU" and option.alloc_conf:
        notes += (
            "PyTorch's own hint is missing: the newest versions leave it out where expandable_segments:True is on "
            "already. If so (--alloc-conf tells peakmem), free large tensors before the request instead.",
        )
    can = (
        f"Yes: free and stranded memory together are {format_size(sums.room)}, "
        f"{format_size(sums.margin)} more than asked "
        f"for. {option.text}"
    )
    return _answer(
        message,
        log,
        sums,
        Verdict.FRAGMENTATION,
        happened,
        can,
        option.how[0].upper() + option.how[1:] + f": {option.why}.",
        helps=True if option.alloc_conf else None,
        alloc_conf=option.alloc_conf,
        notes=notes,
    )


def _overflow(message: PyTorchMessage, log: Log, size: str) -> Explanation:
    return _answer(
        message,
        log,
        None,
        Verdict.OVERFLOW,
        f"The size asked for ({size}) is a number that overflowed: a negative or absurd size was computed.",
        "No: no card has so much memory.",
        "Look at the line that asks: a workspace or an index beyond 2^31 elements (large "
        "convolutions, long sequences), "
        "or a shape with a wrong dimension. Make the tensor smaller than 2^31 elements, or update PyTorch and cuDNN.",
    )


def _preemptive(message: PyTorchMessage, log: Log) -> Explanation:
    size = format_size(size_of(message.requested))
    return _answer(
        message,
        log,
        None,
        Verdict.SETTINGS,
        f"throw_on_cudamalloc_oom:True refused {size} before the driver was asked, without giving cached memory back.",
        "Yes: without this option PyTorch would have released unused cached segments and tried again.",
        "Remove throw_on_cudamalloc_oom from the settings, then see whether it still runs out.",
        helps=True,
    )


def _incomplete(message: PyTorchMessage, log: Log) -> Explanation:
    requested, capacity, free = message.requested, message.capacity, message.free
    assert requested is not None
    if capacity is not None and requested.size > capacity.size:
        return _impossible_cut(message, log, requested.size, capacity.size)
    told = f"{format_size(requested.size)} was refused"
    if free is not None and capacity is not None:
        told += f" with {format_size(free.size)} of {format_size(capacity.size)} free"
    if message.allocated is not None:
        told += f" and {format_size(message.allocated.size)} allocated"
    return _answer(
        message,
        log,
        None,
        Verdict.INCOMPLETE,
        f"{told}. The message is cut off before it says how much PyTorch holds unused.",
        "It can't be told from this part: what decides is how much is reserved by PyTorch but unallocated.",
        "Give the rest of the message (up to 'reserved by PyTorch but unallocated'), or print "
        "torch.cuda.memory_summary() where it fails.",
        helps=None,
    )


def _impossible_cut(message: PyTorchMessage, log: Log, requested: int, capacity: int) -> Explanation:
    return _answer(
        message,
        log,
        None,
        Verdict.IMPOSSIBLE,
        f"One request asks for {format_size(requested)}, more than the card has in all ({format_size(capacity)}).",
        "No: it could not be served on an empty card either.",
        "Look at the line that asks, and compute that tensor in chunks or make it "
        f"{requested / capacity:.1f} times smaller.",
    )


def _answer(
    message: PyTorchMessage,
    log: Log,
    sums: Sums | None,
    verdict: Verdict,
    happened: str,
    option: str,
    first: str,
    *,
    helps: bool | None = False,
    alloc_conf: str = "",
    notes: tuple[str, ...] = (),
) -> Explanation:
    unknown = tuple(f"The figure for {name} is an overflowed number and was left out." for name in message.unknown)
    return Explanation(
        wording=f"PyTorch {message.era}, {message.backend}",
        verdict=verdict,
        happened=happened,
        option=option,
        first=first,
        option_helps=helps,
        alloc_conf=alloc_conf,
        figures=_figures(message, sums),
        position=message.position,
        rank=log.rank_at(message.position),
        notes=(*notes, *unknown),
    )


def _figures(message: PyTorchMessage, sums: Sums | None) -> Figures:
    def size(amount: Amount | None) -> int | None:
        return None if amount is None else amount.size

    return Figures(
        requested=size(message.requested),
        capacity=size(message.capacity),
        free=size(message.free),
        allocated=size(message.allocated),
        reserved=size(message.reserved),
        stranded=size(message.stranded),
        private_pools=size(message.private_pools),
        allowed=size(message.allowed),
        this_process=size(message.this_process) if sums is None else sums.this_process,
        other_processes=message.processes if sums is None else sums.others,
        outside=None if sums is None else sums.outside,
        missing=None if sums is None else max(-sums.margin, 0),
        device=message.device,
        precision=0 if sums is None else sums.error,
    )
