"""What `peakmem conf` prints, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from peakmem.allocator.settings import options, variables
from peakmem.allocator.settings.findings import Finding, Kind
from peakmem.allocator.settings.model import ParseResult, Settings, caret
from peakmem.allocator.settings.releases import accepted_by
from peakmem.allocator.settings.version import REFERENCE
from peakmem.allocator.settings.wording import effect
from peakmem.cli.plain import item
from peakmem.units import format_size

if TYPE_CHECKING:
    from rich.console import Console

    from peakmem.allocator.settings.in_force import InForce
    from peakmem.allocator.settings.installed import InstalledTorch
    from peakmem.allocator.settings.lint import Remark

_STYLES = {Kind.HARMFUL: "bold red", Kind.INERT: "yellow", Kind.NOTE: "dim"}
_LEVEL_STYLES = {"error": "bold red", "warning": "yellow", "note": "dim"}


def split_assignment(string: str) -> tuple[str | None, str]:
    """Accept a whole line as pasted: `export PYTORCH_CUDA_ALLOC_CONF="a:1"` gives the name and the value."""
    words = string.strip().removeprefix("export ").strip()
    name, equals, value = words.partition("=")
    if not equals or name not in variables.ALL:
        return None, string
    if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
        value = value[1:-1]
    return name, value


def print_verdict(
    console: Console,
    result: ParseResult,
    findings: Sequence[Finding],
    torch: InstalledTorch,
    *,
    variable: str | None,
    at_length: bool,
) -> None:
    """The verdict on a string; with `at_length` also what each option does."""
    from rich.text import Text

    order = variables.order(result.version, platform=torch.platform.runtime)
    if variable is not None and variable not in order[0]:
        item(console, "inert", f"PyTorch {result.version} does not read {variable}.", style="yellow")
    version = f"PyTorch {result.version}" + ("" if torch.found else f" (assumed: {torch.where})")
    if result.refusal is not None:
        _print_refusal(console, result, version)
    else:
        console.print(Text(f"{version} accepts this string.", style="bold"))
    if at_length and result.accepted:
        for named in result.named:
            console.print()
            console.print(Text(f"{named.key}:{named.value}", style="bold"))
            item(console, "", effect(named, result), indent=2)
    if findings:
        console.print()
    for finding in findings:
        item(console, finding.kind.value, finding.text, style=_STYLES[finding.kind], hint=finding.suggestion)
    if at_length and result.accepted and not result.named:
        item(console, "", "It sets nothing: every option has its default.", indent=2)
    console.print()
    releases = accepted_by(result.text)
    text = f"Accepted by PyTorch {releases}." if releases else "No release of PyTorch accepts it."
    console.print(Text(text, style="dim"))
    if result.version > REFERENCE:
        console.print(Text(f"PyTorch {result.version} is newer than what was checked ({REFERENCE}).", style="dim"))


def _print_refusal(console: Console, result: ParseResult, version: str) -> None:
    from rich.text import Text

    refusal = result.refusal
    assert refusal is not None
    kind = f"{refusal.exception or 'a crash'} at the first use of CUDA"
    if refusal.aborts:
        kind = "import torch aborts the process"
    console.print(Text(f"{version} refuses this string: {kind}.", style="bold red"))
    # Carets must stay under their column, so these lines are never wrapped.
    console.print(Text(caret(result)), soft_wrap=True)
    item(console, "", _sentence(refusal.reason), hint=refusal.suggestion, indent=2)
    if refusal.text:
        item(console, "", f"PyTorch says: {refusal.text}", indent=2)


def _sentence(text: str) -> str:
    # The names of options and variables keep their spelling.
    first = text.partition(" ")[0]
    return f"{text if '_' in first else text[0].upper() + text[1:]}." if text else ""


def print_remarks(console: Console, remarks: Sequence[Remark], files: Sequence[str], torch: InstalledTorch) -> None:
    """The remarks of the linter, one place each."""
    from rich.text import Text

    for remark in remarks:
        cell = f"cell {remark.cell}:" if remark.cell else ""
        place = f"{remark.path}:{cell}{remark.line}:{remark.column}"
        console.print(Text(place, style="bold"), soft_wrap=True)
        style = _LEVEL_STYLES[remark.level.value]
        item(console, remark.level.value, remark.text, style=style, hint=remark.suggestion)
    count = f"{len(remarks)} remark{'s' if len(remarks) != 1 else ''}" if remarks else "Nothing to remark"
    names = files[0] if len(files) == 1 else f"{len(files)} files"
    console.print(Text(f"{count} in {names}, judged by PyTorch {torch.version}.", style="dim"), soft_wrap=True)


def print_in_force(console: Console, seen: Iterable[InForce]) -> None:
    """The settings of each process of a command."""
    from rich.text import Text

    for number, process in enumerate(seen):
        if number:
            console.print()
        console.print(Text(" ".join(process.command), style="bold"), soft_wrap=True)
        torch = f"PyTorch {process.torch.version}" if process.torch.found else "no torch there"
        item(console, "torch", torch)
        for name in variables.ALL:
            if name in process.environment:
                read = name in (process.sources.common, process.sources.cuda)
                item(console, "read" if read else "ignored", f"{name}={process.environment[name]}")
        if process.caching_off:
            value = process.environment[variables.NO_CACHING]
            text = f"{variables.NO_CACHING}={value} turns the caching allocator off"
            item(console, "caching", f"{text}; any value does." if value != "1" else f"{text}.")
        if process.sources.common is None:
            item(console, "settings", "none of the variables is set: the defaults are in force")
            continue
        if process.sources.cuda != process.sources.common:
            source = process.sources.cuda or "nowhere"
            text = f"CUDA's own options (backend, pinned_...) are read from {source}, the rest from "
            item(console, "note", text + f"{process.sources.common}.")
        result = process.result
        assert result is not None
        if result.refusal is not None:
            _print_refusal(console, result, torch)
            continue
        for line in changed(result.settings):
            item(console, "in force", line)
        if not changed(result.settings):
            item(console, "settings", "the string leaves every option at its default")
        for finding in process.findings:
            item(console, finding.kind.value, finding.text, style=_STYLES[finding.kind], hint=finding.suggestion)


def changed(settings: Settings) -> list[str]:
    """The options that differ from their defaults, for people."""
    default = Settings()
    lines = []
    for option in options.table():
        value = getattr(settings, option.field)
        if value == getattr(default, option.field):
            continue
        shown = "unlimited" if value is None else str(value)
        if isinstance(value, int) and not isinstance(value, bool) and option.kind == "size":
            shown = format_size(value, digits=0)
        elif option.kind == "divisions":
            shown = _divisions(value)
        lines.append(f"{option.field} = {shown}")
    return lines


def _divisions(table: tuple[int, ...]) -> str:
    if len(set(table)) == 1:
        return f"{table[0]} at every size"
    return ", ".join(
        f"{divisions} at {format_size(1 << (20 + index), digits=0)}" for index, divisions in enumerate(table)
    )


def as_json(result: ParseResult, findings: Iterable[Finding], *, command: str) -> dict[str, Any]:
    """The verdict on a string."""
    return {
        "schema": f"peakmem/conf-{command}/1",
        "torch": str(result.version),
        "string": result.text,
        "verdict": "accepted" if result.accepted else "refused",
        "refusal": None if result.refusal is None else asdict(result.refusal),
        "options": [{**asdict(named), "effect": effect(named, result)} for named in result.named],
        "settings": asdict(result.settings),
        "findings": [_finding_json(finding) for finding in findings],
        "accepted_by": accepted_by(result.text),
    }


def _finding_json(finding: Finding) -> dict[str, Any]:
    return {**asdict(finding), "kind": finding.kind.value}


def lint_json(remarks: Iterable[Remark], torch: InstalledTorch) -> dict[str, Any]:
    """The remarks of the linter."""
    results = [{**asdict(remark), "level": remark.level.value} for remark in remarks]
    return {"schema": "peakmem/conf-lint/1", "torch": str(torch.version), "results": results}


def show_json(seen: Iterable[InForce]) -> dict[str, Any]:
    """The settings of each process of a command."""
    results = []
    for process in seen:
        result = process.result
        results.append(
            {
                "command": list(process.command),
                "torch": str(process.torch.version) if process.torch.found else None,
                "environment": process.environment,
                "read": {"common": process.sources.common, "cuda": process.sources.cuda},
                "ignored": list(process.sources.ignored),
                "caching_off": process.caching_off,
                "verdict": None if result is None else "accepted" if result.accepted else "refused",
                "refusal": None if result is None or result.refusal is None else asdict(result.refusal),
                "settings": asdict(Settings() if result is None else result.settings),
                "findings": [_finding_json(finding) for finding in process.findings],
            }
        )
    return {"schema": "peakmem/conf-show/1", "results": results}
