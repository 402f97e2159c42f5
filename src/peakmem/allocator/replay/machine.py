"""The process that replays: one interpreter with torch loaded, which forks for each job."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np

from peakmem.allocator.replay.requests import Requests
from peakmem.errors import PeakmemError
from peakmem.session.launching import ALLOC_CONF, OTHER_NAMES
from peakmem.trace.recorded import EVENT
from peakmem.trace.tables import Array
from peakmem.units import MIB
from peakmem.vgpu.build import ensure_library
from peakmem.vgpu.launch import DeviceFacts, Options, environment
from peakmem.vgpu.probe import TorchFacts

GRID = 2 * MIB
"""Steps of a floor, bytes: the driver hands memory out in pages of 2 MiB."""

_CHILD = Path(__file__).with_name("child.py")


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """How the memory is when a replay starts.

    Attributes:
        exact: the segments and blocks before the first event are put exactly where they were (only sensible under the
            settings they came about under); else the blocks are simply requested one after the other.
        expandable: whether those segments are expandable.
    """

    exact: bool = False
    expandable: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What a job gave: the fields of `child.py`, and the event log."""

    fields: dict[str, Any]
    log: Array | None


class Engine:
    """An interpreter with torch loaded on the virtual GPU, which forks for each job. Use as a context manager.

    Args:
        facts: the PyTorch that replays.
        card: the card it is told of.
        backend: the allocator's backend, where it is not the native one.

    Raises:
        PeakmemError: the virtual GPU can't be built, or torch can't be loaded.
    """

    def __init__(self, *, facts: TorchFacts, card: DeviceFacts, backend: str = "") -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="peakmem-replay-")
        self._waiting: dict[int, Future[dict[str, Any]]] = {}
        self._count = 0
        self._lock = threading.Lock()
        self._errors: IO[bytes] = (self.folder / "errors").open("w+b")
        variables = environment(
            library=ensure_library(facts), device=card, facts=facts, options=Options(context=0, capacity=1 << 62)
        )
        for name in (ALLOC_CONF, *OTHER_NAMES, "PYTORCH_NO_CUDA_MEMORY_CACHING", "PEAKMEM_SESSION"):
            variables.pop(name, None)
        if backend:  # looked at when torch is loaded, not when CUDA starts
            variables[ALLOC_CONF] = f"backend:{backend}"
        variables.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", PYTHONWARNINGS="ignore")
        self._process = subprocess.Popen(
            [os.fspath(facts.python), "-u", os.fspath(_CHILD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=variables,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def folder(self) -> Path:
        """A folder for what goes to and fro; it ends with the process."""
        return Path(self._folder.name)

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process and every job."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join(5)
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        self._errors.close()
        self._folder.cleanup()

    def submit(self, **fields: Any) -> Future[dict[str, Any]]:
        """Start a job (see `child.py`); its answer comes as a future."""
        future: Future[dict[str, Any]] = Future()
        with self._lock:
            self._count += 1
            job = {"id": self._count, **fields}
            self._waiting[self._count] = future
        assert self._process.stdin is not None
        try:
            with self._lock:
                self._process.stdin.write(json.dumps(job).encode() + b"\n")
                self._process.stdin.flush()
        except (BrokenPipeError, OSError):
            self._reader.join(5)
        return future

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            with self._lock:
                future = self._waiting.pop(answer["id"], None)
            if future is not None:
                future.set_result(answer)
        self._process.wait()
        gone = {"error": f"the process that replays ended with status {self._process.returncode}"}
        with self._lock:
            waiting, self._waiting = self._waiting, _Gone(gone)
        for future in waiting.values():
            future.set_result(gone)

    def last_lines(self) -> list[str]:
        """The end of what the process wrote to standard error."""
        self._errors.seek(0)
        text = self._errors.read().decode("utf-8", "replace")
        return [line for line in text.splitlines() if line.strip()][-5:]


class Machine:
    """Replays the requests of one device under any settings.

    Args:
        requests: what to replay.
        engine: the process that does it.
    """

    def __init__(self, requests: Requests, engine: Engine) -> None:
        self.requests = requests
        self._engine = engine
        self._program = engine.folder / f"requests-{id(self)}"
        layout = requests.layout
        with self._program.open("wb") as file:
            np.asarray([len(requests.slot), requests.prologue, len(layout)], dtype="i8").tofile(file)
            for column in (requests.slot, requests.size, requests.stream, *(layout[:, i] for i in range(3))):
                np.ascontiguousarray(column, dtype="i8").tofile(file)

    def _submit(self, task: str, alloc_conf: str, start: Start, **fields: Any) -> Future[dict[str, Any]]:
        job = {
            "task": task, "alloc_conf": alloc_conf, "program": str(self._program), "slots": self.requests.slots,
            "streams": self.requests.streams, "exact_start": start.exact, "expandable": start.expandable,
            "capacity": None, "log": None, "fraction": None, "grid": GRID, **fields,
        }  # fmt: skip
        return self._engine.submit(**job)

    def replay(self, alloc_conf: str, *, start: Start, capacity: int | None = None) -> Answer:
        """Replay once, with the log of events.

        Args:
            alloc_conf: the settings.
            start: how the memory is at the start.
            capacity: bytes that the allocator can get; None: no limit.
        """
        log = self._engine.folder / f"log-{id(self)}-{threading.get_ident()}"
        fields = self._submit("replay", alloc_conf, start, capacity=capacity, log=str(log)).result()
        self._check(fields, alloc_conf)
        events: Array = np.fromfile(log, dtype=EVENT)
        log.unlink()
        return Answer(fields=fields, log=events)

    def floor(self, alloc_conf: str, *, start: Start, fraction: float | None = None) -> dict[str, Any]:
        """Find the smallest capacity.

        Args:
            alloc_conf: the settings.
            start: how the memory is at the start.
            fraction: share of the capacity that the settings let the allocator hold, if they limit it.
        """
        fields = self._submit("floor", alloc_conf, start, fraction=fraction).result()
        self._check(fields, alloc_conf)
        return fields

    def _check(self, fields: dict[str, Any], alloc_conf: str) -> None:
        if "error" in fields:
            raise PeakmemError(
                f"the replay under {alloc_conf or 'the default settings'!r} failed: {fields['error']}",
                hint="\n".join(self._engine.last_lines()),
            )


class _Gone(dict[int, "Future[dict[str, Any]]"]):
    """Jobs that come after the process has gone are answered at once."""

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__()
        self._answer = answer

    def __setitem__(self, key: int, future: Future[dict[str, Any]]) -> None:
        future.set_result(self._answer)
