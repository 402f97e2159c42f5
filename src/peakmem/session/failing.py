"""Why a session left nothing to report on."""

from __future__ import annotations

from typing import Any

import numpy as np

from peakmem.errors import ExitCode, PeakmemError
from peakmem.session.launching import Run
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


def nothing_seen(ended: Ended, run: Run) -> PeakmemError:
    """Why no process left a recording."""
    events = {line["event"]: line for line in ended.outcome.progress}
    shown = "\n".join(ended.last_lines[-15:])
    words = " ".join(run.command)
    if ended.interrupted:
        return PeakmemError("interrupted before the script used the GPU", exit_code=ExitCode.INTERRUPTED)
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
    if "error" in events:
        error = events["error"]
        return PeakmemError(
            f"the script failed before it used the GPU: {error['type']}: {error['message']}",
            hint=shown,
            exit_code=ExitCode.SCRIPT_FAILED,
        )
    if ended.timed_out:
        return PeakmemError(
            f"{words} was stopped after {run.timeout:g} s and had not used the GPU", exit_code=ExitCode.SCRIPT_FAILED
        )
    if ended.exit_code < 0:
        return PeakmemError(
            f"{words} was ended by signal {-ended.exit_code} before it could be measured",
            hint=shown or "signal 9 is often the kernel's, for want of host memory: --build-on-device saves some",
            exit_code=ExitCode.SCRIPT_FAILED,
        )
    if ended.exit_code > 0:
        return PeakmemError(
            f"{words} ended with exit code {ended.exit_code} before it used the GPU",
            hint=shown,
            exit_code=ExitCode.SCRIPT_FAILED,
        )
    if "no_cuda" in events:
        return PeakmemError(
            f"the script used torch {events['no_cuda']['torch']}, a CPU-only build", hint="pip install torch"
        )
    if "torch" in events:
        return no_gpu_used()
    hint = "give the command that trains"
    if set(run.command[1:]) & {"-I", "-E", "-S", "-i"}:
        hint = "python -I, -E and -S and env -i keep peakmem out of the process: leave these options out"
    return PeakmemError(f"{words} ended without importing PyTorch or TensorFlow", hint=hint)


def nothing_seen_on_cpu(ended: Ended, command: tuple[str, ...], *, timeout: float | None) -> PeakmemError:
    """Why no process that trained on the CPU left a recording."""
    events = {line["event"]: line for line in ended.outcome.progress}
    shown = "\n".join(ended.last_lines[-15:])
    words = " ".join(command)
    if ended.interrupted:
        return PeakmemError("interrupted before the script had trained", exit_code=ExitCode.INTERRUPTED)
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
    if ended.timed_out:
        return PeakmemError(
            f"{words} was stopped after {timeout:g} s and had not trained", exit_code=ExitCode.SCRIPT_FAILED
        )
    if ended.exit_code:
        how = f"signal {-ended.exit_code}" if ended.exit_code < 0 else f"exit code {ended.exit_code}"
        return PeakmemError(
            f"{words} ended with {how} before it could be measured", hint=shown, exit_code=ExitCode.SCRIPT_FAILED
        )
    hint = "give the command that trains"
    if set(command[1:]) & {"-I", "-E", "-S", "-i"}:
        hint = "python -I, -E and -S and env -i keep peakmem out of the process: leave these options out"
    return PeakmemError(f"{words} ended without importing PyTorch or TensorFlow", hint=hint)
