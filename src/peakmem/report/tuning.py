"""The result of `peakmem tune` as text and as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.text import Text

from peakmem.allocator.replay.model import Replayed
from peakmem.allocator.search import Found, Judgement, Outcome, Tried
from peakmem.allocator.search.judging import ranked
from peakmem.allocator.search.paste import pastes
from peakmem.allocator.settings import TorchVersion
from peakmem.report.replay_json import document, replayed_as_json
from peakmem.report.replays import WORTH_SAYING, floor_text, name_of, print_row, print_timelines, row_text
from peakmem.units import format_size

SHOWN = 8
"""Settings shown, besides the baseline, unless all are asked for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verified:
    """A fresh run of the command under the best settings.

    Attributes:
        alloc_conf: the settings.
        reserved: peak bytes reserved.
        retries: requests that needed all of the cache to be given back first.
        fits: whether it ended without an out-of-memory error.
        limited: whether the memory of the card was a limit.
        steps: training steps.
    """

    alloc_conf: str
    reserved: int
    retries: int
    fits: bool
    limited: bool
    steps: int


def verdict(found: Found, judgement: Judgement) -> str:
    """What the search found, in one or two sentences."""
    base, best = found.baseline, judgement.best
    own = name_of(base.candidate.alloc_conf)
    if judgement.outcome is Outcome.TOO_LITTLE:
        return _too_little(found, judgement)
    if best is None:
        stranded = base.free.reserved - base.free.active
        if judgement.outcome is Outcome.FITS_ALREADY and found.capacity is not None:
            spare = format_size(found.capacity - base.reserved)
            return f"It fits as it is, with {spare} spare, and no option takes noticeably less."
        share = stranded / base.free.reserved if base.free.reserved else 0
        fragmentation = (
            "nothing here is fragmentation"
            if share < 0.05
            else f"{format_size(stranded)} of {format_size(base.free.reserved)} are not in use, but no setting regains "
            "a noticeable part of them"
        )
        return f"No option helps: {fragmentation}."
    conf = name_of(best.candidate.alloc_conf)
    if judgement.outcome is Outcome.MAKES_IT_FIT:
        assert base.limited is not None
        assert found.capacity is not None
        if best.candidate.alloc_conf == base.candidate.alloc_conf:
            conf = f"{conf} from a tidy start"
        return (
            f"{conf} makes it fit: {format_size(best.reserved)} reserved, {format_size(found.capacity)} to be had. "
            f"Under {own} it runs out of memory."
        )
    gain = base.reserved - best.reserved
    if gain >= 0:
        text = (
            f"{conf} takes {format_size(gain)} less: {format_size(best.reserved)} reserved instead of "
            f"{format_size(base.reserved)} under {own}."
        )
    else:
        text = f"{conf} takes {format_size(best.reserved)} where there is room, {format_size(-gain)} more than {own}."
    return text + _floors(base, best)


def _floors(base: Tried, best: Tried) -> str:
    """What the settings need where there is little room; empty if unknown."""
    if base.floor is None or best.floor is None or base.floor.size is None or best.floor.size is None:
        return ""
    if base.floor.size == best.floor.size:
        return f" Either needs {format_size(best.floor.size)} at least."
    return f" It needs {format_size(best.floor.size)} at least, instead of {format_size(base.floor.size)}."


def _too_little(found: Found, judgement: Judgement) -> str:
    assert found.capacity is not None
    text = f"You are {format_size(judgement.short)} short"
    if not judgement.is_fragmentation:
        return (
            f"{text}; nothing here is fragmentation: {format_size(judgement.least)} are in use at one time under the "
            f"most frugal settings, and there are {format_size(found.capacity)} to be had. No option can help; a "
            "smaller batch, checkpointing or a larger card can."
        )
    assert judgement.best is not None
    assert judgement.needed is not None
    lost = judgement.needed - judgement.least
    return (
        f"{text} even under the best settings tried, {name_of(judgement.best.candidate.alloc_conf)}: "
        f"{format_size(judgement.needed)} are needed, of which {format_size(lost)} are fragmentation that no "
        "option removes."
    )


def growth(found: Found, best: Tried | None) -> str:
    """Whether stranded memory grows, and whether the best settings stop it; empty if it does not."""
    base = found.baseline.free
    if base.curve.grew <= WORTH_SAYING * base.reserved:
        return ""
    text = (
        f"Under {name_of(base.alloc_conf)} stranded memory grows: by {format_size(base.curve.grew)} after the first "
        "quarter of the trace, while no more is in use"
    )
    if best is None or best.is_baseline:
        return text + "."
    grew = best.free.curve.grew
    name = name_of(best.candidate.alloc_conf)
    if grew <= WORTH_SAYING * best.free.reserved:
        return f"{text}. {name} stops that."
    return f"{text}. Under {name} it still grows, by {format_size(grew)}."


