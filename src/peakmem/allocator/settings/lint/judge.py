"""Judge the events of a script: set in time, spelt right, and worth setting."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from peakmem.allocator.settings import variables
from peakmem.allocator.settings.findings import LINUX_CUDA, Kind, Platform, examine
from peakmem.allocator.settings.frameworks import VARIABLES
from peakmem.allocator.settings.lint.events import Act, Event, events
from peakmem.allocator.settings.lint.frameworks import ACTS, judge_frameworks
from peakmem.allocator.settings.lint.notebook import cells
from peakmem.allocator.settings.model import Call
from peakmem.allocator.settings.parse import parse
from peakmem.allocator.settings.version import REFERENCE, TorchVersion
from peakmem.errors import PeakmemError


class Level(Enum):
    """How bad it is: an error has no effect or stops the program; a warning may."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, kw_only=True, slots=True)
class Remark:
    """One remark about a place in a file (line and column from 1; cell only in notebooks, 0 elsewhere)."""

    path: str
    cell: int
    line: int
    column: int
    level: Level
    text: str
    suggestion: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Placed:
    """An event and the cell it is in; 0 in scripts."""

    cell: int
    event: Event


def lint_file(path: Path, *, version: TorchVersion = REFERENCE, platform: Platform = LINUX_CUDA) -> list[Remark]:
    """Lint a Python script or a Jupyter notebook.

    Raises:
        PeakmemError: the file can't be read as either.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise PeakmemError(f"{path} can't be read: {error.strerror}", hint="give a .py or .ipynb file") from None
    if path.suffix == ".ipynb":
        placed: list[Placed] = []
        for cell in cells(data, str(path)):
            found = [*cell.magic, *_events(cell.source, f"{path}, cell {cell.number}")]
            placed.extend(
                Placed(cell=cell.number, event=event) for event in sorted(found, key=lambda event: event.line)
            )
        return _remarks(placed, str(path), version, platform)
    try:
        source = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise PeakmemError(f"{path} is not a text file", hint="give a .py or .ipynb file") from None
    return lint_source(source, path=str(path), version=version, platform=platform)


def lint_source(
    source: str, *, path: str = "<script>", version: TorchVersion = REFERENCE, platform: Platform = LINUX_CUDA
) -> list[Remark]:
    """Lint a Python program."""
    placed = [Placed(cell=0, event=event) for event in _events(source, path)]
    return _remarks(placed, path, version, platform)


def _events(source: str, path: str) -> list[Event]:
    try:
        return events(ast.parse(source))
    except SyntaxError as error:
        raise PeakmemError(
            f"{path}, line {error.lineno}: {error.msg}", hint="give a Python script or notebook"
        ) from None


def _remarks(placed: list[Placed], path: str, version: TorchVersion, platform: Platform) -> list[Remark]:
    blank = Remark(path=path, cell=0, line=1, column=1, level=Level.ERROR, text="")
    found = [*_judge(placed, path, version, platform), *judge_frameworks(placed, blank)]
    return sorted(found, key=lambda remark: (remark.cell, remark.line, remark.column))


def _judge(placed: Iterable[Placed], path: str, version: TorchVersion, platform: Platform) -> Iterator[Remark]:
    imported: Placed | None = None
    used: Placed | None = None
    for place in placed:
        event = place.event
        if event.act is Act.IMPORT_TORCH:
            imported = imported or place
        elif event.act is Act.USE_CUDA:
            used = used or place
        elif event.act not in ACTS and event.name not in VARIABLES:
            base = Remark(
                path=path, cell=place.cell, line=event.line, column=event.column + 1, level=Level.ERROR, text=""
            )
            if event.act is Act.SHELL_EXPORT:
                yield from _shell(base, event)
            elif event.act is Act.CALL_SETTINGS:
                yield from _call(base, event, version, platform)
            else:
                yield from _set(base, event, imported, used, version, platform)


def _shell(base: Remark, event: Event) -> Iterator[Remark]:
    yield replace(
        base,
        text=f"{event.name} is exported in a shell that ends at once; this process never sees it.",
        suggestion=f'%env {event.name}={event.value} in the first cell, or os.environ["{event.name}"] before torch is '
        "imported",
    )


def _call(base: Remark, event: Event, version: TorchVersion, platform: Platform) -> Iterator[Remark]:
    since = "and max_non_split_rounding_mb " if version.at_least("2.10") else ""
    yield replace(
        base,
        level=Level.NOTE,
        text=f"{event.name} resets max_split_size_mb, garbage_collection_threshold, roundup_power2_divisions {since}"
        "unless its string names them.",
        suggestion="pass the whole string each time",
    )
    if event.value is not None:
        yield from _value(base, event.value, version, platform, Call.RUN_TIME)


def _set(
    base: Remark,
    event: Event,
    imported: Placed | None,
    used: Placed | None,
    version: TorchVersion,
    platform: Platform,
) -> Iterator[Remark]:
    if event.name == variables.NO_CACHING:
        if event.value in ("0", "", "False", "false", "no"):
            yield replace(
                base,
                text=f"{event.name}={event.value} turns the caching allocator off: any value does, "
                f"{event.value!r} too.",
                suggestion="remove the variable",
            )
        return
    if event.name not in variables.ALL:
        yield from _misspelt(base, event)
        return
    order = variables.order(version, platform=platform.runtime)
    if event.name not in order[0] and event.name not in order[1]:
        yield replace(
            base,
            text=f"PyTorch {version} does not read {event.name}"
            + (" on ROCm." if platform.runtime == "rocm" else " in a CUDA build."),
            suggestion=f"set {variables.preferred(version, platform=platform.runtime)}",
        )
        return
    yield from _time(base, event, imported, used, version)
    if event.value is not None:
        yield from _value(base, event.value, version, platform, Call.ENVIRONMENT)


def _time(
    base: Remark, event: Event, imported: Placed | None, used: Placed | None, version: TorchVersion
) -> Iterator[Remark]:
    launcher = "set it in the launcher: peakmem exec --alloc-conf STR -- python SCRIPT, or in the shell that starts it"
    if used is not None:
        yield replace(
            base,
            text=f"Too late: CUDA is used before, {_where(used)} ({used.event.name}), and "
            f"{event.name} is read once, at "
            "the first use of CUDA.",
            suggestion=launcher,
        )
        return
    if imported is None:
        if not event.called:
            yield replace(
                base,
                level=Level.WARNING,
                text=f"{event.name} is set in a function that this file does not call; it counts only if that happens "
                "before the first use of CUDA.",
                suggestion=launcher,
            )
        return
    if event.value is not None and "backend:" in event.value.replace(" ", "") and version.at_least("2.0"):
        yield replace(
            base,
            text=f"Too late for backend: it is read when torch is imported, {_where(imported)} "
            f"({imported.event.name}).",
            suggestion=f"set it above that import, or {launcher[len('set it ') :]}",
        )
        return
    yield replace(
        base,
        level=Level.WARNING,
        text=f"{event.name} is set after {imported.event.name} is imported, {_where(imported)}. It still counts if "
        "nothing imported before has used CUDA.",
        suggestion=launcher,
    )


def _value(base: Remark, value: str, version: TorchVersion, platform: Platform, call: Call) -> Iterator[Remark]:
    result = parse(value, version=version, call=call)
    if result.refusal is not None:
        yield replace(
            base,
            text=f"PyTorch {version} refuses {value!r}: {result.refusal.reason}.",
            suggestion=result.refusal.suggestion,
        )
    for finding in examine(result, platform):
        if finding.kind is not Kind.NOTE:
            yield replace(base, level=Level.WARNING, text=finding.text, suggestion=finding.suggestion)


def _misspelt(base: Remark, event: Event) -> Iterator[Remark]:
    if "ALLOC" not in event.name.upper() or "PYTORCH" not in event.name.upper():
        return
    meant = difflib.get_close_matches(event.name.upper().strip(), variables.ALL, n=1, cutoff=0.75)
    if meant:
        yield replace(base, text=f"PyTorch reads no variable {event.name}.", suggestion=f"did you mean {meant[0]}?")


def _where(place: Placed) -> str:
    return f"in cell {place.cell}, line {place.event.line}" if place.cell else f"on line {place.event.line}"
