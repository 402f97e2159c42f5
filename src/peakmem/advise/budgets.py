"""A memory budget and a baseline: whether a run keeps to them, and what grew."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

import msgspec

from peakmem.errors import PeakmemError
from peakmem.forecast.model import Forecast
from peakmem.trace.compare import Change, by_place, changes, side_of_trace
from peakmem.trace.model import Trace
from peakmem.units import format_size, parse_size

SCHEMA = "peakmem/baseline/1"
Figure = Literal["used", "reserved", "allocated"]
FIGURES: tuple[Figure, ...] = get_args(Figure)
_LAYER = re.compile(r"(?<=\.)\d+(?=\.|$)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Baseline:
    """The figures of an accepted run, small enough to be kept with the code. Sizes in bytes.

    Attributes:
        peakmem: version of peakmem.
        torch: version of PyTorch.
        gpu: name of the card.
        alloc_conf: allocator settings.
        command: the command as it was typed, or the model.
        peak: `requested`, `allocated`, `active`, `reserved`, `context`, `used`.
        roles: allocated at the peak, by role.
        modules: allocated at the peak, by module; numbers of layers are `*`.
    """

    schema: str = SCHEMA
    peakmem: str
    torch: str
    gpu: str
    alloc_conf: str
    command: tuple[str, ...]
    peak: dict[str, int]
    roles: dict[str, int] = field(default_factory=dict)
    modules: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Tolerance:
    """How much more than the baseline is let pass: bytes, or a share of the baseline."""

    text: str
    size: int = 0
    share: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Tolerance:
        """Read `1%` or `256MiB`.

        Raises:
            PeakmemError: it is neither.
        """
        if text.endswith("%"):
            try:
                share = float(text[:-1]) / 100
            except ValueError:
                share = -1.0
            if share < 0:
                raise PeakmemError(f"--tolerance {text} is no share", hint="--tolerance 1%, or --tolerance 256MiB")
            return cls(text=text, share=share)
        return cls(text=text, size=parse_size(text))

    def of(self, baseline: int) -> int:
        """Bytes that are let pass."""
        return self.size + int(self.share * baseline)


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """The answer of `peakmem check`. Sizes in bytes.

    Attributes:
        passed: whether everything is kept.
        reason: why, one line.
        figure: which figure of the peak is compared.
        measured: that figure.
        budget: what it may be at most; None: no budget was given.
        baseline: what it was; None: there is no baseline.
        roles: by role, largest change first.
        modules: by module, likewise.
        remarks: differences in the setting that may explain a change.
    """

    passed: bool
    reason: str
    figure: Figure
    measured: int
    budget: int | None
    baseline: int | None
    roles: tuple[Change, ...] = ()
    modules: tuple[Change, ...] = ()
    remarks: tuple[str, ...] = ()


def baseline_of(forecast: Forecast, trace: Trace | None, *, command: tuple[str, ...]) -> Baseline:
    """The figures of a run, as a baseline for later ones; the command as it was typed."""
    peak = forecast.peak
    modules: dict[str, int] = {}
    if trace is not None:
        for module, size in by_place(side_of_trace(trace, "").holders, by_module=True).items():
            name = _LAYER.sub("*", module)
            modules[name] = modules.get(name, 0) + size
    return Baseline(
        peakmem=forecast.peakmem,
        torch=forecast.torch,
        gpu=forecast.gpu.name,
        alloc_conf=forecast.alloc_conf,
        command=command,
        peak={
            name: getattr(peak, name) for name in ("requested", "allocated", "active", "reserved", "context", "used")
        },
        roles={name: size for name, size in forecast.roles_at_peak.items() if size},
        modules=dict(sorted(modules.items(), key=lambda item: (-item[1], item[0]))),
    )


def read_baseline(path: Path) -> Baseline:
    """Read a baseline.

    Raises:
        PeakmemError: there is none, or the file is something else.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise PeakmemError(
            f"the baseline {path} can't be read: {error.strerror}", hint="--update-baseline writes it"
        ) from error
    try:
        found = msgspec.json.decode(content, type=Baseline)
    except msgspec.DecodeError as error:
        raise PeakmemError(f"{path} is no baseline: {error}", hint="--update-baseline writes one anew") from error
    if found.schema != SCHEMA:
        raise PeakmemError(f"{path} holds {found.schema!r}, not {SCHEMA!r}", hint="--update-baseline writes one anew")
    return found


def judge(
    now: Baseline,
    *,
    figure: Figure,
    budget: int | None,
    before: Baseline | None,
    tolerance: Tolerance,
    too_large_for: str | None = None,
) -> Checked:
    """Compare a run with its budget and its baseline.

    Args:
        now: the run.
        figure: which figure of the peak counts.
        budget: bytes it may be at most; None: no limit.
        before: the baseline; None: none.
        tolerance: how much more than the baseline is let pass.
        too_large_for: name of the card, if the run does not fit it.
    """
    measured = now.peak[figure]
    was = before.peak.get(figure) if before is not None else None
    over_budget = budget is not None and measured > budget
    grown = was is not None and measured > was + tolerance.of(was)
    parts = []
    if budget is not None:
        left = budget - measured
        spare = f"{format_size(left)} to spare" if left >= 0 else f"{format_size(-left)} over"
        parts.append(f"budget {format_size(budget)}, {spare}")
    if was is not None:
        parts.append(_since(measured - was, tolerance, grown=grown))
    if too_large_for is not None:
        parts.insert(0, f"does not fit {too_large_for}")
    failed = too_large_for is not None or over_budget or grown
    word = "over budget" if over_budget else "grown" if grown else "too large" if failed else "ok"
    return Checked(
        passed=not failed,
        reason=f"{word}: {format_size(measured)} {figure}; {'; '.join(parts)}",
        figure=figure,
        measured=measured,
        budget=budget,
        baseline=was,
        roles=_changed(before.roles, now.roles) if before is not None else (),
        modules=_changed(before.modules, now.modules) if before is not None else (),
        remarks=_remarks(before, now) if before is not None else (),
    )


def _since(change: int, tolerance: Tolerance, *, grown: bool) -> str:
    if change == 0:
        return "as in the baseline, to the byte"
    sign = "+" if change > 0 else "-"
    text = f"{sign}{format_size(abs(change))} since the baseline"
    return f"{text}, of which {tolerance.text} is let pass" if grown and (tolerance.size or tolerance.share) else text


def _changed(before: dict[str, int], now: dict[str, int]) -> tuple[Change, ...]:
    return tuple(one for one in changes(before, now) if one.change)


def _remarks(before: Baseline, now: Baseline) -> tuple[str, ...]:
    rows = [
        ("PyTorch", before.torch, now.torch),
        ("the card", before.gpu, now.gpu),
        ("the allocator settings", before.alloc_conf or "none", now.alloc_conf or "none"),
        ("peakmem", before.peakmem, now.peakmem),
    ]
    return tuple(f"{what} changed: {old} -> {new}" for what, old, new in rows if old != new)
