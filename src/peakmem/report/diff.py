"""A comparison as tables for the terminal, and as JSON."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from peakmem.units import format_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from peakmem.trace.compare import Change, Comparison, TensorChange

SCHEMA = "peakmem/diff/1"
_NO_DETAIL = "To compare modules and tensors give two traces (peakmem run --save), or two forecasts with holders."
_LARGEST_ONLY = "A forecast lists its largest holders alone; two traces (peakmem run --save) are compared whole."


def diff_json(comparison: Comparison) -> dict[str, Any]:
    """The comparison as a JSON object; sizes in bytes."""

    def rows(changes: Sequence[Change]) -> list[dict[str, Any]]:
        return [{"name": one.name, "a": one.a, "b": one.b, "change": one.change} for one in changes]

    return {
        "schema": SCHEMA,
        "a": comparison.a.name,
        "b": comparison.b.name,
        "peak": {one.name: {"a": one.a, "b": one.b, "change": one.change} for one in comparison.sums},
        "roles": rows(comparison.roles),
        "places": rows(comparison.places),
        "tensors": [
            {
                "what": one.what,
                "role": one.role,
                "name": one.name,
                "module": one.module,
                "line": one.line,
                "dtype": one.dtype,
                "shape_a": list(one.shape_a),
                "shape": list(one.shape),
                "a": one.a,
                "b": one.b,
                "change": one.change,
                "count_a": one.count_a,
                "count_b": one.count_b,
            }
            for one in comparison.tensors
        ],
    }


def print_diff(comparison: Comparison, console: Console, *, top: int) -> None:
    """Print the comparison; `top` rows of each long table."""
    console.print(f"a  {comparison.a.name}", soft_wrap=True)
    console.print(f"b  {comparison.b.name}", soft_wrap=True)
    _changes(console, "at the peak", comparison.sums, top=len(comparison.sums))
    if comparison.roles:
        _changes(console, "by role", [_spelled(one) for one in comparison.roles if one.a or one.b], top=top)
    a, b = comparison.a, comparison.b
    if not (a.holders and b.holders) or a.largest_only != b.largest_only:
        console.print()
        console.print(_NO_DETAIL)
        return
    changed = [one for one in comparison.places if one.change]
    title = "by module" if any(one.module for one in comparison.tensors) else "by function"
    if changed:
        _changes(console, title, changed, top=top)
    _tensors(console, comparison.tensors, top=top)
    if a.largest_only:
        console.print()
        console.print(_LARGEST_ONLY)


def _spelled(one: Change) -> Change:
    return replace(one, name=one.name.replace("_", " "))


def signed(change: int) -> Text:
    """A difference with its sign: red where more is needed, green where less."""
    if not change:
        return Text("same", style="dim")
    sign = "+" if change > 0 else "-"
    return Text(f"{sign}{format_size(abs(change))}", style="red" if change > 0 else "green")


def _table(*columns: tuple[str, bool]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for number, (title, right) in enumerate(columns):
        if right:
            table.add_column(title, justify="right", no_wrap=True)
        else:
            table.add_column(title, overflow="fold", ratio=1 if number == 0 else None)
    return table


def _changes(console: Console, title: str, changes: Sequence[Change], *, top: int) -> None:
    table = _table((title, False), ("a", True), ("b", True), ("change", True))
    for one in changes[:top]:
        table.add_row(Text(one.name), format_size(one.a), format_size(one.b), signed(one.change))
    rest = changes[top:]
    if rest:
        a, b = sum(one.a for one in rest), sum(one.b for one in rest)
        table.add_row(Text(f"{len(rest)} more"), format_size(a), format_size(b), signed(b - a), style="dim")
    console.print()
    console.print(table)


def _tensors(console: Console, changes: Sequence[TensorChange], *, top: int) -> None:
    console.print()
    if not changes:
        console.print("The same tensors are alive at both peaks.")
        return
    table = _table(("tensors", False), ("", False), ("a", True), ("b", True), ("change", True))
    for one in changes[:top]:
        table.add_row(
            _what(one), one.what, _blocks(one.a, one.count_a), _blocks(one.b, one.count_b), signed(one.change)
        )
    rest = changes[top:]
    if rest:
        a, b = sum(one.a for one in rest), sum(one.b for one in rest)
        table.add_row(Text(f"{len(rest)} more"), "", format_size(a), format_size(b), signed(b - a), style="dim")
    console.print(table)


def _what(one: TensorChange) -> Text:
    first = one.name or one.module or one.line
    text = Text(first)
    if one.shape:
        before = f"{list(one.shape_a)} -> " if one.shape_a != one.shape else ""
        text.append(f"\n{one.dtype} {before}{list(one.shape)}", style="dim")
    rest = [part for part in (one.role.replace("_", " ") if one.role != "unattributed" else "", one.module, one.line)
            if part and part != first]  # fmt: skip
    if rest:
        text.append("\n" + " · ".join(rest), style="dim")
    return text


def _blocks(size: int, count: int) -> str:
    if not count:
        return "-"
    return format_size(size) if count == 1 else f"{count} x {format_size(size // count)}"
