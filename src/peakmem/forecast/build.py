"""From what a session left behind to a `Forecast`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

import peakmem
from peakmem.forecast.card import Card
from peakmem.forecast.holders import AtPeak, at_peak
from peakmem.forecast.model import (
    Assumption,
    Changed,
    Forecast,
    Gpu,
    OutOfMemory,
    Peak,
    ScriptError,
    StepPeak,
    judge,
)
from peakmem.forecast.timeline import timeline
from peakmem.trace.operators import running
from peakmem.trace.recorded import Recorded
from peakmem.trace.replay import Replay
from peakmem.trace.roles import ContextKind
from peakmem.trace.where import is_users_own

if TYPE_CHECKING:
    from peakmem.trace.model import Trace

OUT_OF_MEMORY = ("torch.OutOfMemoryError", "torch.cuda.OutOfMemoryError")


def build_forecast(
    recorded: Recorded,
    *,
    card: Card,
    command: tuple[str, ...],
    alloc_conf: str,
    seconds: float,
    exit_code: int,
    without_limit: Recorded | None = None,
    floor: int | None = None,
    trace: Trace | None = None,
) -> Forecast:
    """Make the forecast of one process.

    Args:
        recorded: the run on the card as it is.
        card: the card.
        command: the command as it was started.
        alloc_conf: the allocator settings in force.
        seconds: wall time of everything.
        exit_code: of the command; negative: the signal that ended it.
        floor: the smallest total memory with which the run works, where it was looked for.
        without_limit: the same run on a card without a limit, where the first one ran out of memory.
        trace: the trace of `without_limit` if there is one, else of `recorded`; None without a history.
    """
    recording = recorded.recording
    device = recording["devices"][0]
    caught = recording["oom"] is not None and not failed_for_memory(recording)
    whole = without_limit or recorded
    held = at_peak(trace, accumulates=_accumulates(whole.recording)) if trace is not None else None
    replay = Replay(trace, 0) if trace is not None else None
    peak = _peak(whole, card, held)
    oom = _out_of_memory(recorded, card, peak, caught=caught, known=without_limit is not None)
    return Forecast(
        peakmem=peakmem.__version__,
        torch=recording["torch"],
        command=command,
        verdict=judge(used=peak.used, total=card.total, failed=oom is not None and not oom.caught),
        gpu=Gpu(name=card.name, total=card.total, compute_capability=card.compute_capability, usable=card.usable),
        alloc_conf=alloc_conf,
        peak=peak,
        steps=_steps(whole, replay),
        steady=whole.recording["steady"],
        stopped=whole.recording["reason"],
        floor=floor,
        segments=whole.recording["devices"][0]["segments"],
        retries=device["num_alloc_retries"],
        ooms=device["num_ooms"],
        oom=oom,
        error=script_error(recording, exit_code),
        convolution_range=None,
        roles_at_peak=held.roles if held else {},
        holders_at_peak=held.holders if held else (),
        unneeded_at_peak=held.unneeded if held else (),
        assumptions=_assumptions(whole.recording),
        notes=(*_notes(whole.recording), *(trace.meta.notes if trace is not None else ())),
        changed=tuple(Changed(**row) for row in whole.recording.get("changes", ())),
        seconds=round(seconds, 2),
        timeline=timeline(replay) if replay is not None else None,
        framework=recording.get("framework", ""),
    )


def script_error(recording: dict[str, Any], exit_code: int) -> ScriptError | None:
    """How the script failed, unless it was for want of memory, or ended by us."""
    error = recording["error"]
    if failed_for_memory(recording) or recording["reason"] == "enough":
        return None
    if error is not None:
        kind = error["type"].removeprefix("builtins.")
        return ScriptError(type=kind, message=error["message"], line=user_line(error["frames"]))
    if exit_code:
        how = f"exit code {exit_code}" if exit_code > 0 else f"signal {-exit_code}"
        return ScriptError(type="exit", message=f"the command ended with {how}", line=None)
    return None


def user_line(frames: list[tuple[str, int, str]]) -> str | None:
    """The innermost line of the user's own code among frames (outermost first): "file:line"."""
    for filename, line, _ in reversed(frames):
        if is_users_own(filename) and "/peakmem/session/" not in filename:
            return f"{filename}:{line}"
    return None


def failed_for_memory(recording: dict[str, Any]) -> bool:
    """Whether the script ended because the card was full."""
    error = recording["error"]
    if recording["oom"] is None or error is None:
        return False
    # Frameworks wrap the error in one of their own; the text survives.
    if error.get("memory"):
        return True
    return error["type"] in OUT_OF_MEMORY or "out of memory" in error["message"].lower()


