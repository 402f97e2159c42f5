"""What `solve`, `advise`, `scenarios` and `check` find out. Every size is an integer number of bytes."""

from __future__ import annotations

from dataclasses import dataclass, field

from peakmem.forecast.model import Forecast, Gpu, OutOfMemory, Peak


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """One value that was run on the card.

    Attributes:
        value: the value.
        fits: whether it ran to its end without an out-of-memory error.
        peak: the peaks; of the part before the error where it did not fit. None if the script failed by itself.
        roles_at_peak: bytes by role at the peak.
        oom: where the card was too small.
        error: how the script failed by itself at this value; None if it did not.
        limited: whether the card's memory was a limit in this run; without, the peak is what the run wants.
        retries: how often the allocator gave cached memory back to go on.
    """

    value: int
    fits: bool
    peak: Peak | None
    roles_at_peak: dict[str, int] = field(default_factory=dict)
    oom: OutOfMemory | None = None
    error: str | None = None
    limited: bool = True
    retries: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Bend:
    """Where memory leaves the straight line through the two values before.

    Attributes:
        after: the last value on the line.
        at: the first measured value off it.
        expected: bytes allocated at `at` if it had gone on straight.
        found: bytes allocated there.
        role: the role that leaves its own line most; empty if roles are unknown.
        role_change: by how much, bytes.
    """

    after: int
    at: int
    expected: int
    found: int
    role: str
    role_change: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Solved:
    """The answer of `peakmem solve`.

    Attributes:
        what: the command or the model.
        name: what was varied.
        lowest, highest: the range that was searched.
        gpu: the card.
        largest: the largest value that was seen to fit; None: none fits.
        following: the next value, which was seen not to fit; None: there is none in the range.
        attempts: every value that was run, rising.
        wanted: the run of `following` (or of `lowest` if that does not fit) on a card without a limit; None: not made.
        bends: where memory is no straight line.
        islands: values that do not fit although larger ones do.
        interrupted: the search was stopped before it was certain of the answer.
        seconds: wall time.
        runs: how many runs were made.
    """

    what: str
    name: str
    lowest: int
    highest: int
    gpu: Gpu
    largest: int | None
    following: int | None
    attempts: tuple[Attempt, ...]
    wanted: Attempt | None = None
    bends: tuple[Bend, ...] = ()
    islands: tuple[int, ...] = ()
    interrupted: bool = False
    seconds: float = 0.0
    runs: int = 0


def attempt_of(value: int, forecast: Forecast, *, limited: bool) -> Attempt:
    """What a forecast says of a value."""
    error = forecast.error
    first_line = next(iter(error.message.strip().splitlines()), "") if error else ""
    failed = f"{error.type}: {first_line}" if error else None
    return Attempt(
        value=value,
        fits=error is None and (forecast.oom is None or forecast.oom.caught),
        peak=forecast.peak,
        roles_at_peak=forecast.roles_at_peak,
        oom=forecast.oom,
        error=failed,
        limited=limited,
        retries=forecast.retries,
    )
