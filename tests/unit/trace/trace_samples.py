"""Snapshots to test with: small ones of our own, and real ones where somebody has them."""

from __future__ import annotations

import os
from pathlib import Path

DATA = Path(__file__).parent / "data"
NAMES = ("plain", "expandable", "rounded", "unsplit", "ring", "streams")


def real_snapshots() -> list[Path]:
    """Snapshots from physical cards, outside of the repository."""
    folder = os.environ.get("PEAKMEM_SNAPSHOTS")
    return sorted(Path(folder).glob("*.pickle")) if folder else []
