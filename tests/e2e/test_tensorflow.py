"""TensorFlow's own GPU build on the virtual GPU.

`PEAKMEM_TENSORFLOW_PYTHON` names an interpreter with `tensorflow[and-cuda]` (some gigabytes, so CI goes without); else
this interpreter's is taken if it is there.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import peakmem
from peakmem.errors import PeakmemError
from peakmem.trace.load import load_trace
from peakmem.trace.replay import Replay
from peakmem.vgpu.build import ensure_library
from peakmem.vgpu.catalogue import find_device
from peakmem.vgpu.launch import Options, environment
from peakmem.vgpu.tensorflow import TensorflowFacts, find_tensorflow
from tests.e2e.conftest import run_peakmem

SCRIPTS = Path(__file__).parent / "scripts"
PYTHON = os.environ.get("PEAKMEM_TENSORFLOW_PYTHON", sys.executable)


@cache
def facts() -> TensorflowFacts | None:
    try:
        return find_tensorflow(PYTHON)
    except PeakmemError:
        return None


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(facts() is None, reason="needs tensorflow[and-cuda] (PEAKMEM_TENSORFLOW_PYTHON)"),
]


def bare(script: str, *words: str) -> str:
    """What a script prints on a virtual GPU that nobody watches."""
    found = facts()
    assert found is not None
    variables = environment(
        library=ensure_library(), device=find_device("a100-80"), facts=found, options=Options(), base=dict(os.environ)
    )
    done = subprocess.run(
        [PYTHON, str(SCRIPTS / script), *words], env=variables, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def run(*words: str):
    done = run_peakmem(
        "run", "--json", "-", "--steps", "all", "--", PYTHON, SCRIPTS / words[0], *words[1:], timeout=900
    )
    assert done.code == 0, done.err
    return done.json


def test_the_allocator_tells_the_same_with_and_without_watching():
    forecast = run("tensorflow_dense.py", "640")
    (said,) = re.findall(r"^peak (\d+)$", bare("tensorflow_dense.py", "640"), re.MULTILINE)
    (note,) = [note for note in forecast["notes"] if note.startswith("as the script is")]
    in_use = int(re.findall(r"[\d,]{7,}", note)[0].replace(",", ""))
    # Threads of TensorFlow take and give back in another order in each run: small tensors more or less.
    assert abs(in_use - int(said)) <= 0.02 * int(said)
    peak, roles = forecast["peak"], forecast["roles_at_peak"]
    assert forecast["framework"].startswith("TensorFlow 2.")
    assert peak["requested"] <= peak["allocated"] <= peak["reserved"]
    assert sum(roles.values()) == peak["allocated"]
    parameters = 4 * (1024 * 1024 + 1024 + 1024 * 10 + 10)
    # Chunks that are not split are larger than what lies in them.
    assert parameters <= roles["parameter"] <= 1.2 * parameters
    assert 2 * parameters <= roles["optimizer_state"] <= 2.4 * parameters
    assert parameters <= roles["gradient"] <= 1.2 * parameters
    assert any(note.startswith("by default TensorFlow takes 77.") for note in forecast["notes"])


def test_compiled_by_xla_the_peak_is_the_same_to_the_byte():
    (said,) = re.findall(r"^peak (\d+)$", bare("tensorflow_dense.py", "640", "jit"), re.MULTILINE)
    (again,) = re.findall(r"^peak (\d+)$", bare("tensorflow_dense.py", "640", "jit"), re.MULTILINE)
    assert said == again


def test_arrays_given_to_fit_are_on_the_device_as_a_whole():
    small, large = (run("tensorflow_dense.py", str(rows))["peak"]["allocated"] for rows in (640, 64_000))
    # 4,096 bytes of inputs and 8 of labels for each row; chunks that are not split take more.
    assert large - small >= (64_000 - 640) * 4_104 - 2**20


@pytest.mark.parametrize(("how", "seed"), [("growth", "1"), ("growth", "2"), ("full", "3")])
def test_the_simulator_is_tensorflows_allocator(how, seed):
    source = str(Path(peakmem.__file__).parents[1])
    assert "differences 0" in bare("tensorflow_bfc.py", how, seed, source)


def test_what_does_not_fit_is_told():
    done = run_peakmem(
        "run", "--memory", "2GiB", "--json", "-", "--", PYTHON, SCRIPTS / "tensorflow_dense.py", "640000", timeout=900
    )
    assert done.code == 1, done.err
    assert done.json["verdict"] == "does_not_fit"
    assert done.json["oom"]["requested"] > 2**30
    assert done.json["oom"]["needed"] > 2**31


MODELS = ("dense", "cnn", "lstm", "written_transformer", "transformer", "efficientnet", "resnet50")


@pytest.mark.parametrize("model", MODELS)
def test_the_peak_of_a_model_is_what_tensorflow_says(model, tmp_path, monkeypatch):
    # With growth one run is enough: what is asked about is the allocator's peak, and what the watching adds to it.
    monkeypatch.setenv("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    printed, saved = tmp_path / "printed", tmp_path / "run.peakmem"
    done = run_peakmem(
        "run", "--json", "-", "--steps", "all", "--output", printed, "--save", saved, "--",
        PYTHON, SCRIPTS / "tensorflow_models.py", model, timeout=900,
    )  # fmt: skip
    assert done.code == 0, done.err
    forecast = done.json
    peak, roles, host = forecast["peak"], forecast["roles_at_peak"], forecast["host"]
    (said,) = re.findall(r"^peak (\d+)$", printed.read_text(), re.MULTILINE)
    assert peak["allocated"] == int(said)
    assert sum(roles.values()) == peak["allocated"]
    assert roles["unattributed"] <= 0.01 * peak["allocated"] + 2**18
    assert roles["parameter"] and roles["optimizer_state"] and roles["input"]
    assert len(forecast["steps"]) == 4
    assert max(forecast["timeline"]["allocated"]) == peak["allocated"]
    assert {mark["name"] for mark in forecast["timeline"]["marks"]} >= {"step", "backward"}
    assert sum(part["bytes"] for part in host["parts"]) == host["peak_rss"]
    assert 2**29 < host["peak_rss"] <= host["node_peak"]
    trace = Replay(load_trace(saved))
    assert trace.timeline.allocated.max() == peak["allocated"]
    assert trace.timeline.reserved.max() == peak["reserved"]
    assert trace.trace.meta.framework == forecast["framework"]


def test_nobody_watching_the_transformer_takes_as_much(monkeypatch):
    monkeypatch.setenv("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    (said,) = re.findall(r"^peak (\d+)$", bare("tensorflow_models.py", "written_transformer"), re.MULTILINE)
    found = run("tensorflow_models.py", "written_transformer")["peak"]["allocated"]
    # Which operators run beside one another is chance: runs that nobody watched differed by 4 %.
    assert abs(found - int(said)) <= 0.06 * int(said)


def test_outside_of_functions_gradients_and_phases_are_known(monkeypatch):
    monkeypatch.setenv("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    forecast = run("tensorflow_eager.py")
    peak, roles = forecast["peak"], forecast["roles_at_peak"]
    weights = 4 * (1000 * 500 + 500 * 10)
    assert weights <= roles["gradient"] <= 1.6 * weights  # chunks that are not split are larger
    assert roles["parameter"] >= weights
    assert roles["optimizer_state"] >= weights
    assert sum(roles.values()) == peak["allocated"]
    assert peak["phase"] == "optimizer"
    assert len(forecast["steps"]) == 3


def test_what_resident_memory_is_the_scripts(tmp_path, monkeypatch):
    monkeypatch.setenv("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    small, large = (run("tensorflow_dense.py", str(rows))["host"] for rows in (640, 64_000))
    grown = large["peak_rss"] - small["peak_rss"]
    assert 63_000 * 4_104 <= grown <= 2.2 * 63_000 * 4_104  # TensorFlow copies the arrays, nobody watching too
    (bare_peak,) = re.findall(r"^highest (\d+)$", bare("tensorflow_dense.py", "64000", "host"), re.MULTILINE)
    known = {part["name"]: part["bytes"] for part in large["parts"]}
    seen = large["peak_rss"] - known["driver"] - known["CUDA libraries"]
    assert abs(seen - 1024 * int(bare_peak)) <= 0.03 * 1024 * int(bare_peak)


def test_a_request_for_a_scheduler_has_the_host_memory(monkeypatch):
    monkeypatch.setenv("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    done = run_peakmem("run", "--format", "slurm", "--", PYTHON, SCRIPTS / "tensorflow_eager.py", timeout=300)
    assert done.code == 0, done.err
    (size,) = re.findall(r"^#SBATCH --mem=(\d+)M$", done.out, re.MULTILINE)
    assert 800 < int(size) < 4000


@pytest.mark.parametrize("words", [("run", "--alloc-conf", "expandable_segments:True"), ("tune",)])
def test_what_pytorchs_allocator_alone_can_do_is_told(words):
    done = run_peakmem(*words, "--", PYTHON, SCRIPTS / "tensorflow_eager.py")
    assert done.code == 2
    assert "works with PyTorch's allocator and its options alone: this script trains with TensorFlow" in done.err
