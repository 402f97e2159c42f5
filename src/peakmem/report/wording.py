"""What every rendering of a forecast says in the same words: the statement of memory, names, places."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from peakmem.forecast.model import Forecast, Gpu, Holder, OutOfMemory, Peak
from peakmem.trace.roles import Role
from peakmem.units import format_size

VERDICT_WORDS = {"fits": "fits", "tight": "fits, but tightly", "does_not_fit": "does not fit"}


@dataclass(frozen=True, kw_only=True, slots=True)
class StatementRow:
    """A line of the statement.

    Attributes:
        name: a term, for instance "stranded".
        bytes: how much; what is not a sum is added to the sum before it.
        remark: what it is, in words.
        is_sum: whether it is a sum of those before.
    """

    name: str
    bytes: int
    remark: str
    is_sum: bool = False


def framework_text(forecast: Forecast) -> str:
    """The framework that was run, with its version."""
    return forecast.framework or f"torch {forecast.torch}"


def statement_rows(peak: Peak, framework: str = "") -> tuple[StatementRow, ...]:
    """From what the program asked for to what the process takes; every sum closes.

    Args:
        peak: the highest values.
        framework: the framework, if it is not PyTorch.
    """
    error = format_size(peak.context_error, digits=0)
    last = [
        StatementRow(name="context", bytes=peak.context, remark=f"estimate, ± {error}"),
        StatementRow(name="used", bytes=peak.used, remark="what nvidia-smi would show", is_sum=True),
    ]
    if framework:
        rounding = peak.allocated - peak.requested
        return (
            *(
                [
                    StatementRow(
                        name="requested", bytes=peak.requested, remark="what the program asked for", is_sum=True
                    ),
                    StatementRow(name="rounding", bytes=rounding, remark="to 256 B and unsplit chunks"),
                ]
                if rounding
                else []
            ),
            StatementRow(
                name="allocated", bytes=peak.allocated, remark="get_memory_info('GPU:0')['peak']", is_sum=True
            ),
            StatementRow(
                name="stranded", bytes=peak.reserved - peak.active, remark="free in regions, each twice the last"
            ),
            StatementRow(name="reserved", bytes=peak.reserved, remark="with memory growth", is_sum=True),
            *last,
        )
    rows = [
        StatementRow(name="requested", bytes=peak.requested, remark="what the program asked for", is_sum=True),
        StatementRow(name="rounding", bytes=peak.allocated - peak.requested, remark="to 512 B and unsplit blocks"),
        StatementRow(name="allocated", bytes=peak.allocated, remark="torch.cuda.max_memory_allocated", is_sum=True),
        StatementRow(
            name="waiting", bytes=peak.active - peak.allocated, remark="freed, another stream may still use it"
        ),
        StatementRow(name="stranded", bytes=peak.reserved - peak.active, remark="held by the allocator, but free"),
        StatementRow(name="reserved", bytes=peak.reserved, remark="torch.cuda.max_memory_reserved", is_sum=True),
        *last,
    ]
    return tuple(row for row in rows if row.name != "waiting" or row.bytes)


def card_text(gpu: Gpu) -> str:
    """The card, with its size unless the name says it."""
    size = format_size(gpu.total)
    return gpu.name if size in gpu.name else f"{gpu.name} ({size})"


def verdict_text(forecast: Forecast) -> str:
    """The verdict in words; where parts of the training are left out, no more is known than that they may fit too."""
    if forecast.left_out and forecast.verdict != "does_not_fit":
        return "may fit"
    return VERDICT_WORDS[forecast.verdict]


def usage_text(forecast: Forecast) -> str:
    """How much is used, and how much of the card is left or missing."""
    used, spare = forecast.peak.used, forecast.gpu.total - forecast.peak.used
    if forecast.left_out:
        *others, last = forecast.left_out
        parts = f"{', '.join(others)} and {last}" if others else last
        room = f"{format_size(spare)} are left for them" if spare >= 0 else f"{format_size(-spare)} more than there is"
        return f"at least {format_size(used)} used at the peak, without {parts}: {room}"
    if spare >= 0:
        return f"{format_size(used)} used at the peak, {format_size(spare)} spare"
    return f"{format_size(used)} would be used at the peak, {format_size(-spare)} more than there is"


def role_title(word: str) -> str:
    """The name of a role in print."""
    return Role[word.upper()].title


def holder_text(holder: Holder) -> str:
    """Where the tensors live: the name of a parameter, the module of an activation."""
    if holder.role in ("parameter", "buffer", "gradient", "optimizer_state", "input"):
        return holder.name
    op = (holder.op or "").removeprefix("aten::")
    made = ", ".join(part for part in (holder.module, op) if part)
    if holder.role in ("activation", "autocast_copy") or not holder.name:
        return made
    return f"{holder.name} ({made})" if made and holder.role != "workspace" else holder.name


def example_text(holder: Holder) -> str:
    """One block, with the module and line that made it."""
    module = f"in {holder.module}" if holder.module and holder.role != "gradient" else ""
    line = f"({short_line(holder.line)})" if holder.line else ""
    return " ".join(part for part in (holder.name or (holder.op or ""), module, line) if part)


def place_of_peak(peak: Peak) -> str:
    """Where the peak is reached: "step 2, backward, ..."; empty if nothing is known."""
    parts = [
        f"step {peak.step + 1}" if peak.step is not None else None,
        peak.phase if peak.phase != "other" else None,
        peak.op,
        peak.module,
        short_line(peak.line),
    ]
    return ", ".join(part for part in parts if part)


def place_of_failure(oom: OutOfMemory) -> str:
    """Where memory ran out: "step 2, backward, ..."."""
    parts = [f"step {oom.step + 1}", oom.phase, oom.op, oom.module, oom.line]
    return ", ".join(part for part in parts if part)


def short_line(line: str | None) -> str:
    """`file.py:12` of a path with a line number."""
    return PurePosixPath(line).name if line else ""


def times(count: int) -> str:
    """How often something was met."""
    return "once" if count == 1 else f"{count:,} times"