def _peak(recorded: Recorded, card: Card, held: AtPeak | None) -> Peak:
    values = recorded.recording["devices"][0]["peak"]
    peak = Peak(
        requested=values["requested"],
        allocated=values["allocated"],
        active=values["active"],
        reserved=values["reserved"],
        context=card.context,
        context_error=card.context_error,
        used=values["reserved"] + card.context,
    )
    if held is None:
        return peak
    return replace(peak, step=held.step, phase=held.phase, op=held.op, module=held.module, line=held.line)


def _steps(recorded: Recorded, replay: Replay | None) -> tuple[StepPeak, ...]:
    steps = recorded.recording["steps"]
    requested: list[int | None] = [None] * len(steps)
    active: list[int | None] = [None] * len(steps)
    if replay is not None:
        line, spans = replay.timeline, replay.trace.spans
        for row in np.flatnonzero(spans.kind == ContextKind.STEP).tolist():
            moments = slice(int(spans.first[row]), int(spans.end[row]) + 1)
            number = int(spans.number[row])
            requested[number] = int(line.requested[moments].max())
            active[number] = int(line.active[moments].max())
    return tuple(
        StepPeak(
            index=index,
            requested=requested[index],
            allocated=step["allocated"],
            active=active[index],
            reserved=step["reserved"],
            backwards=step["backwards"],
            optimizers=step["optimizers"],
        )
        for index, step in enumerate(steps)
    )


def _accumulates(recording: dict[str, Any]) -> bool:
    """Whether a step has more backward passes than optimizers; the last one tells: compilers run some in the first."""
    return any(step["backwards"] > step["optimizers"] for step in recording["steps"][-1:])


def _out_of_memory(recorded: Recorded, card: Card, peak: Peak, *, caught: bool, known: bool) -> OutOfMemory | None:
    oom = recorded.recording["oom"]
    if oom is None:
        return None
    place = recorded.place_of(oom["event"], context=oom["context"])
    return OutOfMemory(
        requested=oom["requested"],
        missing=max(oom["requested"] - oom["free"], 0),
        step=oom["step"],
        phase=place.phase,
        op=place.op or running(oom["operators"]) or None,
        module=place.module,
        line=user_line(oom["stack"]),
        needed=peak.used if known else None,
        caught=caught,
    )


LIBRARY_KINDS = {"estimate": "an estimate", "substitute": "a stated rule", "unsupported": "not supported, nothing done"}
"""Kinds of the virtual GPU's report (vgpu/native/notes.h) that stand for something a GPU would know."""


def _assumptions(recording: dict[str, Any]) -> tuple[Assumption, ...]:
    rows = [
        Assumption(what=row["what"], count=row["count"], assumed=row["assumed"], where=row.get("where"))
        for row in recording["assumptions"]
    ]
    library = recording["library"]
    for kind, assumed in LIBRARY_KINDS.items():
        rows += [Assumption(what=what, count=n, assumed=assumed) for what, n in library.get(kind, {}).items()]
    # Copies reach the library too; those that were answered beside it, or are listed above, are not told twice.
    unknown = library.get("reads", {}).get("unknown", 0) - recording.get("reads_told", 0)
    if unknown > 0:
        rows.append(Assumption(what="other copies of unknown values from the device", count=unknown, assumed="zeros"))
    return tuple(rows)


def used_cudnn(recording: dict[str, Any]) -> bool:
    """Whether the run used cuDNN: its kernels then take their place in the context."""
    library = recording["library"]
    known = [what for kind in ("plans", *LIBRARY_KINDS) for what in library.get(kind, {})]
    return any("cuDNN" in what or what.startswith("convolution") for what in known)


def has_convolutions(recording: dict[str, Any]) -> bool:
    """Whether cuDNN was asked for convolution plans."""
    return any(what.startswith("convolution") for what in recording["library"].get("plans", {}))


def _notes(recording: dict[str, Any]) -> list[str]:
    steps = recording["steps"]
    notes = [
        f"changed in the script: {row['change']}"
        if row["count"]
        else f"not changed in the script: {row['change']}: {row['why_not']}"
        for row in recording.get("changes", ())
    ]
    if recording["reason"] == "enough":
        notes.append(
            f"the script was ended after {len(steps)} steps: what it does later (validation, saving) was not seen; "
            "--steps all lets it run to its own end"
        )
        if not recording["steady"]:
            notes.append("the peak was still changing in the last step: --steps N watches more steps")
    if recording["snapshot"] is None and recording.get("owners_failure"):
        notes.append(f"what holds the memory is not known: {recording['owners_failure']}")
    if _accumulates(recording):
        notes.append(f"gradients are accumulated over {steps[-1]['backwards']} backward passes a step")
    return notes
