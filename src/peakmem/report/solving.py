"""The answer of `solve` for a terminal: the value, the curve, where it bends, and what stands in the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from peakmem.units import format_size

if TYPE_CHECKING:
    from rich.console import Console

    from peakmem.advise.model import Attempt, Solved

BAR = 30
_MOST_ROWS = 14
_PARTS = " ▏▎▍▌▋▊▉"


def print_solved(solved: Solved, console: Console) -> None:
    """Print the answer."""
    lines: list[Text | Table] = [_answer(solved), Text(), _curve(solved), Text(), *_why(solved), _effort(solved)]
    for line in lines:
        console.print(Padding(line, (0, 0, 0, 1), expand=False))


def _answer(solved: Solved) -> Text:
    text = Text()
    size = format_size(solved.gpu.total)
    card = solved.gpu.name if size in solved.gpu.name else f"{solved.gpu.name} ({size})"
    if solved.largest is None:
        if solved.interrupted and not solved.attempts:
            return text.append("interrupted before anything was known", style="bold")
        text.append(f"{solved.name} {solved.lowest:,} does not fit", style="bold red")
        return text.append(f" on {card}, and that is the smallest value")
    text.append(f"{solved.name} {solved.largest:,}", style="bold green")
    text.append(f" is the largest that fits on {card}\n" if not solved.interrupted else f" fits on {card}\n")
    if solved.interrupted:
        return text.append("interrupted: a larger value may fit as well", style="yellow")
    if solved.following is None:
        return text.append(f"it is the end of the range: larger values were not tried (--vary {solved.name}=...)")
    failing = _attempt(solved, solved.following)
    if failing is not None and failing.error is not None:
        return text.append(f"at {solved.following:,} the script itself fails: {failing.error}")
    return text.append(f"{solved.largest:,} was seen to fit, {solved.following:,} was seen not to")


def _attempt(solved: Solved, value: int) -> Attempt | None:
    return next((attempt for attempt in solved.attempts if attempt.value == value), None)


def _curve(solved: Solved) -> Table:
    """A bar of used memory for each value, the card's end marked."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(solved.name, justify="right")
    table.add_column("used", justify="right")
    table.add_column("", no_wrap=True)
    table.add_column("", overflow="fold")
    for attempt in _rows(solved):
        shown = attempt
        if solved.wanted is not None and attempt.value == solved.wanted.value:
            shown = solved.wanted
        style = "bold green" if attempt.value == solved.largest else "" if attempt.fits else "red"
        used = format_size(shown.peak.used) if shown.peak is not None and (shown.fits or not shown.limited) else "-"
        table.add_row(
            Text(f"{attempt.value:,}", style=style),
            used,
            _bar(shown, solved.gpu.total),
            Text(_remark(attempt), style=style or "dim"),
        )
    return table


def _rows(solved: Solved) -> list[Attempt]:
    """The attempts worth a row: those nearest to the answer where there are many."""
    if len(solved.attempts) <= _MOST_ROWS:
        return list(solved.attempts)
    middle = solved.largest if solved.largest is not None else solved.lowest
    near = sorted(solved.attempts[1:], key=lambda attempt: abs(attempt.value - middle))[: _MOST_ROWS - 1]
    return [solved.attempts[0], *sorted(near, key=lambda attempt: attempt.value)]


def _bar(attempt: Attempt, total: int) -> Text:
    if attempt.peak is None or (not attempt.fits and attempt.limited):
        return Text(" " * BAR + "│", style="dim")
    eighths = min(round(8 * BAR * attempt.peak.used / total), 8 * BAR)
    full, part = divmod(eighths, 8)
    bar = "█" * full + (_PARTS[part] if part else "")
    over = attempt.peak.used > total
    text = Text(f"{bar:<{BAR}}", style="red" if over else "cyan")
    return text.append("│", style="dim").append("▶" if over else "", style="red")


def _remark(attempt: Attempt) -> str:
    if attempt.error is not None:
        return "the script fails"
    if not attempt.fits:
        oom = attempt.oom
        return f"out of memory in {oom.phase}" if oom is not None and oom.phase != "other" else "out of memory"
    return "fits, under pressure" if attempt.retries else "fits"


def _why(solved: Solved) -> list[Text]:
    lines = []
    failing = _attempt(solved, solved.following) if solved.following is not None else None
    if failing is not None and failing.oom is not None:
        oom = failing.oom
        places = [f"step {oom.step + 1}", oom.phase, *(part for part in (oom.op, oom.module) if part)]
        lines.append(
            Text(
                f"{solved.name} {failing.value:,} asks for {format_size(oom.requested)} at once in "
                f"{', '.join(places)}, {format_size(oom.missing)} more than is left"
            )
        )
    if solved.wanted is not None and solved.wanted.peak is not None and solved.wanted.fits:
        lines.append(Text(f"without a limit it would take {format_size(solved.wanted.peak.used)}"))
    best = _attempt(solved, solved.largest) if solved.largest is not None else None
    if best is not None and best.retries:
        lines.append(
            Text(
                f"{solved.name} {best.value:,} fits under pressure: {best.retries} times the allocator waited for the "
                "card and gave cached memory back, which takes time on a real one"
            )
        )
    for bend in solved.bends:
        more = bend.found - bend.expected
        text = Text(f"no straight line between {bend.after:,} and {bend.at:,}: ", style="yellow")
        text.append(f"{format_size(abs(more))} {'more' if more > 0 else 'less'} allocated than it would give")
        if bend.role:
            text.append(f", most of it {bend.role.replace('_', ' ')} ({_signed(bend.role_change)})")
        lines.append(text)
    if solved.islands:
        values = ", ".join(f"{value:,}" for value in solved.islands)
        lines.append(Text(f"memory does not grow evenly: {values} did not fit although larger ones do", style="yellow"))
    return [*lines, Text()] if lines else []


def _signed(change: int) -> str:
    return ("+" if change > 0 else "-") + format_size(abs(change))


def _effort(solved: Solved) -> Text:
    return Text(f"{solved.runs} runs, {solved.seconds:.0f} s", style="dim")
