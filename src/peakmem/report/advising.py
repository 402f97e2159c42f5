"""The answer of `advise` for a terminal: what each change saves, then the plan with the lines to change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from peakmem.units import format_size

if TYPE_CHECKING:
    from rich.console import Console

    from peakmem.advise.advising import Advice, Advised
    from peakmem.forecast.model import Gpu


def print_advised(advised: Advised, console: Console) -> None:
    """Print the answer."""
    lines: list[Text | Table] = [_now(advised), Text()]
    tried = [advice for advice in advised.advices if not advice.why_not]
    if tried:
        lines += [_table(tried), Text()]
    without = [advice for advice in advised.advices if advice.why_not]
    if without:
        lines += [_not_tried(without), Text()]
    lines += _plan(advised)
    lines.append(Text(f"{advised.runs} runs, {advised.seconds:.0f} s", style="dim"))
    for line in lines:
        console.print(Padding(line, (0, 0, 0, 1), expand=False))


def card_text(gpu: Gpu) -> str:
    """The card with its memory, which some names have in them."""
    size = format_size(gpu.total)
    return gpu.name if size in gpu.name else f"{gpu.name} ({size})"


def _now(advised: Advised) -> Text:
    text = Text()
    if advised.fits_already:
        text.append("it fits as it is", style="bold green").append(f" on {card_text(advised.gpu)}: ")
    else:
        text.append("as it is it does not fit", style="bold red").append(f" on {card_text(advised.gpu)}: ")
    text.append(f"it uses {format_size(advised.used)}")
    over = advised.used - advised.gpu.total
    if over > 0:
        text.append(f", {format_size(over)} more than there is")
    return text


def _table(tried: list[Advice]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("one change")
    table.add_column("saves", justify="right", no_wrap=True)
    table.add_column("uses", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("costs", overflow="fold")
    for advice in tried:
        style = "green" if advice.fits else ""
        name = Text(advice.titles[0], style=style)
        table.add_row(
            name,
            format_size(advice.saving) if advice.saving and advice.saving > 0 else "nothing",
            format_size(advice.used or 0),
            Text("fits", style="green") if advice.fits else Text(""),
            Text(advice.costs[0], style="dim"),
        )
    return table


def _not_tried(without: list[Advice]) -> Table:
    table = Table.grid(padding=(0, 2))
    for advice in without:
        table.add_row(Text(advice.titles[0], style="dim"), Text(advice.why_not, style="dim"))
    return table


def _plan(advised: Advised) -> list[Text]:
    if advised.fits_already:
        return []
    if advised.interrupted:
        return [Text("interrupted before a plan was found", style="yellow"), Text()]
    plan = advised.plan
    if plan is None:
        text = Text("nothing that was tried makes it fit", style="bold red")
        if advised.best is not None:
            text.append(f"; together these leave {format_size(advised.best.used or 0)}: ", style="")
            text.append(", ".join(advised.best.titles))
        return [text, Text()]
    kind = "the same mathematics" if plan.keeps_mathematics else "it changes the mathematics"
    text = Text("plan", style="bold green")
    text.append(f": {format_size(plan.used or 0)} instead of {format_size(advised.used)}; {kind}; run on the card\n")
    for number, (title, line, cost) in enumerate(zip(plan.titles, plan.lines, plan.costs, strict=True)):
        text.append(f"{number + 1}. {title}\n")
        text.append(f"   {line}\n", style="bold")
        text.append(f"   costs: {cost}\n", style="dim")
    return [text]
