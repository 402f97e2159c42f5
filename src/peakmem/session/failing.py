"""Why a session left nothing to report on."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Any

import numpy as np

from peakmem.errors import ExitCode, PeakmemError
from peakmem.session.launching import Run
from peakmem.session.printed import last_words
from peakmem.session.running import Ended
from peakmem.trace.recorded import EVENT

NO_GPU_USED = "the script ended without using the GPU"


def tell_untold_error(recording: dict[str, Any], exit_code: int) -> None:
    """Put it down as the script's error that it ran out of memory, where it kept the error to itself.

    Scripts catch the error, say something and end with an exit code of their own, and processes that `multiprocessing`
    started print theirs. It was the end of the script if nothing was taken from the card any more.
    """
    oom = recording["oom"]
    if oom is None or recording["error"] is not None or not exit_code or recording["reason"] != "end":
        return
    events = np.frombuffer(recording["events"], dtype=EVENT)
    if (events["size"][int(oom["event"]) :] > 0).any():
        return
    recording["error"] = {
        "type": "torch.OutOfMemoryError",
        "message": f"CUDA out of memory; the script caught it and ended with exit code {exit_code}",
        "frames": oom["stack"],
    }


def trained_elsewhere(recording: dict[str, Any]) -> bool:
    """Whether a script trained for some steps, but took no memory of the GPU that it found."""
    took = any(int(device["peak"]["reserved"]) for device in recording["devices"])
    return bool(recording["steps"]) and not took and recording["oom"] is None and recording["error"] is None


def no_gpu_used() -> PeakmemError:
    """The error that tells of a script that trains on the CPU."""
    return PeakmemError(NO_GPU_USED, hint="it may train on the CPU: look for a device setting such as --device cuda")


class FailedEarlyError(PeakmemError):
    """The script failed before there was anything to report on.

    Attributes:
        told: the error alone, as `ValueError: no such model`.
    """

    def __init__(self, told: str, *, before: str, hint: str) -> None:
        super().__init__(f"the script failed {before}: {told}", hint=hint, exit_code=ExitCode.SCRIPT_FAILED)
        self.told = told


@dataclass(frozen=True, kw_only=True, slots=True)
class _Awaited:
    """What a run was to come to.

    Attributes:
        event: in words, of a script: "used the GPU".
        exits: when a script ended with an exit code and left no recording.
        saving: what may help where the kernel ended the script for want of memory.
    """

    event: str
    exits: str
    saving: str = ""


_GPU = _Awaited(event="used the GPU", exits="before it used the GPU", saving=": --build-on-device saves some")
_CPU = _Awaited(event="trained", exits="before it could be measured")


def nothing_seen(ended: Ended, run: Run) -> PeakmemError:
    """Why no process left a recording."""
    failed = _failed(ended, run.command, _GPU, timeout=run.timeout)
    if failed is not None:
        return failed
    events = _events(ended)
    if "no_cuda" in events:
        return PeakmemError(
            f"the script used torch {events['no_cuda']['torch']}, a CPU-only build", hint="pip install torch"
        )
    return no_gpu_used() if "torch" in events else _without_torch(run.command)


def nothing_seen_on_cpu(ended: Ended, command: tuple[str, ...], *, timeout: float | None) -> PeakmemError:
    """Why no process that trained on the CPU left a recording."""
    return _failed(ended, command, _CPU, timeout=timeout) or _without_torch(command)


def _events(ended: Ended) -> dict[str, dict[str, Any]]:
    """The last of each kind of progress line."""
    return {line["event"]: line for line in ended.outcome.progress}


def _failed(ended: Ended, command: tuple[str, ...], awaited: _Awaited, *, timeout: float | None) -> PeakmemError | None:
    """What went wrong, if it is known."""
    events, words, shown = _events(ended), " ".join(command), "\n".join(last_words(ended.last_lines))
    if ended.interrupted:
        return PeakmemError(f"interrupted before the script {awaited.event}", exit_code=ExitCode.INTERRUPTED)
    if "unwritten" in events:
        reason = events["unwritten"]["reason"]
        return PeakmemError(
            f"what the run showed could not be written: {reason}", hint="make room in the temporary folder (TMPDIR)"
        )
    if "broken" in events:
        return PeakmemError(
            f"peakmem could not put together what the run showed: {events['broken']['reason']}",
            hint="this is a fault of peakmem's: please report it with the script",
        )
    if "no_library" in events:
        return PeakmemError(
            "the library that watches malloc is not in the process that trains",
            hint="something on the way took LD_PRELOAD out of the environment (sudo, env -i, a container)",
        )
    if "unknown_operators" in events:
        return PeakmemError(
            f"how torch {events['unknown_operators']['torch']} calls its operators is not known",
            hint="tested with torch 2.6 to 2.14; peakmem run --measure -- COMMAND measures a real run",
        )
    if "error" in events:
        kind, message = events["error"]["type"].removeprefix("builtins."), events["error"]["message"]
        return FailedEarlyError(f"{kind}: {message}", before=f"before it {awaited.event}", hint=shown)
    if ended.timed_out:
        return PeakmemError(
            f"{words} was stopped after {timeout:g} s and had not {awaited.event}",
            hint="give it more time: --timeout SECONDS",
            exit_code=ExitCode.SCRIPT_FAILED,
        )
    if ended.exit_code < 0:
        kernel = f"signal 9 is often the kernel's, for want of host memory{awaited.saving}"
        return PeakmemError(
            f"{words} was ended by signal {-ended.exit_code} before it could be measured",
            hint=shown or (kernel if ended.exit_code == -signal.SIGKILL else ""),
            exit_code=ExitCode.SCRIPT_FAILED,
        )
    if ended.exit_code > 0:
        return PeakmemError(
            f"{words} ended with exit code {ended.exit_code} {awaited.exits}",
            hint=shown,
            exit_code=ExitCode.SCRIPT_FAILED,
        )
    return None


def _without_torch(command: tuple[str, ...]) -> PeakmemError:
    hint = "give the command that trains"
    if set(command[1:]) & {"-I", "-E", "-S", "-i"}:
        hint = "python -I, -E and -S and env -i keep peakmem out of the process: leave these options out"
    return PeakmemError(f"{' '.join(command)} ended without importing PyTorch or TensorFlow", hint=hint)
