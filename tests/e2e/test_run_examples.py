"""The examples: what `peakmem run` says equals what the script itself reads from torch, to the byte."""

import re
from pathlib import Path

import pytest

from peakmem.trace.load import load_trace
from peakmem.trace.replay import Replay
from peakmem.trace.roles import Role
from tests.e2e.conftest import EXAMPLES, run_peakmem

pytestmark = pytest.mark.torch

SCRIPTS = ["dense", "resnet50", "gpt2", "unet3d", "lstm", "hf_trainer", "lightning_autoencoder"]


def read_by_the_script(log: Path) -> tuple[int, int]:
    text = log.read_text()
    allocated = re.search(r"max_memory_allocated (\d+)", text)
    reserved = re.search(r"max_memory_reserved (\d+)", text)
    assert allocated and reserved, text
    return int(allocated.group(1)), int(reserved.group(1))


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_figures_are_those_that_the_script_reads(name, tmp_path):
    log = tmp_path / "log"
    done = run_peakmem(
        "run",
        "--gpu",
        "a100-80",
        "--steps",
        "all",
        "--no-range",
        "--output",
        log,
        "--json",
        "-",
        EXAMPLES / f"{name}.py",
    )
    assert done.code == 0, done.err
    forecast = done.json
    peak = forecast["peak"]
    assert (peak["allocated"], peak["reserved"]) == read_by_the_script(log)
    assert forecast["stopped"] == "end" and len(forecast["steps"]) >= 5
    assert peak["used"] == peak["reserved"] + peak["context"]
    assert peak["requested"] <= peak["allocated"] <= peak["active"] <= peak["reserved"]
    for key in ("allocated", "reserved", "requested", "active"):
        assert max(step[key] for step in forecast["steps"]) == peak[key], key
    roles = forecast["roles_at_peak"]
    assert sum(roles.values()) == peak["allocated"]
    assert roles["unattributed"] < 0.02 * peak["allocated"]
    assert sum(holder["bytes"] for holder in forecast["holders_at_peak"]) <= peak["allocated"]
    timeline = forecast["timeline"]
    assert len(timeline["event"]) <= 400
    assert (max(timeline["allocated"]), max(timeline["reserved"])) == (peak["allocated"], peak["reserved"])
    at_peak = timeline["event"].index(timeline["peak"])
    assert {role: sizes[at_peak] for role, sizes in timeline["roles"].items() if sizes[at_peak]} == {
        role: size for role, size in roles.items() if size
    }


@pytest.mark.parametrize("name", ["gpt2", "dense"])
def test_a_run_that_is_ended_early_has_the_same_peak(name):
    whole = run_peakmem("run", "--steps", "all", "--json", "-", EXAMPLES / f"{name}.py").json
    short = run_peakmem("run", "--json", "-", EXAMPLES / f"{name}.py").json
    assert short["stopped"] == "enough" and short["steady"]
    assert len(short["steps"]) < len(whole["steps"])
    assert short["peak"]["allocated"] == whole["peak"]["allocated"]
    assert short["peak"]["reserved"] == whole["peak"]["reserved"]


def test_gpt2_takes_what_the_allocator_alone_takes():
    # Measured without any watching: torch 2.14.1+cu130 on a bare virtual device of compute capability 8.0.
    peak = run_peakmem("run", "--gpu", "a100-80", "--json", "-", EXAMPLES / "gpt2.py").json["peak"]
    assert (peak["allocated"], peak["reserved"]) == (4_654_318_080, 5_138_022_400)
    assert (peak["phase"], peak["step"]) == ("backward", 1)


def test_gpt2_holds_what_its_model_takes(tmp_path):
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    saved = tmp_path / "gpt2.peakmem"
    forecast = run_peakmem("run", "--gpu", "a100-80", "--save", saved, "--json", "-", EXAMPLES / "gpt2.py").json
    with torch.device("meta"):
        parameters = sum(p.numel() * 4 for p in GPT2LMHeadModel(GPT2Config()).parameters())
    trace = load_trace(saved)
    device = trace.device_info(0)
    assert device.capacity == forecast["gpu"]["total"]
    assert device.capacity - device.context == forecast["gpu"]["usable"]
    replay = Replay(trace)
    moment = replay.peak_moment()
    alive, roles = replay.alive(moment), replay.roles(moment)
    requested, size = replay.allocations.requested, replay.allocations.size

    def total(column, role):
        return int(column[alive][roles[alive] == role].sum())

    assert total(requested, Role.PARAMETER) == parameters
    assert total(requested, Role.OPTIMIZER_STATE) == 2 * parameters
    for role in Role:
        assert total(size, role) == forecast["roles_at_peak"][role.word]
    # The logits in float32 and their gradient are the largest tensors: 4 x 512 x 50257 values.
    assert forecast["holders_at_peak"][1]["bytes"] == 411_705_344


def test_convolutions_come_with_a_range():
    forecast = run_peakmem("run", "--gpu", "a100-80", "--json", "-", EXAMPLES / "resnet50.py", "--batch", "8").json
    span = forecast["convolution_range"]
    assert span["likely"] == forecast["peak"]["reserved"]
    assert span["least"] <= span["own"]
