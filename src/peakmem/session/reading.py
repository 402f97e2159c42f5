"""Recordings of watched processes, read as data: nothing in them is ever executed."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peakmem.errors import PeakmemError

FORMAT = "peakmem/recording/1"


class _PlainUnpickler(pickle.Unpickler):
    """Accepts dicts, lists, tuples, strings and numbers; anything that names a class is refused."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"a recording has no {module}.{name}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What a session left behind.

    Attributes:
        recordings: one for each process that used the GPU, in the form of `inside/recording.py`.
        progress: the progress lines of all processes, in order.
    """

    recordings: tuple[dict[str, Any], ...]
    progress: tuple[dict[str, Any], ...]

    def main(self) -> dict[str, Any] | None:
        """The recording of the process that trained: the most steps, then the most reserved memory."""

        def weight(recording: dict[str, Any]) -> tuple[int, int]:
            reserved = max((d["peak"].get("reserved", 0) for d in recording["devices"]), default=0)
            return len(recording["steps"]), reserved

        return max(self.recordings, key=weight, default=None)


def read_outcome(folder: Path) -> Outcome:
    """Read what the processes of a session wrote.

    Raises:
        PeakmemError: a recording is damaged or not of this version.
    """
    recordings = [_read(path) for path in sorted(folder.glob("process-*.pickle"))]
    return Outcome(recordings=tuple(recordings), progress=tuple(read_progress(folder)))


def read_progress(folder: Path) -> list[dict[str, Any]]:
    """The progress lines so far; a line being written just now is left out."""
    try:
        text = (folder / "progress.jsonl").read_text(encoding="utf-8")
    except OSError:
        return []
    lines = []
    for line in text.splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:
            continue
    return lines


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            recording = _PlainUnpickler(file).load()
    except (pickle.UnpicklingError, EOFError, OSError) as error:
        raise PeakmemError(f"the recording {path.name} can't be read: {error}") from error
    if not isinstance(recording, dict) or recording.get("format") != FORMAT:
        raise PeakmemError(f"{path.name} is no recording of this version of peakmem")
    recording["left"] = _left(path.with_name(path.stem.replace("process-", "end-") + ".json"))
    return recording


def _left(path: Path) -> dict[str, int] | None:
    """What was left at the very end; only the CPU's library tells, and not if the process skipped exit handlers."""
    try:
        left: dict[str, int] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return left
