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
    assert roles["parameter"] == parameters
    assert 2 * parameters <= roles["optimizer_state"] <= 2 * parameters + 64
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
