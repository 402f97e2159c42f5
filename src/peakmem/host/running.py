"""Really runs a command, with the measuring tape beside it: nothing is simulated, nothing of it is changed."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from types import FrameType
from typing import IO, Any

import peakmem
from peakmem.errors import PeakmemError
from peakmem.host.endings import ending_text, judge_ending, kills, new_kills
from peakmem.host.gpus import open_gpus
from peakmem.host.limits import Limit, own_peak
from peakmem.host.measurement import GroupUse, HostPeak, LimitUse, Measurement, TorchPeak
from peakmem.host.tape import Tape, Taped

_BOOTSTRAP = Path(__file__).parent.parent / "session" / "bootstrap"
PATIENCE = 10.0
"""Seconds that a command has to end after Ctrl-C before it is asked more firmly."""
TORCH_FORMAT = "peakmem/torch-counters/1"


def measure(
    command: tuple[str, ...],
    *,
    output: IO[bytes] | int | None = None,
    timeout: float | None = None,
) -> Measurement:
    """Run a command to its end, and say what it took.

    Args:
        command: the program and its arguments.
        output: where standard output and error of the command go; None: where ours go.
        timeout: seconds after which it is stopped as Ctrl-C would.

    Raises:
        PeakmemError: it can't be started.
    """
    with _folder() as folder:
        variables = _variables(folder)
        gpus = open_gpus()
        started, clock = datetime.now(timezone.utc), time.monotonic()
        own = own_peak()
        try:
            process = subprocess.Popen(command, env=variables, stdout=output, stderr=output)
        except OSError as error:
            raise PeakmemError(f"{command[0]!r} can't be started: {error.strerror or error}") from error
        tape = Tape(process.pid, gpu=gpus)
        before = kills(tape.groups)
        tape.start()
        interrupted = _wait(process, timeout)
        # The tape ends first: the process is still there for it, though it has ended.
        taped = tape.stop()
        exit_code, used = _reap(process)
        seconds = time.monotonic() - clock
        killed = new_kills(before, kills(taped.groups))
        ending = judge_ending(exit_code, interrupted=interrupted, killed=killed)
        # What the kernel tells of a child begins with what we had when it was made (exec does not forget it).
        exact = used.ru_maxrss * 1024 if used.ru_maxrss * 1024 > own else 0
        largest = max([exact, *(one.rss for one in taped.processes)])
        peak = HostPeak(
            process=largest,
            rss=max(taped.rss, largest),
            pss=taped.highest.pss if taped.highest else 0,
            uss=taped.uss,
            shm=taped.shm,
            swap=taped.swap,
        )
        words = ending_text(exit_code, ending, killed=killed, largest=largest)
        return Measurement(
            peakmem=peakmem.__version__,
            command=command,
            started=started.isoformat(timespec="seconds"),
            seconds=round(seconds, 3),
            exit_code=exit_code,
            ending=ending,
            peak=peak,
            processes=tuple(sorted(taped.processes, key=lambda one: (-one.rss, one.first))),
            points=taped.points,
            group=_group(taped, killed),
            limits=limit_uses(taped.limits, peak, group=max(taped.group_highest, 0) if taped.groups else None),
            gpus=gpus.highest() if gpus is not None else (),
            torch=_torch_peaks(folder),
            cost=taped.cost,
            notes=tuple(note for note in (words, "" if gpus is not None else _no_gpu()) if note),
        )


def limit_uses(limits: tuple[Limit, ...], peak: HostPeak, *, group: int | None) -> tuple[LimitUse, ...]:
    """Each limit with the highest of what counts against it, the one that is used most first.

    Args:
        limits: the limits.
        peak: what was measured.
        group: the highest charge of the control group, bytes.
    """
    uses = []
    for limit in limits:
        if limit.kind == "cgroup":
            used = group
        elif limit.kind == "physical":
            used = peak.pss or peak.rss
        elif limit.kind == "shm":
            used = peak.shm
        else:  # address space is counted for each process, and is more than what is resident
            used = None
        uses.append(LimitUse(limit=limit, used=used))
    return tuple(sorted(uses, key=lambda use: -use.share))


def _wait(process: subprocess.Popen[bytes], timeout: float | None) -> bool:
    """Wait until the command has ended, without asking how; True if it was interrupted."""
    asked = 0
    deadline = None if timeout is None else time.monotonic() + timeout
    with _told_of(signal.SIGTERM):
        while True:
            try:
                while not _has_ended(process):
                    if deadline is not None and time.monotonic() > deadline:
                        deadline = time.monotonic() + PATIENCE
                        _ask(process, asked)
                        asked += 1
                    time.sleep(0.01)
                return asked > 0
            except KeyboardInterrupt:
                # A terminal has sent it to the whole process group; then the command has it already.
                if asked or not _in_foreground():
                    _ask(process, asked)
                asked += 1
                deadline = time.monotonic() + PATIENCE
            except _Terminated:
                _ask(process, max(asked, 1))
                asked = max(asked, 1) + 1
                deadline = time.monotonic() + PATIENCE


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def _ask(process: subprocess.Popen[bytes], asked: int) -> None:
    sign = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)[min(asked, 2)]
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, sign)


def _in_foreground() -> bool:
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError):
        return False


class _Terminated(BaseException):
    """We were asked to end (SIGTERM, as a scheduler does); what was measured is told first."""


@contextlib.contextmanager
def _told_of(sign: int) -> Iterator[None]:
    def raise_it(number: int, frame: FrameType | None) -> None:
        raise _Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(sign, raise_it)
    try:
        yield
    finally:
        signal.signal(sign, before)


def _reap(process: subprocess.Popen[bytes]) -> tuple[int, Any]:
    """The exit code (negative: a signal), and what the kernel counted for the command and those it waited for."""
    try:
        _, status, used = os.wait4(process.pid, 0)
    except ChildProcessError:
        return process.wait(), resource.struct_rusage((0,) * 16)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, used


@contextlib.contextmanager
def _folder() -> Iterator[Path | None]:
    """A folder for PyTorch's counters; without one they are left out."""
    try:
        path = Path(tempfile.mkdtemp(prefix="peakmem-"))
        (path / "session.json").write_text(json.dumps({"measure": True}), encoding="utf-8")
    except OSError:
        yield None
        return
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _variables(folder: Path | None) -> dict[str, str]:
    variables = dict(os.environ)
    if folder is not None:
        variables["PEAKMEM_SESSION"] = str(folder)
        rest = variables.get("PYTHONPATH")
        variables["PYTHONPATH"] = str(_BOOTSTRAP) + (os.pathsep + rest if rest else "")
    return variables


def _torch_peaks(folder: Path | None) -> tuple[TorchPeak, ...]:
    if folder is None:
        return ()
    found: list[TorchPeak] = []
    for path in sorted(folder.glob("torch-*.json")):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if content["format"] == TORCH_FORMAT:
                found += [TorchPeak(pid=int(content["pid"]), **row) for row in content["devices"]]
        except (OSError, ValueError, KeyError, TypeError):  # of a process that was ended while it wrote
            continue
    return tuple(found)


def _no_gpu() -> str:
    if not Path("/dev/nvidiactl").exists():
        return ""
    return "this machine has a GPU, but its memory was not read: pip install nvidia-ml-py"


def _group(taped: Taped, killed: int | None) -> GroupUse | None:
    if not taped.groups:
        return None
    return GroupUse(
        path=str(taped.groups[0].path),
        highest=taped.group_highest,
        before=taped.group_before,
        peak=taped.group_peak,
        kills=killed,
    )
