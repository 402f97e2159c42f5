"""Training with TensorFlow on the CPU: `--device cpu` against the same training done for real.

`PEAKMEM_TENSORFLOW_PYTHON` names an interpreter with TensorFlow of whatever build; else this interpreter's is taken if
it is there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import peakmem
from peakmem.errors import PeakmemError
from peakmem.host.tensorflow import TensorflowCpuFacts, probe_tensorflow_cpu
from tests.e2e.conftest import measured, run_peakmem

SCRIPT = Path(__file__).parent / "scripts" / "tensorflow_cpu.py"
PYTHON = os.environ.get("PEAKMEM_TENSORFLOW_PYTHON", sys.executable)
GIB = 2**30


@cache
def facts() -> TensorflowCpuFacts | None:
    try:
        return probe_tensorflow_cpu(PYTHON)
    except PeakmemError:
        return None


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(facts() is None, reason="needs tensorflow (PEAKMEM_TENSORFLOW_PYTHON)"),
]


def run(*words: str, code: int = 0, **variables: str):
    done = run_peakmem("run", "--device", "cpu", "--json", "-", *words, timeout=600, **variables)
    assert done.code == code, done.err
    return done


@pytest.mark.parametrize("onednn", ["1", "0"])
@pytest.mark.parametrize("how", ["fit", "words"])
def test_the_peak_is_that_of_the_real_training(how, onednn):
    done = run("--steps", "all", "--", PYTHON, SCRIPT, how, TF_ENABLE_ONEDNN_OPTS=onednn)
    _, truth = measured(PYTHON, SCRIPT, how, TF_ENABLE_ONEDNN_OPTS=onednn)
    host = done.json["host"]
    assert done.json["framework"].startswith("TensorFlow 2.")
    assert host["peak_rss"] == pytest.approx(truth, rel=0.05)
    assert sum(part["bytes"] for part in host["parts"]) == host["peak_rss"]
    assert len(host["steps"]) == 4
    assert "resident at the peak" in done.err


def test_it_takes_less_than_it_forecasts():
    forecast = run("--", PYTHON, SCRIPT, "large", "4").json
    assert forecast["host"]["peak_rss"] > 8 * GIB  # the variable and its gradient
    assert forecast["own_peak"] < 1.5 * GIB


def test_a_limit_that_is_too_small():
    done = run("--memory", "400MiB", "--", PYTHON, SCRIPT, "fit", code=1)
    assert done.json["verdict"] == "does_not_fit"


def test_a_script_that_fails(script):
    path = script("import tensorflow as tf\ntf.zeros([2, 3]) + tf.zeros([5])\n")
    done = run("--", PYTHON, path, code=3)
    assert "InvalidArgumentError" in done.json["error"]["type"]
    assert "the script failed" in done.err


def test_a_backend_that_is_neither_is_refused(script):
    done = run_peakmem("run", "--device", "cpu", "--", PYTHON, script("import keras\n"), KERAS_BACKEND="jax")
    assert done.code == 2
    assert "the script trains with jax" in done.err


def test_a_keras_model(tmp_path):
    needed = subprocess.run(
        [PYTHON, "-c", "import click, jinja2, msgspec, numpy, platformdirs, psutil, rich"], check=False
    )
    if needed.returncode:
        pytest.skip("peakmem does not run in the Python that has TensorFlow")
    saved = tmp_path / "train.py"
    variables = {"KERAS_BACKEND": "tensorflow", "PYTHONPATH": str(Path(peakmem.__file__).parents[1])}
    words = ["predict", f"keras:{SCRIPT}:cnn", "--device", "cpu", "--batch", "256", "--steps", "3", "--json", "-"]
    done = subprocess.run(
        [PYTHON, "-m", "peakmem", *words, "--save-script", saved],
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    forecast = json.loads(done.stdout)
    assert "on tensorflow" in forecast["workload"]["training"]
    printed, _ = measured(PYTHON, saved)
    assert forecast["host"]["peak_rss"] == pytest.approx(int(printed.rpartition("max_rss")[2]), rel=0.05)
