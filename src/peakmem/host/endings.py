"""How a measured command ended, and whether the kernel killed something of it for want of memory."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from peakmem.host.cgroups import Group
from peakmem.host.measurement import Ending
from peakmem.units import format_size


@dataclass(frozen=True, kw_only=True, slots=True)
class Kills:
    """Counters of the kernel's OOM killer.

    Attributes:
        group: kills in the innermost control group; None if that is not counted.
        machine: kills on the whole machine (`oom_kill` of /proc/vmstat, since Linux 4.13); None if not counted.
    """

    group: int | None
    machine: int | None


def kills(groups: Sequence[Group], *, proc: Path = Path("/proc")) -> Kills:
    """The counters now."""
    machine = None
    try:
        for line in (proc / "vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                machine = int(line.split()[1])
    except OSError:
        pass
    return Kills(group=groups[0].kills() if groups else None, machine=machine)


def new_kills(before: Kills, after: Kills) -> int | None:
    """Kills in between that may have hit the command: in its group, or where that is not counted on the machine."""
    for old, new in ((before.group, after.group), (before.machine, after.machine)):
        if old is not None and new is not None:
            return new - old
    return None


def judge_ending(exit_code: int, *, interrupted: bool, killed: int | None) -> Ending:
    """How it ended.

    Args:
        exit_code: of the command; negative or above 128: the signal that ended it.
        interrupted: the user stopped it.
        killed: kills of the OOM killer meanwhile; None if they are not counted.
    """
    if killed:
        return "out_of_memory"
    if interrupted:
        return "interrupted"
    sign = signal_of(exit_code)
    if sign == signal.SIGKILL:
        return "killed"
    return "failed" if exit_code else "ended"


def signal_of(exit_code: int) -> int | None:
    """The signal that ended a command, also where a shell tells it as 128 + number."""
    number = -exit_code if exit_code < 0 else exit_code - 128
    return number if number in {int(sign) for sign in signal.Signals} else None


def ending_text(exit_code: int, ending: Ending, *, killed: int | None, largest: int) -> str:
    """The ending in words.

    Args:
        exit_code: of the command.
        ending: how it ended.
        killed: as for `judge_ending`.
        largest: the highest resident memory of its largest process, bytes.
    """
    if ending == "out_of_memory":
        what = "a process" if killed == 1 else f"{killed} processes"
        return f"the kernel killed {what} for want of host memory; the largest had {format_size(largest)}"
    if ending == "killed":
        return (
            "killed by signal 9, and no kill for want of memory was counted here: a scheduler's limit, "
            "a kill in an outer container, or kill -9"
        )
    if ending == "interrupted":
        return "interrupted: this is what was seen until then"
    if ending == "failed":
        sign = signal_of(exit_code)
        if sign is not None:
            return f"the command was ended by {signal.Signals(sign).name}"
        return f"the command failed with exit code {exit_code}"
    return ""
