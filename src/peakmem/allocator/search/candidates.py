"""Which settings are worth trying for a trace: values come from the sizes that it asks for, not from a list."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from peakmem.allocator.settings import TorchVersion, parse
from peakmem.allocator.settings.findings import Kind, examine
from peakmem.trace.tables import Array
from peakmem.units import MIB

if TYPE_CHECKING:
    from peakmem.allocator.replay import Requests

GROUPS = 6
"""Most groups of large sizes that give a value of max_split_size_mb."""

_KIN = 1.25  # sizes whose ratio to the next is below this are one group
_SMALL, _LARGE = 1 * MIB, 10 * MIB  # requests between these come from shared large segments
_MIN_SPLIT = 20 * MIB
_MANY_SIZES = 4  # distinct sizes in one power of two from which rounding can pay


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """Settings to try.

    Attributes:
        alloc_conf: the settings.
        why: what they are meant to do here, a few words.
        exact_start: whether the memory at the start is to be as recorded.
    """

    alloc_conf: str
    why: str
    exact_start: bool = False

    @property
    def options(self) -> int:
        """How many options it sets: fewer are better."""
        return len(self.alloc_conf.split(":")) - 1 if self.alloc_conf else 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Situation:
    """What candidates depend on.

    Attributes:
        requests: what is replayed.
        version: of PyTorch.
        capacity: bytes that the allocator can get, None if unknown.
        total: bytes of the card.
        active: peak bytes active under the settings of the trace.
    """

    requests: Requests
    version: TorchVersion
    capacity: int | None
    total: int
    active: int


def singles(situation: Situation) -> list[Candidate]:
    """Candidates of one option (or of the few that only work together), the most promising first."""
    found = [
        Candidate(alloc_conf="expandable_segments:True", why="segments that grow and shrink page by page"),
        *_divisions(situation),
        *_splits(situation),
        *_segments(situation),
        *_collections(situation),
    ]
    return _accepted(found, situation)


def pairs(situation: Situation, best: Sequence[Candidate]) -> list[Candidate]:
    """Combinations of what did best alone, best first; each with what goes with it."""
    found: list[Candidate] = []
    splits = [c for c in best if "max_split_size_mb" in c.alloc_conf]
    rounds = [c for c in best if "roundup_power2_divisions" in c.alloc_conf]
    segments = [c for c in best if "large_segment_size_mb" in c.alloc_conf]
    for split in splits[:2]:
        found += _roundings(situation, split)
        found += [_both(split, other) for other in rounds[:2]]
    expandable = Candidate(alloc_conf="expandable_segments:True", why="")
    # Not with max_split_size_mb: there, reserved memory can grow without limit.
    found += [_both(expandable, other) for other in (*rounds[:1], *segments[:1])]
    found += [_both(segment, other) for segment in segments[:1] for other in rounds[:1]]
    return _accepted(found, situation)


def _both(first: Candidate, second: Candidate) -> Candidate:
    return Candidate(alloc_conf=f"{first.alloc_conf},{second.alloc_conf}", why="both together")


def _accepted(found: Sequence[Candidate], situation: Situation) -> list[Candidate]:
    """Those that this PyTorch takes and that neither harm nor do nothing."""
    kept: dict[str, Candidate] = {}
    for candidate in found:
        result = parse(candidate.alloc_conf, version=situation.version)
        if result.accepted and all(finding.kind is Kind.NOTE for finding in examine(result)):
            kept.setdefault(candidate.alloc_conf, candidate)
    return list(kept.values())


def size_groups(sizes: Array) -> list[tuple[int, int]]:
    """Groups of similar sizes above 20 MiB, most bytes first: the smallest size and all bytes asked for in each."""
    large = np.sort(sizes[sizes > _MIN_SPLIT])
    if not len(large):
        return []
    starts = np.concatenate([[0], np.flatnonzero(large[1:] > large[:-1] * _KIN) + 1])
    weights = np.add.reduceat(large.astype("f8"), starts)
    order = np.argsort(-weights, kind="stable")
    return [(int(large[starts[group]]), int(weights[group])) for group in order.tolist()]


def _splits(situation: Situation) -> Iterator[Candidate]:
    """One value below each group of large sizes: its blocks then stay whole for requests of that kind."""
    least = 20 if situation.version.at_least("2.10") else 21
    for smallest, _ in size_groups(situation.requests.requested)[:GROUPS]:
        value = max(smallest // MIB, least)
        yield Candidate(
            alloc_conf=f"max_split_size_mb:{value}",
            why=f"blocks of {value} MiB and more are kept whole for such requests",
        )


def _roundings(situation: Situation, split: Candidate) -> Iterator[Candidate]:
    """How much larger than the request an unsplit block may be, from how far the sizes above the limit lie apart."""
    if not situation.version.at_least("2.6"):
        return
    limit = parse(split.alloc_conf, version=situation.version).settings.max_split_size or 0
    sizes = np.unique(situation.requests.requested)
    above = sizes[sizes >= limit]
    if len(above) < 2:
        return
    for spread in (int(np.max(np.diff(above))), int(above[-1] - above[0])):
        value = -(-spread // MIB) + 1
        if value > 20:
            yield Candidate(
                alloc_conf=f"{split.alloc_conf},max_non_split_rounding_mb:{value}",
                why=f"and serve requests up to {value} MiB smaller",
            )


def _divisions(situation: Situation) -> Iterator[Candidate]:
    """Rounding for all sizes, and for those ranges alone in which sizes vary."""
    for count in (8, 4, 16, 2):
        yield Candidate(
            alloc_conf=f"roundup_power2_divisions:{count}",
            why=f"sizes are rounded to {count} steps between powers of two, so that they share blocks",
        )
    sizes = situation.requests.requested
    sizes = np.unique(sizes[sizes > _SMALL])
    if not len(sizes):
        return
    ranges = np.minimum(np.floor(np.log2(sizes / MIB)).astype(int), 15)
    counts = np.bincount(ranges, minlength=16)
    varying = counts >= _MANY_SIZES
    if not varying.any() or varying[counts > 0].all():
        return
    for count in (8, 4):
        table = [f"{1 << index}:{count if varying[index] else 0}" for index in range(16)]
        # `>` fills what comes after the last one listed; trailing equal entries can go. Below 1 MiB holds entry 0.
        last = int(np.flatnonzero(varying)[-1])
        listed = ",".join([*table[: last + 1], ">:0"]) if last < 15 else ",".join(table)
        yield Candidate(
            alloc_conf=f"roundup_power2_divisions:[{listed}]",
            why=f"{count} steps, only where sizes vary",
        )


def _segments(situation: Situation) -> Iterator[Candidate]:
    """Segments for requests of 1 to 10 MiB, where there are such: smaller ones strand less, larger ones hold more."""
    sizes = situation.requests.requested
    middle = sizes[(sizes > _SMALL) & (sizes < _LARGE)]
    if not len(middle):
        return
    usual = float(np.median(middle))
    values = {12, 40}
    # Whole numbers of the usual block, near the default.
    for target in (16, 32, 64):
        values.add(max(math.ceil(usual * max(round(target * MIB / usual), 1) / (2 * MIB)) * 2, 12))
    for value in sorted(values - {20}):
        yield Candidate(
            alloc_conf=f"large_segment_size_mb:{value}", why=f"requests of 1 to 10 MiB share segments of {value} MiB"
        )


def _collections(situation: Situation) -> Iterator[Candidate]:
    """Garbage collection works below a limit only: the memory there is, and a threshold just above what is in use."""
    if situation.capacity is None or not situation.version.at_least("2.10"):
        return
    share = math.floor(min(situation.capacity / situation.total, 0.99) * 100) / 100
    if share <= 0:
        return
    limit = share * situation.total
    in_use = math.ceil(situation.active / limit * 20) / 20
    for threshold in dict.fromkeys((in_use, 0.8)):
        if 0 < threshold < 1:
            yield Candidate(
                alloc_conf=f"garbage_collection_threshold:{threshold:g},per_process_memory_fraction:{share:g}",
                why=f"unused segments go back once more than {threshold:.0%} of the limit is held",
            )
