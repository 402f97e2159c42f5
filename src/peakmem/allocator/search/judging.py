"""What a search means for the user: which settings help, by how much, or why none does."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from peakmem.allocator.search.searching import Found, Tried
from peakmem.units import MIB

NEAR = 0.03
"""Settings whose costs differ by less than this share count as equal; the simpler ones win, since values that were made
for the sizes of one trace suit another one less."""

WORTH = 0.02
"""A gain below this share of the cost is not worth a setting."""

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
    # Settings with a memory limit can run out even here: what they had until then says nothing.
    least = min((one.free.active for one in everything if one.free.ran_out is None), default=0)
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
    gain = cost(base) - cost(best)
    if best.is_baseline or gain < max(WORTH * cost(base), _LEAST_GAIN):
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


def cost(tried: Tried) -> float:
    """The middle of what settings take where there is room and what they need where there is not, bytes.

    Either alone misleads: a peak that goes down under pressure costs little, and a floor that is reached only by giving
    the whole cache back again and again costs time.
    """
    floor = tried.floor.size if tried.floor is not None else None
    return (tried.reserved + (tried.reserved if floor is None else min(floor, tried.reserved))) / 2


def _best(tried: list[Tried]) -> Tried:
    """The lowest cost without retries; among near equals the fewest options, then the settings there are."""
    calm = [one for one in tried if one.limited is None or not one.limited.retries] or tried
    lowest = min(cost(one) for one in calm)
    near = [one for one in calm if cost(one) <= lowest * (1 + NEAR)]
    return min(near, key=lambda one: (one.candidate.options, not one.is_baseline, cost(one)))


def ranked(found: Found) -> list[Tried]:
    """All that was tried for a table: what fits first, then by cost; the baseline is the first row."""
    others = sorted(found.tried, key=lambda one: (not one.fits, cost(one), one.candidate.options))
    return [found.baseline, *others]
