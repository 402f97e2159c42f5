"""`peakmem predict --device cpu` against its own script, trained for real."""

from __future__ import annotations

import sys

import pytest

from tests.e2e.conftest import measured, run_peakmem

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("words", "tolerance"),
    [
        (("dense:1000-100-100-100-100-10", "--batch", "256"), 0.05),
        (("dense:2048-2048-2048-2048-10", "--batch", "512", "--optimizer", "sgd:momentum=0.9"), 0.1),
    ],
)
def test_the_forecast_is_what_its_script_takes(words, tolerance, tmp_path):
    path = tmp_path / "train.py"
    done = run_peakmem("predict", "--device", "cpu", "--steps", "3", "--json", "-", "--save-script", path, *words)
    assert done.code == 0, done.err
    printed, real = measured(sys.executable, path)
    forecast = done.json
    assert forecast["schema"] == "peakmem/cpu-forecast/1"
    assert forecast["workload"]["training"]
    assert forecast["host"]["peak_rss"] == pytest.approx(real, rel=tolerance)
    at_exit = sum(part["bytes"] for part in forecast["host"]["parts"] if part["name"] == "at exit")
    assert forecast["host"]["peak_rss"] - at_exit == pytest.approx(int(printed.split("max_rss")[1]), rel=tolerance)
    assert "resident at the peak" in done.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("dense:10-10", "--batch", "2", "--gpu", "t4"), "--gpu says nothing about training on the CPU"),
        (("dense:10-10", "--batch", "2", "--cudnn", "own"), "--cudnn says nothing about training on the CPU"),
        (("dense:10-10", "--batch", "2", "--memory", "0"), "a machine can't have 0 bytes of memory"),
        (("dense:10-10", "--batch", "2", "--cuda-graphs"), "--cuda-graphs is not for training on the CPU"),
        (("jax:nets.py:build", "--batch", "2"), "--device cpu is for models of PyTorch and Keras"),
    ],
)
def test_what_the_cpu_does_not_have_is_refused(words, message):
    done = run_peakmem("predict", "--device", "cpu", *words)
    assert done.code == 2
    assert message in done.err


def test_a_limit_that_is_too_small():
    done = run_peakmem("predict", "--device", "cpu", "--memory", "200MiB", "dense:1000-100-10", "--batch", "256")
    assert done.code == 1
    assert "does not fit" in done.out


FUNCTIONS = """
from torch import nn

def narrow():
    return nn.Sequential(nn.Linear(10, 100), nn.ReLU(), nn.Linear(100, 10))

def broken():
    raise ValueError("no such layer")
"""


def test_a_model_that_cant_be_trained(script):
    path = script(FUNCTIONS, "nets.py")
    words = ("predict", "--device", "cpu", "--batch", "4", "--input", "11")
    wrong = run_peakmem(*words, f"{path}:narrow")
    assert wrong.code == 2 and not wrong.out
    assert "can't be trained with inputs 4 x 11 float32: mat1 and mat2 shapes" in wrong.err and "--input" in wrong.err
    broken = run_peakmem(*words, f"{path}:broken")
    assert broken.code == 3 and not broken.out
    assert "could not be built: ValueError: no such layer" in broken.err and "predict.py" not in broken.err
