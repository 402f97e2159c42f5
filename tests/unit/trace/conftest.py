from __future__ import annotations

import json

import pytest
from trace_samples import DATA, NAMES


@pytest.fixture(params=NAMES)
def snapshot_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def figures(snapshot_name: str) -> dict[str, dict[str, int]]:
    """What PyTorch's own counters said when the snapshot was taken."""
    result: dict[str, dict[str, int]] = json.loads((DATA / f"{snapshot_name}.json").read_text())
    return result