def print_tuning(
    found: Found,
    judgement: Judgement,
    console: Console,
    *,
    version: TorchVersion,
    why_room: str = "",
    notes: Sequence[str] = (),
    verified: Verified | None = None,
    show_all: bool = False,
) -> None:
    """Print the result: verdict, table, timelines, verification, and what to paste."""
    best = judgement.best

    def paragraph(text: str, style: str = "") -> None:
        for line in textwrap.wrap(text, console.width, break_on_hyphens=False, break_long_words=False):
            console.print(Text(line, style=style), soft_wrap=True)

    paragraph(verdict(found, judgement), _STYLES[judgement.outcome])
    if judgement.outcome is not Outcome.TOO_LITTLE and (sentence := growth(found, best)):
        paragraph(sentence)
    if verified is not None:
        paragraph(_verified(verified, best))
    console.print()
    _table(found, judgement, console, show_all=show_all)
    console.print()
    print_timelines(_drawn(found, best), console, capacity=found.capacity)
    console.print()
    requests = found.baseline.free.requests
    room = f"; room for {format_size(found.capacity)}: {why_room}" if found.capacity is not None else ""
    paragraph(
        f"settings tried: {len(found.tried) + 1}, each with {requests:,} requests through the allocator of torch "
        f"{found.baseline.free.torch}, {found.seconds:.0f} s{room}",
        "dim",
    )
    if found.stopped or found.left:
        reason = "stopped by you" if found.stopped else "the time was up"
        paragraph(f"{reason}: {found.left} settings were not tried; --budget-seconds gives more time", "dim")
    for note in notes:
        paragraph(f"note: {note}", "dim")
    if best is not None and judgement.outcome is not Outcome.TOO_LITTLE and best.candidate.alloc_conf:
        for paste in pastes(best.candidate.alloc_conf, version):
            console.print()
            paragraph(f"{paste.place}:", "dim")
            for line in paste.text.splitlines():
                console.print(Text(f"  {line}"), soft_wrap=True)


_WIDTHS = (11, 11, 11, 9, 11)

_STYLES = {
    Outcome.FITS_ALREADY: "bold green",
    Outcome.MAKES_IT_FIT: "bold green",
    Outcome.HELPS: "bold green",
    Outcome.NO_HELP: "bold",
    Outcome.TOO_LITTLE: "bold red",
}


def _verified(verified: Verified, best: Tried | None) -> str:
    if not verified.fits:
        return f"A fresh run of the command under {name_of(verified.alloc_conf)} ran out of memory all the same."
    expected = best.reserved if best is not None and verified.limited else best.free.reserved if best else 0
    how = "with that memory" if verified.limited else "without a limit"
    text = f"Verified by a fresh run of the command ({verified.steps} steps, {how}): {format_size(verified.reserved)} "
    return text + (
        "reserved, as replayed."
        if verified.reserved == expected
        else f"reserved; the replay said {format_size(expected)}."
    )


def _table(found: Found, judgement: Judgement, console: Console, *, show_all: bool) -> None:
    rows = ranked(found)
    shown = rows if show_all else rows[: SHOWN + 1]
    if judgement.best is not None and judgement.best not in shown:
        shown = [*shown, judgement.best]
    limited = found.capacity is not None
    console.print(
        Text(row_text("settings", ("reserved", "floor", "stranded", "retries", "grew"), widths=_WIDTHS), style="dim")
    )
    for tried in shown:
        replayed = tried.limited or tried.free
        name = name_of(tried.candidate.alloc_conf)
        if tried.is_baseline:
            name += " *"
        elif tried.candidate.alloc_conf == found.baseline.candidate.alloc_conf:
            name += ", tidy"
        cells = (
            "no room" if replayed.ran_out else format_size(replayed.reserved),
            floor_text(tried.floor),
            format_size(replayed.stranded),
            f"{replayed.retries:,}" if limited else "-",
            format_size(tried.free.curve.grew, digits=1),
        )
        is_best = tried is judgement.best and judgement.outcome is not Outcome.TOO_LITTLE
        style = "red" if replayed.ran_out else "bold green" if is_best else ""
        print_row(console, name, cells, widths=_WIDTHS, style=style, mark=" <" if is_best else "")
    if len(shown) < len(rows):
        console.print(Text(f"and {len(rows) - len(shown)} more (--all shows them)", style="dim"))
    legend = (
        "* as it is; floor: the smallest capacity that works; "
        "grew: stranded memory, after the first quarter of the trace"
    )
    if any(one.candidate.alloc_conf == found.baseline.candidate.alloc_conf for one in shown if not one.is_baseline):
        legend += "; tidy: what was there at the start lies without gaps, as for all rows but the first"
    for line in textwrap.wrap(legend, console.width):
        console.print(Text(line, style="dim"), soft_wrap=True)


def _drawn(found: Found, best: Tried | None) -> list[Replayed]:
    drawn = [found.baseline.limited or found.baseline.free]
    if best is not None and not best.is_baseline:
        drawn.append(best.limited or best.free)
    return drawn


def tuning_as_json(
    found: Found, judgement: Judgement, *, version: TorchVersion, verified: Verified | None = None
) -> dict[str, Any]:
    """The result as JSON: `{"schema": "peakmem/tune/1", "results": [...]}`, the baseline first."""
    best = judgement.best

    def entry(tried: Tried) -> dict[str, Any]:
        return {
            **replayed_as_json(tried.free, tried.floor),
            "baseline": tried.is_baseline,
            "why": tried.candidate.why,
            "with_capacity": replayed_as_json(tried.limited) if tried.limited is not None else None,
        }

    return document(
        "tune",
        [entry(tried) for tried in ranked(found)],
        torch=str(version),
        capacity=found.capacity,
        outcome=judgement.outcome.value,
        verdict=verdict(found, judgement),
        best=best.candidate.alloc_conf if best else None,
        least=judgement.least,
        short=judgement.short,
        is_fragmentation=judgement.is_fragmentation,
        verified=asdict(verified) if verified else None,
        stopped=found.stopped,
        left=found.left,
        seconds=round(found.seconds, 2),
    )
