"""The answer of `solve --smallest-card` for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from peakmem.units import format_size

if TYPE_CHECKING:
    from rich.console import Console

    from peakmem.advise.cards import CardTried, SmallestCard


def print_cards(found: SmallestCard, console: Console) -> None:
    """Print the answer."""
    lines: list[Text | Table] = [_answer(found), Text()]
    if found.tried:
        lines += [_table(found), Text()]
    if found.passed_over:
        lines.append(Text(f"{found.passed_over} cards passed over: this PyTorch has no kernels for them", style="dim"))
    lines.append(Text(f"{found.runs} runs, {found.seconds:.0f} s", style="dim"))
    for line in lines:
        console.print(Padding(line, (0, 0, 0, 1), expand=False))


def _answer(found: SmallestCard) -> Text:
    text = Text()
    if found.smallest is None:
        text.append("interrupted" if found.interrupted else "no card of the catalogue runs it", style="bold red")
    else:
        text.append(f"{found.smallest.full_name}", style="bold green")
        text.append(f" ({format_size(found.smallest.total)}) ")
        text.append("runs it; interrupted" if found.interrupted else "is the smallest card that runs it")
    if found.wanted is not None:
        text.append(f"\nwhere memory is no limit, the run uses {format_size(found.wanted)}")
    return text


def _table(found: SmallestCard) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("card")
    table.add_column("memory", justify="right")
    table.add_column("capability", justify="right")
    table.add_column("used", justify="right")
    table.add_column("")
    for card in found.tried:
        peak = card.attempt.peak
        used = format_size(peak.used) if peak is not None and card.attempt.fits else "-"
        style = "bold green" if card == found.smallest else "" if card.attempt.fits else "red"
        table.add_row(
            Text(card.name, style=style), format_size(card.total), card.compute_capability, used, _remark(card)
        )
    return table


def _remark(card: CardTried) -> Text:
    if card.attempt.error is not None:
        return Text(card.attempt.error, style="red")
    if not card.attempt.fits:
        return Text("out of memory", style="red")
    return Text("fits, under pressure" if card.attempt.retries else "fits")
