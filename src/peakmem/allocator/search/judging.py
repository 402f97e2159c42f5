"""What a search means for the user: which settings help, by how much, or why none does."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from peakmem.allocator.search.searching import Found, Tried
from peakmem.units import MIB

NEAR = 0.01
"""Settings whose peaks differ by less than this share count as equal; the simpler ones win."""

WORTH = 0.02
"""A gain below this share of the peak is not worth a setting."""

_LEAST_GAIN = 32 * MIB


class Outcome(Enum):
    """What is to be said."""

    FITS_ALREADY = "fits_already"
    MAKES_IT_FIT = "makes_it_fit"
    HELPS = "helps"
    NO_HELP = "no_help"
    TOO_LITTLE = "too_little"


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """The judgement of a search.

    Attributes:
        outcome: what is to be said.
        best: the settings to take; None if none is worth it.
        least: bytes in use at a time at least, under whatever settings were tried: no setting can go below.
        short: bytes missing under the best settings; 0 if it fits or the memory is unknown.
        is_fragmentation: whether a noticeable part of what is missing is memory that is stranded.
        needed: the lowest floor that was found; None if none was looked for.
    """

    outcome: Outcome
    best: Tried | None
    least: int
    short: int
    is_fragmentation: bool
    needed: int | None = None


def judge(found: Found) -> Judgement:
    """Judge a search."""
    everything = [found.baseline, *found.tried]
    least = min(tried.free.active for tried in everything)
    base = found.baseline
    if found.capacity is not None:
        fitting = [tried for tried in everything if tried.fits]
        if not fitting:
            return _too_little(everything, found.capacity, least)
        best = _best(fitting)
        if not base.fits:
            return _judged(Outcome.MAKES_IT_FIT, best, least)
    else:
        best = _best(everything)
    gain = base.free.reserved - best.free.reserved
    if best.is_baseline or gain < max(WORTH * base.free.reserved, _LEAST_GAIN):
        fits = found.capacity is not None and base.fits
        return _judged(Outcome.FITS_ALREADY if fits else Outcome.NO_HELP, None, least)
    return _judged(Outcome.HELPS, best, least)


def _judged(outcome: Outcome, best: Tried | None, least: int) -> Judgement:
    return Judgement(outcome=outcome, best=best, least=least, short=0, is_fragmentation=False)


def _too_little(everything: list[Tried], capacity: int, least: int) -> Judgement:
    known = [(tried.floor.size, tried) for tried in everything if tried.floor and tried.floor.size is not None]
    needed, best = min(known, key=lambda pair: (pair[0], pair[1].candidate.options), default=(least, None))
    short = max(needed - capacity, 0)
    return Judgement(
        outcome=Outcome.TOO_LITTLE,
        best=best,
        least=least,
        short=short,
        is_fragmentation=needed - least > WORTH * needed,
        needed=needed if best is not None else None,
    )


def _best(tried: list[Tried]) -> Tried:
    """The least reserved memory; among near equals without retries, the fewest options, then the lowest floor."""

    def retries(one: Tried) -> int:
        return one.limited.retries if one.limited is not None else 0

    calm = [one for one in tried if not retries(one)] or tried
    lowest = min(one.reserved for one in calm)
    near = [one for one in calm if one.reserved <= lowest * (1 + NEAR)]
    return min(near, key=lambda one: (one.candidate.options, not one.is_baseline, one.reserved))


def ranked(found: Found) -> list[Tried]:
    """All that was tried for a table: what fits first, then by reserved memory; the baseline is the first row."""
    others = sorted(found.tried, key=lambda one: (not one.fits, one.reserved, one.candidate.options))
    return [found.baseline, *others]
