"""The `CpuForecast`: what training on the CPU takes of the host's memory, and whether it fits. Sizes are bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from peakmem.forecast.host import Host
from peakmem.forecast.model import Assumption, ScriptError, Verdict

CPU_SCHEMA = "peakmem/cpu-forecast/1"


@dataclass(frozen=True, kw_only=True, slots=True)
class CpuForecast:
    """What a run takes on the CPU; see `docs/forecast-json.md` for each field as JSON.

    Attributes:
        schema: version of the JSON.
        device: "cpu".
        peakmem, torch: versions.
        libc: the C library, "glibc 2.36", whose malloc decided what stays resident.
        command: the command that was watched.
        verdict: whether `host.peak_rss` (or `host.tree_rss`, with processes below) lies under `host.limit`.
        host: the memory.
        steady: whether the last step brought no new peak.
        stopped: why the script ended: "enough", "end", "failed", "interrupted", "timeout".
        error: how the script failed by itself.
        assumptions: what can't be known without computing, and what was taken instead.
        notes: in words.
        workload: of `peakmem predict`: what was trained.
        seconds: wall time of the forecast.
        own_peak: resident memory that the watched process really took (VmHWM).
    """

    schema: str = CPU_SCHEMA
    device: str = "cpu"
    peakmem: str
    torch: str
    libc: str
    command: tuple[str, ...]
    verdict: Verdict
    host: Host
    steady: bool
    stopped: str
    error: ScriptError | None = None
    assumptions: tuple[Assumption, ...] = ()
    notes: tuple[str, ...] = ()
    workload: dict[str, str] | None = None
    seconds: float = 0.0
    own_peak: int = 0

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """What IPython and a notebook show: the report that `peakmem run --device cpu` prints."""
        from peakmem.report.cpu import cpu_forecast_text  # only when somebody asks: data flows to reports, not back

        printer.text(cpu_forecast_text(self))
