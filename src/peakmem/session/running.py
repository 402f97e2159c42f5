"""Starts a command on the virtual GPU, follows it, and sees that it ends."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from peakmem.errors import PeakmemError
from peakmem.host.hollow import Hollow
from peakmem.host.pinned import PinnedPages
from peakmem.host.tape import Tape, Taped
from peakmem.session.reading import Outcome, read_outcome
from peakmem.session.spared import scans_folder

_HERE = Path(__file__).parent
INTERRUPT_GRACE_SECONDS = 10
KEPT_LINES = 200
MOST_OF_A_LINE = 2000
TAPE_SHARE = 0.005
"""Of wall time that each clock of the measuring tape may take: runs on the virtual GPU are short."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """What the watched processes are asked; see `inside/settings.py`, which reads it."""

    steps: str = "auto"
    most_steps: int = 20
    record: bool = True
    stacks: bool = True
    build_on_device: bool = False
    late_libraries: bool = False
    late_sizes: Mapping[str, int] | None = None
    exit_sizes: Mapping[str, int] | None = None
    hollow: Hollow | None = None
    no_initial_values: bool = False
    no_weights: bool = False
    assume: str = ""
    changes: tuple[str, ...] = ()
    count_layers: bool = False
    device: str = "gpu"
    scans: str | None = field(default_factory=scans_folder)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """How a session ended.

    Attributes:
        outcome: what the watched processes wrote.
        exit_code: the command's own; negative: the signal that ended it.
        interrupted: the user stopped it (Ctrl-C).
        timed_out: it was stopped after the time allowed.
        last_lines: the end of what the command printed.
        lines: how many lines it printed.
        seconds: wall time.
        taped: the host memory of its processes.
    """

    outcome: Outcome
    exit_code: int
    interrupted: bool
    timed_out: bool
    last_lines: tuple[str, ...]
    lines: int
    seconds: float
    taped: Taped | None = None


def run_session(
    command: tuple[str, ...],
    *,
    question: Question,
    environment: Mapping[str, str],
    on_progress: Callable[[dict[str, Any]], None] = lambda line: None,
    on_line: Callable[[str], None] = lambda line: None,
    timeout: float | None = None,
    stop: threading.Event | None = None,
) -> Ended:
    """Run a command on the virtual GPU until it has ended.

    Args:
        command: the program and its arguments.
        question: what the watched processes are asked.
        environment: all its variables (`vgpu.launch.environment`); those of the session are added.
        on_progress: called with each progress line (a dict with "event", "pid" and more).
        on_line: called with each line that the command prints (standard output and error), without its line end.
        timeout: seconds after which the command is stopped; None: never.
        stop: when set, the command is ended as Ctrl-C would (which reaches the main thread alone).

    Raises:
        PeakmemError: the command can't be started, or what it wrote can't be read.
    """
    with _folder() as folder:
        try:
            (folder / "session.json").write_text(json.dumps(asdict(question)), encoding="utf-8")
        except OSError as error:
            raise _no_room(folder.parent, error) from error
        variables = _variables(folder, environment)
        started = time.monotonic()
        try:
            process = subprocess.Popen(
                command,
                env=variables,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise PeakmemError(f"{command[0]!r} can't be started: {error.strerror or error}") from error
        assert process.stdout is not None
        output = _Output(process.stdout, on_line)
        tape = Tape(process.pid, share=TAPE_SHARE, extra=PinnedPages(folder)).start()
        following = _Following(folder, on_progress)
        interrupted = timed_out = False
        try:
            while process.poll() is None:
                following.look()
                if timeout is not None and time.monotonic() - started > timeout:
                    timed_out = True
                    _end(process)
                    break
                if stop is not None and stop.is_set():
                    interrupted = True
                    _end(process)
                    break
                time.sleep(0.02)
        except KeyboardInterrupt:
            interrupted = True
            _end(process)
        taped = tape.stop()
        _sweep(process, folder)
        output.join()
        following.look()
        return Ended(
            outcome=read_outcome(folder),
            exit_code=process.returncode,
            interrupted=interrupted,
            timed_out=timed_out,
            last_lines=tuple(output.last),
            lines=output.count,
            seconds=time.monotonic() - started,
            taped=taped,
        )


@contextmanager
def _folder() -> Iterator[Path]:
    try:
        path = Path(tempfile.mkdtemp(prefix="peakmem-"))
    except OSError as error:
        raise _no_room(Path(error.filename or tempfile.gettempdir()), error) from error
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _no_room(folder: Path, error: OSError) -> PeakmemError:
    return PeakmemError(
        f"no temporary file can be made in {folder}: {error.strerror or error}",
        hint="make room there, or set TMPDIR to another folder",
    )


def _variables(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    variables = dict(environment)
    variables["PEAKMEM_SESSION"] = str(folder)
    variables["PYTHONPATH"] = _in_front(str(_HERE / "bootstrap"), variables.get("PYTHONPATH"))
    variables["PATH"] = _in_front(str(_HERE / "programs"), variables.get("PATH"))
    variables.setdefault("PYTHONUNBUFFERED", "1")
    return variables


def _in_front(entry: str, rest: str | None) -> str:
    return entry + os.pathsep + rest if rest else entry


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask the command and all below it to end as Ctrl-C does, then insist."""
    for sign, patience in ((signal.SIGINT, INTERRUPT_GRACE_SECONDS), (signal.SIGTERM, 3), (signal.SIGKILL, 3)):
        try:
            os.killpg(process.pid, sign)
        except ProcessLookupError:
            break
        try:
            process.wait(patience)
            break
        except subprocess.TimeoutExpired:
            continue
        except KeyboardInterrupt:
            continue


def _sweep(process: subprocess.Popen[bytes], folder: Path) -> None:
    """End what the command left running, in its process group or not: it would go on without anybody to see it."""
    process.wait()
    try:
        os.killpg(process.pid, signal.SIGTERM)
        time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    for pid in _belonging_to(folder):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _belonging_to(folder: Path) -> list[int]:
    """The processes that were started below a session, by its folder in their environment."""
    mark = b"PEAKMEM_SESSION=" + os.fsencode(folder) + b"\0"
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in entry.read_bytes():
                found.append(int(entry.parent.name))
        except OSError:  # gone, or somebody else's
            continue
    return found


class _Output:
    """Reads what the command prints, so that it never waits for us."""

    def __init__(self, stream: IO[bytes], on_line: Callable[[str], None]) -> None:
        self.last: deque[str] = deque(maxlen=KEPT_LINES)
        self.count = 0
        self._stream = stream
        self._on_line = on_line
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        for raw in self._stream:
            line = raw.decode("utf-8", "replace").rstrip("\n")
            self.count += 1
            self.last.append(line[-MOST_OF_A_LINE:])
            self._on_line(line)
        self._stream.close()

    def join(self) -> None:
        """Wait for the end of the output; a process that left the group and holds the pipe is not waited for."""
        self._thread.join(5)


class _Following:
    """Hands out the progress lines as they are written."""

    def __init__(self, folder: Path, on_progress: Callable[[dict[str, Any]], None]) -> None:
        self._path = folder / "progress.jsonl"
        self._at = 0
        self._on_progress = on_progress

    def look(self) -> None:
        """Read what was written since the last look."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                text = file.read()
        except OSError:
            return
        whole = text[: text.rfind(b"\n") + 1]
        self._at += len(whole)
        for line in whole.splitlines():
            with suppress(ValueError):  # of a full disk
                self._on_progress(json.loads(line))
