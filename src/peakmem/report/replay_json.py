"""Replays as JSON: `{"schema": "peakmem/replay/1", "results": [...]}`, bytes as integers."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import peakmem
from peakmem.allocator.replay.model import Floor, Replayed


def replayed_as_json(replayed: Replayed, floor: Floor | None = None) -> dict[str, Any]:
    """One replay."""
    return {
        "alloc_conf": replayed.alloc_conf,
        "torch": replayed.torch,
        "capacity": replayed.capacity,
        "start_as_recorded": replayed.exact_start,
        "peak": {
            "active": replayed.active,
            "reserved": replayed.reserved,
            "stranded": replayed.stranded,
            "event": replayed.at,
        },
        "most_stranded": replayed.most_stranded,
        "end_reserved": replayed.end_reserved,
        "grew": replayed.curve.grew,
        "segments": replayed.segments,
        "device_allocs": replayed.device_allocs,
        "retries": replayed.retries,
        "floor": floor.size if floor else None,
        "oom": asdict(replayed.ran_out) if replayed.ran_out else None,
        "requests": replayed.requests,
        "seconds": round(replayed.seconds, 4),
        "timeline": {"reserved": replayed.curve.reserved.tolist(), "active": replayed.curve.active.tolist()},
    }


def document(command: str, results: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    """The whole document of a command that gives a list of results."""
    return {"schema": f"peakmem/{command}/1", "peakmem": peakmem.__version__, **fields, "results": results}
