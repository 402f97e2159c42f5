"""What runs do without once they know what it takes on the host, and which a forecast counts all the same.

Libraries that are imported and not used, such as PyTorch's compiler; and the unloading of libraries at a process's end.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import platformdirs

_MOST = 2**36
"""Bytes that neither libraries left out nor those of any build come near: they take a few hundred MiB."""


def known_late_sizes() -> dict[str, int]:
    """Bytes that libraries hold which are not loaded, by what it hangs on (`session/inside/late.py`)."""
    return _known("late-sizes.json")


def known_exit_sizes() -> dict[str, int]:
    """Bytes of files that unloading makes resident, by what it hangs on (`host/native/control.h`)."""
    return _known("exit-sizes.json")


def remember_sizes(recording: Mapping[str, Any]) -> None:
    """Keep what a run has found out, if it did."""
    spared = (recording.get("host") or {}).get("spared") or {}  # of a run on the virtual GPU
    _remember("late-sizes.json", spared.get("late_with"), spared.get("late"))
    late = recording.get("late") or {}  # of one on the CPU
    _remember("late-sizes.json", late.get("with"), late.get("size"))
    _remember("exit-sizes.json", recording.get("exit_with"), (recording.get("left") or {}).get("touched"))


def scans_folder() -> str:
    """Where the watched processes keep what libraries find in their own files (`session/inside/scans.py`)."""
    return str(_path("scans"))


def _known(name: str) -> dict[str, int]:
    try:
        found = json.loads(_path(name).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {key: size for key, size in found.items() if _is_size(size)} if isinstance(found, dict) else {}


def _is_size(size: object) -> bool:
    """Whether it can be: what a damaged file says is found out again, not added to a forecast."""
    return isinstance(size, int) and not isinstance(size, bool) and 0 <= size < _MOST


def _remember(name: str, key: str | None, size: int | None) -> None:
    known = _known(name)
    if not key or size is None or key in known:
        return
    with suppress(OSError):  # the next run looks again
        _path(name).parent.mkdir(parents=True, exist_ok=True)
        _path(name).write_text(json.dumps(known | {key: size}, indent=1), encoding="utf-8")


def _path(name: str) -> Path:
    return Path(platformdirs.user_cache_dir("peakmem", appauthor=False)) / name
