"""What is asked of schedulers: golden lines, their units, and YAML and shell that can be read."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from host_samples import GIB, JOB, MIB
from hypothesis import given
from hypothesis import strategies as st
from unit_forecasts import forecast_of

from peakmem.errors import PeakmemError
from peakmem.report.requesting import FORMATS, Margin, Needs, margin_of, needs_of, request_text

GOLDEN = Path(__file__).parent / "golden"
FORECAST = replace(forecast_of(), host=JOB)


@pytest.mark.parametrize("kind", FORMATS)
def test_the_lines_are_the_golden_ones(kind: str) -> None:
    text = request_text(needs_of(FORECAST), kind)
    path = GOLDEN / f"request_{kind}.txt"
    if os.environ.get("PEAKMEM_UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def test_the_yaml_can_be_read_and_asks_for_what_it_may_use() -> None:
    needs = needs_of(FORECAST)
    pod = yaml.safe_load(request_text(needs, "kubernetes"))["spec"]
    container = pod["containers"][0]
    assert container["resources"]["requests"] == container["resources"]["limits"]
    assert container["resources"]["limits"] == {"memory": f"{needs.asked}Mi", "nvidia.com/gpu": 4}
    (mount,) = container["volumeMounts"]
    (volume,) = pod["volumes"]
    assert (mount["name"], mount["mountPath"]) == (volume["name"], "/dev/shm")
    assert volume["emptyDir"] == {"medium": "Memory", "sizeLimit": f"{needs.shm_asked}Mi"}


@pytest.mark.parametrize("kind", ["docker", "lsf"])
def test_commands_are_one_command_for_a_shell(kind: str) -> None:
    words = shlex.split(request_text(needs_of(FORECAST), kind), comments=True)
    assert words[0] in ("docker", "bsub")
    assert words[-1] == "COMMAND"


def test_on_the_cpu_no_gpu_is_asked_for() -> None:
    host = replace(JOB, node_peak=None, ranks=1, loaders=(), shm=0, driver_error=0)
    needs = needs_of(SimpleNamespace(peakmem="1.2.3", command=("python", "train.py"), host=host))
    assert needs.memory == JOB.tree_rss
    assert needs.margin.why == "3%, by which real runs scatter"
    for kind in FORMATS:
        assert "gpu" not in request_text(needs, kind).lower()


def test_one_rank_needs_no_room_for_nccl() -> None:
    one = replace(needs_of(FORECAST), ranks=1, gpus=1, shm=100 * MIB)
    assert one.shm_asked == 100
    assert replace(one, ranks=2).shm_asked == 100 + 1024
    assert replace(one, shm=0).shm_asked == 64
    assert "NCCL" not in request_text(one, "docker")


def test_without_the_host_there_is_nothing_to_ask_for() -> None:
    with pytest.raises(PeakmemError, match="the host's memory was not seen"):
        needs_of(replace(FORECAST, host=None))


def test_margins() -> None:
    known = margin_of(None, memory=100 * GIB, driver_error=100 * MIB, ranks=4)
    assert known.bytes == 3 * GIB + 400 * MIB
    assert known.why == "3%, by which real runs scatter, and 400 MiB, by which the driver's part may be off"
    assert margin_of(None, memory=GIB, driver_error=0, ranks=1).why == "3%, by which real runs scatter"
    assert margin_of("10%", memory=10 * GIB, driver_error=1, ranks=1).bytes == GIB
    assert margin_of("2GiB", memory=1, driver_error=1, ranks=1).bytes == 2 * GIB
    for wrong in ("much%", "-1%", "inf%", "nan%", "many"):
        with pytest.raises(PeakmemError):
            margin_of(wrong, memory=1, driver_error=0, ranks=1)


@given(memory=st.integers(1, 2**45), margin=st.integers(0, 2**40), shm=st.integers(0, 2**40))
def test_never_less_is_asked_for_than_needed(memory: int, margin: int, shm: int) -> None:
    needs = Needs(
        peakmem="1", command=(), memory=memory, margin=Margin(bytes=margin, why=""), shm=shm, gpus=1, gpu="",
        gpu_used=0, ranks=1, workers=0,
    )  # fmt: skip
    assert 0 <= needs.asked * MIB - memory - margin < MIB
    assert needs.shm_asked * MIB >= shm
