"""What PyTorch's compiler was seen to hold on the host, kept from run to run.

Runs of `peakmem predict` do without it; their host's side counts it all the same, since a script would have loaded it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import platformdirs


def known_compiler_sizes() -> dict[str, int]:
    """Bytes by what it hangs on (`session/inside/compiler.py`)."""
    try:
        found = json.loads(_path().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {key: size for key, size in found.items() if isinstance(size, int)} if isinstance(found, dict) else {}


def remember_compiler_size(recording: Mapping[str, Any]) -> None:
    """Keep what a run has found out, if it did."""
    spared = (recording.get("host") or {}).get("spared") or {}
    key, known = spared.get("compiler_with"), known_compiler_sizes()
    if not key or key in known:
        return
    with suppress(OSError):  # the next run looks again
        _path().parent.mkdir(parents=True, exist_ok=True)
        _path().write_text(json.dumps(known | {key: int(spared["compiler"])}, indent=1), encoding="utf-8")


def _path() -> Path:
    return Path(platformdirs.user_cache_dir("peakmem", appauthor=False)) / "compiler-sizes.json"
